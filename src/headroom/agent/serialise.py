"""A page as compact text, one element a line, the same for every model.

::

    button "Ok"
    textbox filled "Username" = "bob"
    checkbox checked "I agree" #2
    combobox "Country" options "Chad" on "Peru" "Togo"
    cell "Language" "Hebrew" "Country" "Ghana"

A state stands *before* the name that it qualifies, and a selected option is preceded by ``on``: a causal model
then knows the state when it reads the name, which a small model needs and a large one does not mind. Plain text and
table cells that follow one another share a line, so that a table's key stands directly before its value. Every
string is quoted as in the action grammar: a page cannot forge a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headroom.agent.grammar import quote
from headroom.worlds.base import Element, Observation

RUN_ROLES = frozenset({"text", "cell"})  # plain content; neighbours of one role share a line
FILLED = "filled"
FOCUSED = "focused"
OPTIONS = "options"
ON = "on"
VALUE = "="

_BARE = re.compile(r"[^a-z0-9_-]+")
_FIELDS = frozenset({"textbox", "searchbox", "spinbutton"})


def bare(text: str) -> str:
    """A role or state as one bare word of the grammar, whatever a page calls it."""
    word = _BARE.sub("-", text.lower()).strip("-")
    return word if word and word[0].isalpha() else f"x{word}"


def _is_plain(element: Element) -> bool:
    return element.role in RUN_ROLES and not ({*element.states} - {FOCUSED} or element.value or element.options)


def _line(element: Element) -> Iterator[str]:
    yield bare(element.role)
    # Focus says where keys go; on anything but a field it is the shadow of the last click.
    yield from (bare(state) for state in element.states if state != FOCUSED or element.role in _FIELDS)
    if element.value and element.role in _FIELDS:
        yield FILLED
    yield quote(element.name)
    if element.occurrence:
        yield f"#{element.occurrence}"
    if element.options:
        yield OPTIONS
        for option in element.options:
            if option == element.value:
                yield ON
            yield quote(option)
    elif element.value:
        yield VALUE
        yield quote(element.value)


def page_text(observation: Observation) -> str:
    """The elements of a page, one a line, in page order; the utterance is not part of it."""
    lines: list[str] = []
    run_role = ""
    for element in observation.elements:
        if _is_plain(element):
            text = quote(element.name) + (f" #{element.occurrence}" if element.occurrence else "")
            if element.role == run_role:
                lines[-1] += f" {text}"
            else:
                lines.append(f"{element.role} {text}")
            run_role = element.role
        else:
            lines.append(" ".join(_line(element)))
            run_role = ""
    return "\n".join(lines)
