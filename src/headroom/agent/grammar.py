"""The action language of the text track: targets by role and accessible name, as in Playwright and ARIA.

::

    click button "Ok"              click button "Ok" #2        (the second of two equal ones)
    fill textbox "Username" "bob"  select combobox "Country" "Peru"
    press "Enter"                  scroll "down"               (either may name a target first)

Strings are quoted with backslash escapes (``\\"``, ``\\\\``, ``\\n``, ``\\r``, ``\\t``, ``\\uXXXX``), so an action
is always one line, whatever a page puts into a name. :func:`parse` is total: a text that is no action becomes
``Action("malformed", text=raw)`` and costs a turn like any other.
"""

from __future__ import annotations

import re

from headroom.worlds.base import Action

VERBS = ("click", "fill", "select", "press", "scroll")
MALFORMED = "malformed"

_NEEDS_TARGET = frozenset({"click", "fill", "select"})
_NEEDS_TEXT = frozenset({"fill", "select", "press", "scroll"})

QUOTED = r'"(?:[^"\\\n\r]|\\.)*"'
ROLE = r"[a-z][a-z0-9_-]*"
_ACTION = re.compile(
    rf"\s*(?P<verb>{'|'.join(VERBS)})"
    rf"(?:\s+(?P<role>{ROLE})\s+(?P<name>{QUOTED})(?:\s+#(?P<occurrence>[1-9][0-9]{{0,5}}))?)?"
    rf"(?:\s+(?P<text>{QUOTED}))?\s*"
)
_ROLE = re.compile(ROLE)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
# What would end the line or cannot be stored as UTF-8: controls, line separators, lone surrogates.
_UNSAFE = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG = {"n": "\n", "r": "\r", "t": "\t"}


def quote(text: str) -> str:
    """Quote any string on one line; :func:`unquote` is its exact inverse."""
    return '"' + _UNSAFE.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04x}", text) + '"'


def unquote(quoted: str) -> str:
    """Undo :func:`quote`; an unknown escape stands for the character after the backslash."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _LONG.get(m[2], m[2]), quoted[1:-1])


def parse(text: str) -> Action:
    """Read one action; never raises. Space around and between the parts is free, everything else is exact."""
    match = _ACTION.fullmatch(text)
    if match is None:
        return Action(MALFORMED, text=text)
    verb, role = match["verb"], match["role"]
    if (verb in _NEEDS_TARGET and role is None) or (verb in _NEEDS_TEXT) != (match["text"] is not None):
        return Action(MALFORMED, text=text)
    return Action(
        verb,
        role=role or "",
        name=unquote(match["name"]) if role else "",
        occurrence=int(match["occurrence"] or 0),
        text=unquote(match["text"]) if match["text"] is not None else "",
    )


def render(action: Action) -> str:
    """Write one action in canonical form: ``parse(render(action)) == action``.

    Raises:
        ValueError: the action cannot be written (an unknown verb, a target or a text that its verb does not take).
    """
    if action.verb == MALFORMED:
        return action.text
    parts = [action.verb]
    if action.role:
        parts += [action.role, quote(action.name)]
        if action.occurrence:
            parts.append(f"#{action.occurrence}")
    if action.verb in _NEEDS_TEXT:
        parts.append(quote(action.text))
    text = " ".join(parts)
    if parse(text) != action:
        msg = f"{action!r} is not an action of this grammar"
        raise ValueError(msg)
    return text


def is_role(text: str) -> bool:
    """Whether ``text`` can stand as a role in an action."""
    return _ROLE.fullmatch(text) is not None
