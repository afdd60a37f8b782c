"""Slot tokens: how a model with a small closed vocabulary reads and writes words that it has never met.

This is the device of the ``tiny`` scale alone. Words of a *closed class* (in a fair share of a task's training
episodes) have a token of their own. Every other *unit* of a turn takes one of ``slots`` tokens ``<s0>`` ...: the
same slot wherever the unit stands in the goal, the page, the history and the action of that turn. The slot is drawn
by a hash salted with the turn's prompt, so no slot means anything beyond its turn and the model can learn to copy
only. The mapping is a pure function of the prompt text; it is undone when an action is decoded.

A unit is a word, or a whole multi-word string (a name, an option, a cell, a quoted span of the goal) that is
pointed at as a whole. A string of at most :data:`MERGE_WORDS` words with an open word in it is one unit if the goal
contains it, or if the goal contains none of its open words on their own; a longer one, or one of which the goal
names a part, stays in words. A dialect may switch merging off (``Dialect.merges``).

Limits, by design:

* A string can be typed only if its units stand in the prompt (or are closed words); anything else reads ``<other>``.
* At most ``slots`` open units a turn have a slot, those of the goal first, then in page order; the rest is
  ``<other>``, which decodes to U+FFFD and so misses every target. So does a role that no training page had.
* Strings that differ in spacing alone are the same string here; the first on the page is meant.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headroom.agent.dialect import WEB_PAGES, Dialect
from headroom.agent.grammar import MALFORMED, QUOTED, unquote
from headroom.agent.prompt import ARROW, GOAL
from headroom.agent.serialise import RUN_ROLES, VALUE

MERGE_WORDS = 6
END = "<end>"
OTHER = "<other>"
SEPARATOR = "[;]"  # between two strings that nothing else separates
REPLACEMENT = "\ufffd"

Words = tuple[str, ...]

# A password's bullets and an ellipsis are one word each: their number is all that they say.
_WORD = re.compile(r"\w+|\.{2,}|•{2,}|[^\w\s]")
_LEXEME = re.compile(rf"{QUOTED}|\S+")
_GOAL_QUOTE = re.compile(r'"([^"]+)"')
_GLUE = re.compile(r"\s*([^\w\s])\s*")


def words_of(text: str) -> Words:
    """Split into runs of word characters, of dots and of bullets, and single other characters, without white space."""
    return tuple(_WORD.findall(text))


def structure(word: str) -> str:
    """The token of a bare word (role, state, verb ...); no word of content can look like it."""
    return f"[{word}]"


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A bare word of the grammar, or (``quoted``) a string of the page."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Lines:
    """A prompt taken apart: the goal, and every other line as lexemes. Total: any text gives some lines."""

    goal: str
    rest: tuple[tuple[Lexeme, ...], ...]

    def strings(self) -> Iterator[str]:
        """Every quoted string of page and history, in order."""
        return (lexeme.text for line in self.rest for lexeme in line if lexeme.quoted)


def lexemes(line: str) -> tuple[Lexeme, ...]:
    """Take a line apart; anything that is no quoted string is a bare word."""
    found = []
    for text in _LEXEME.findall(line):
        is_quoted = len(text) > 1 and text[0] == text[-1] == '"'
        found.append(Lexeme(unquote(text) if is_quoted else text, is_quoted))
    return tuple(found)


def read_lines(prompt: str) -> Lines:
    """Take a prompt apart."""
    goal = ""
    rest: list[tuple[Lexeme, ...]] = []
    for line in prompt.split("\n"):
        if line.startswith(GOAL) and not goal:
            goal = line[len(GOAL) :].strip()
        elif line.startswith(f"{MALFORMED} "):
            # What the model babbled is not worth a slot; that it did is.
            rest.append((Lexeme(MALFORMED, False),))
        elif line.strip():
            rest.append(lexemes(line))
    return Lines(goal, tuple(rest))


def _matches(words: Sequence[str], strings: Collection[Words]) -> Iterator[Words]:
    """Cut a word sequence into known strings (the longest first) and single words."""
    longest = max(map(len, strings), default=1)
    position = 0
    while position < len(words):
        for length in range(min(longest, len(words) - position), 1, -1):
            piece = tuple(words[position : position + length])
            if piece in strings:
                break
        else:
            piece = (words[position],)
        yield piece
        position += len(piece)


def _spaced(units: Sequence[str]) -> str:
    """A pattern for the units with any white space between them, and some between two words."""
    pattern = re.escape(units[0])
    for left, right in pairwise(units):
        both_words = _WORD.findall(left[-1:] + right[:1]) == [left[-1:] + right[:1]]
        pattern += (r"\s+" if both_words else r"\s*") + re.escape(right)
    return pattern


@dataclass(frozen=True)
class SlotTable:
    """The units of one prompt and their tokens; made by :func:`slot_table`."""

    closed: Collection[str]
    merged: Mapping[Words, str]  # words -> the exact string
    tokens: Mapping[Words, str]  # open unit -> slot token
    names: Mapping[tuple[str, Words], str]  # (role, tokens) -> exact name
    strings: Mapping[Words, str]  # tokens -> exact string
    goal: str
    units: Mapping[str, str] = field(default_factory=dict)  # slot token -> the unit as text

    def encode(self, text: str) -> Words:
        """The tokens of one string; unknown open words become ``<other>``."""
        return tuple(self._token(unit) for unit in _matches(words_of(text), self.merged))

    def _token(self, unit: Words) -> str:
        token = self.tokens.get(unit)
        if token is not None:
            return token
        return unit[0] if len(unit) == 1 and unit[0] in self.closed else OTHER

    def decode(self, tokens: Words, role: str = "") -> str:
        """The string that the tokens stand for.

        Looked up as a name of the role, then as any string of the prompt, then as a span of the goal (all three give
        the exact original); otherwise the units are joined, with white space between words only.
        """
        exact = self.names.get((role, tokens)) if role else None
        exact = exact if exact is not None else self.strings.get(tokens)
        if exact is not None:
            return exact
        units = [self.units.get(token, REPLACEMENT if token == OTHER else token) for token in tokens]
        span = re.search(_spaced(units), self.goal) if len(units) > 1 else None
        return span[0] if span else _GLUE.sub(r"\1", " ".join(units))


def _merges(lines: Lines, closed: Collection[str]) -> dict[Words, str]:
    """The multi-word strings that are one unit in this prompt (the rule in the module's docstring)."""
    candidates: dict[Words, str] = {}
    for text in (*lines.strings(), *_GOAL_QUOTE.findall(lines.goal)):
        words = words_of(text)
        if 1 < len(words) <= MERGE_WORDS and any(word not in closed for word in words):
            candidates.setdefault(words, text)
    pieces = list(_matches(words_of(lines.goal), candidates))
    in_goal = {piece for piece in pieces if len(piece) > 1}
    alone = {piece[0] for piece in pieces if len(piece) == 1 and piece[0] not in closed}
    return {words: text for words, text in candidates.items() if words in in_goal or alone.isdisjoint(words)}


def _draw(units: Iterable[Words], salt: str, slots: int) -> dict[Words, str]:
    """Give each unit a slot: hash, then probe upwards; units beyond ``slots`` get none."""
    seed = hashlib.sha256(salt.encode("utf-8", "surrogatepass"))
    taken: dict[int, Words] = {}
    tokens: dict[Words, str] = {}
    for unit in units:
        if unit in tokens:
            continue
        if len(taken) == slots:
            break
        digest = seed.copy()
        digest.update("\0".join(("", *unit)).encode("utf-8", "surrogatepass"))
        slot = int.from_bytes(digest.digest()[:8], "big") % slots
        while slot in taken:
            slot = (slot + 1) % slots
        taken[slot] = unit
        tokens[unit] = f"<s{slot}>"
    return tokens


def slot_table(prompt: str, closed: Collection[str], slots: int, *, merging: bool = True) -> tuple[SlotTable, Lines]:
    """The mapping of one prompt: a pure function of its arguments. Never raises, whatever a page says.

    ``merging`` is the dialect's (``Dialect.merges``): may several words be one unit?
    """
    lines = read_lines(prompt)
    merged = _merges(lines, closed) if merging else {}
    content = (words_of(text) for text in (lines.goal, *lines.strings()))
    units = (unit for words in content for unit in _matches(words, merged))
    tokens = _draw((unit for unit in units if len(unit) > 1 or unit[0] not in closed), prompt, slots)
    names: dict[tuple[str, Words], str] = {}
    strings: dict[Words, str] = {}
    table = SlotTable(
        closed, merged, tokens, names, strings, lines.goal,
        {token: merged.get(unit, unit[0]) for unit, token in tokens.items()},
    )  # fmt: skip
    for line in lines.rest:
        role = line[0].text
        quoted = [(lexeme.text, table.encode(lexeme.text)) for lexeme in line if lexeme.quoted]
        for text, encoded in quoted:
            strings.setdefault(encoded, text)
        for text, encoded in quoted if role in RUN_ROLES else quoted[:1]:
            names.setdefault((role, encoded), text)
    return table, lines


def _line_tokens(line: Sequence[Lexeme], table: SlotTable) -> Iterator[str]:
    is_run = line[0].text in RUN_ROLES and not line[0].quoted
    after_string = False
    for lexeme in line:
        if lexeme.quoted:
            if after_string and not is_run:
                yield SEPARATOR
            yield from table.encode(lexeme.text)
        elif lexeme.text != ARROW and not (is_run and (lexeme.text == VALUE or lexeme.text.startswith("#"))):
            # An arrow is implied by the outcome that follows. Plain text is hardly ever a target, so its numbers go,
            # and a cell's value follows its key directly.
            yield structure(lexeme.text)
        else:
            continue
        after_string = lexeme.quoted


def prompt_tokens(lines: Lines, table: SlotTable) -> Iterator[str]:
    """The prompt as tokens: goal first, ``[action:]`` last."""
    yield structure(GOAL)
    yield from table.encode(lines.goal)
    for line in lines.rest:
        yield from _line_tokens(line, table)


def action_tokens(action: str, table: SlotTable) -> list[str]:
    """An action (canonical text) as tokens, without the end token."""
    line = lexemes(action)
    return list(_line_tokens(line, table)) if line else []


def action_text(tokens: Sequence[str], table: SlotTable, dialect: Dialect = WEB_PAGES) -> str:
    """Undo :func:`action_tokens`. A sequence that is no action gives a text that does not parse, and never raises."""
    sections: list[tuple[str, list[str]]] = []
    for token in tokens:
        if token == SEPARATOR and sections:
            sections.append(("", []))
        elif token.startswith("[") and len(token) > 2:
            sections.append((token[1:-1], []))
        elif sections:
            sections[-1][1].append(token)
        else:
            break  # does not start with a verb
    action = dialect.assemble(sections, lambda words, role: table.decode(tuple(words), role))
    if dialect.parse(action).verb != MALFORMED:
        return action
    raw = " ".join(tokens)
    return raw if dialect.parse(raw).verb == MALFORMED else f"? {raw}"
