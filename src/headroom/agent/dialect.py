"""What differs between worlds in what an agent reads and writes: one dialect a world.

A checkpoint carries the name of its dialect (:mod:`headroom.agent.spoken`), because its policy knows no other; a
released model, which carries none, is asked as an agent of web pages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from headroom.agent import grammar, prompt
from headroom.agent.grammar import quote
from headroom.agent.spoken import FILE, spoken, spoken_here
from headroom.worlds.base import Action, Observation

LOCATION, OBJECTS = "location", "objects"
"""The facts of an observation that an answer may predict: where the agent is, and "yes" if it sees any object."""
ANCHOR = "anchor"
"""The fact that an answer given at the observation itself may state: the answer to its world's anchor question."""
SUREST = 9
"""Confidence is said in tenths, 0 to this: one digit."""

Section = tuple[str, Sequence[str]]
"""A bare word and the tokens of the string behind it; the word is empty between two strings."""


class Dialect(Protocol):
    """How observations become a prompt, and an answer an action."""

    @property
    def name(self) -> str:
        """What a checkpoint calls it."""
        ...

    @property
    def instructions(self) -> str:
        """What a large model is told before the prompt."""
        ...

    @property
    def merges(self) -> bool:
        """Whether a tiny model may read a string of several words as one slot (:mod:`headroom.agent.slots`)."""
        ...

    @property
    def words(self) -> Collection[str]:
        """Words of its answers that a tiny model's vocabulary always has."""
        ...

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """The prompt of the next turn, given all observations and actions of the episode so far.

        Raises:
            ValueError: there is not one observation more than actions.
        """
        ...

    def parse(self, text: str) -> Action:
        """Read an answer; total: what is no action is ``Action("malformed", text=text)``."""
        ...

    def write(
        self, action: Action, facts: Mapping[str, str], anchor: str | None = None, sure: int | None = None
    ) -> str:
        """The answer of a demonstrator; :meth:`parse` undoes it, and the methods below give back what it says.

        Args:
            action: what it does.
            facts: of the next observation, which it predicts.
            anchor: its answer to the anchor question; None: it gives none.
            sure: its confidence in tenths, 0 to :data:`SUREST`; None: it says none.

        Raises:
            ValueError: the action cannot be written.
        """
        ...

    def prediction(self, text: str) -> Mapping[str, str]:
        """The fields of the next observation that an answer predicts; empty where it predicts none. Total."""
        ...

    def anchor(self, text: str) -> str | None:
        """What an answer gives as answer to the anchor question; None where it gives none. Total."""
        ...

    def confidence(self, text: str) -> float | None:
        """How sure an answer says to be of success, in [0, 1]; None where the dialect has no word for it. Total."""
        ...

    def assemble(self, sections: Sequence[Section], read: Callable[[Sequence[str], str], str]) -> str:
        """An answer from its pieces; what they cannot make gives a text that does not parse.

        Args:
            sections: as a tiny model wrote them.
            read: (tokens, role of what they name, or "") -> string.
        """
        ...


class WebPages:
    """The text track of MiniWoB++: elements by role and accessible name."""

    name = "web pages"
    instructions = prompt.INSTRUCTIONS
    merges = True
    words = ()

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """See :class:`Dialect`."""
        return prompt.prompt_text(observations, actions)

    def parse(self, text: str) -> Action:
        """See :class:`Dialect`."""
        return grammar.parse(text)

    def write(
        self,
        action: Action,
        facts: Mapping[str, str],  # noqa: ARG002
        anchor: str | None = None,  # noqa: ARG002
        sure: int | None = None,  # noqa: ARG002
    ) -> str:
        """See :class:`Dialect`."""
        return grammar.render(action)

    def prediction(self, text: str) -> Mapping[str, str]:  # noqa: ARG002
        """See :class:`Dialect`."""
        return {}

    def anchor(self, text: str) -> str | None:  # noqa: ARG002
        """See :class:`Dialect`."""
        return None

    def confidence(self, text: str) -> float | None:  # noqa: ARG002
        """See :class:`Dialect`."""
        return None

    def assemble(self, sections: Sequence[Section], read: Callable[[Sequence[str], str], str]) -> str:
        """See :class:`Dialect`."""
        parts = [sections[0][0]] if sections else []
        if len(sections) == 1:
            parts.append(quote(read(sections[0][1], "")))
        elif len(sections) in (2, 3) and not sections[0][1]:
            role, name = sections[1]
            parts += [role or "?", quote(read(name, role))]
            for mark, text in sections[2:]:
                if mark:
                    parts.append(mark)
                if text or parts[0] != "click":
                    parts.append(quote(read(text, "")))
        else:
            parts = []
        return " ".join(parts)


WEB_PAGES = WebPages()

_NAMES = {"miniwob": WEB_PAGES.name, "alfworld": "text game", "hidden_rule": "hidden rule"}


def dialect_of(kind: str) -> Dialect:
    """The dialect of a world, by the ``kind`` of its settings.

    Raises:
        ValueError: there is no such world.
    """
    if kind not in _NAMES:
        raise ValueError(f"world.kind {kind!r}: no dialect; known are {', '.join(_NAMES)}")
    return dialect_named(_NAMES[kind])


def dialect_named(name: str) -> Dialect:
    """A dialect by its name.

    Raises:
        ValueError: there is no such dialect.
    """
    if name == WEB_PAGES.name:
        return WEB_PAGES
    if name not in _NAMES.values():
        raise ValueError(f"dialect {name!r} is unknown; known are {', '.join(_NAMES.values())}")
    from headroom.agent.text_game import TEXT_GAMES  # here: jobs on web pages neither load nor depend on it

    return TEXT_GAMES[name]


def read_dialect(folder: Path) -> Dialect:
    """The dialect of a checkpoint folder; web pages for a released model, which names none.

    Raises:
        ValueError: its file is missing from a checkpoint of this project, cannot be read, or names no dialect.
    """
    name = spoken(folder)
    try:
        return WEB_PAGES if name is None else dialect_named(name)
    except ValueError as error:
        raise ValueError(f"{folder / FILE}: {error}") from error


def check_dialect(folder: Path, kind: str, *, released: bool = False) -> None:
    """Refuse a checkpoint that speaks of another world; reads one small file.

    A ``released`` model may name no dialect, then it plays web pages; one that a stage made must name its own.

    Raises:
        ValueError: its dialect is not that of the world ``kind``, is missing, or cannot be read.
    """
    if not released:
        spoken_here(folder)
    found, wanted = read_dialect(folder), dialect_of(kind)
    if found.name != wanted.name:
        raise ValueError(
            f"{folder}: the checkpoint speaks the dialect {found.name!r}, but world.kind {kind} needs {wanted.name!r}; "
            f'take a checkpoint of that world, or say {{"dialect": "{wanted.name}"}} in its {FILE}'
        )
