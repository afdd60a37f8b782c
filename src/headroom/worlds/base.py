"""The protocol that every world follows: a deterministic function of (task, seed, actions).

A world never holds an episode's state for its caller. The caller holds a :class:`History`, the complete
description of a point in an episode, and the world answers with the observation at that point. A world may
keep pages open, or remember earlier answers, to be fast; what it returns does not depend on it. That is what
makes a crashed browser harmless (ask again), the members of a GRPO group comparable (one seed, one page) and
paired evaluation exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Outcome(StrEnum):
    """What became of the last action. Everything but ``OK`` costs a turn and is counted by kind."""

    OK = "ok"
    UNKNOWN_TARGET = "unknown target"  # no element has this role and name
    AMBIGUOUS = "ambiguous"  # several do, and no #n was given
    OCCLUDED = "occluded"  # another element covers it
    DISABLED = "disabled"  # disabled or read-only
    UNSUPPORTED = "unsupported"  # the verb does not apply to this role, or the option does not exist
    MALFORMED = "malformed"  # the text is not an action at all

    @property
    def invalid(self) -> bool:
        """Whether the action did not reach the page."""
        return self is not Outcome.OK


@dataclass(frozen=True, slots=True)
class Action:
    """One action on the text track, named by role and accessible name as in Playwright and ARIA.

    ``verb`` is one of ``click``, ``fill``, ``select``, ``press``, ``scroll``, and in a text game ``command``, whose
    ``text`` is the command; a text that does not parse is carried as ``Action("malformed", text=raw)`` so that it
    replays like any other action.
    ``occurrence`` counts from 1 among elements of equal role and name; 0 means "the only one".
    ``text`` is the typed text (fill), the option (select), the key (press) or the direction (scroll).
    """

    verb: str
    role: str = ""
    name: str = ""
    occurrence: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Element:
    """One element that can be read or acted on.

    ``role`` is the ARIA role (``button``, ``textbox``, ``checkbox``, ``option``, ``text`` for plain text ...),
    ``name`` the accessible name, ``value`` the current value of a field or the selected option,
    ``states`` a sorted tuple such as ``("checked",)``, ``("disabled", "focused")``, and
    ``occurrence`` its number among elements of equal role and name on this page (0 when it is the only one).
    ``options`` are the choices of a combobox or listbox.
    """

    role: str
    name: str
    value: str = ""
    states: tuple[str, ...] = ()
    occurrence: int = 0
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees at one point of an episode, and what the world pays there.

    ``raw_reward`` is the task's own reward in [-1, 1] without the time scaling, 0.0 until ``done``.
    ``facts`` are (field, value) pairs that an agent may be asked to predict about this observation, or (``anchor``) to
    state when it sees it; no part of what it reads, and empty in a world without such fields.
    ``failure`` is a sentence when the infrastructure, not the agent, failed (after three tries): such an
    episode is excluded with a count and never scored.
    """

    utterance: str
    elements: tuple[Element, ...]
    outcome: Outcome = Outcome.OK
    raw_reward: float = 0.0
    done: bool = False
    failure: str = ""
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """A point in an episode: the task, the page seed and every action so far (none: the first page)."""

    task: str
    seed: int
    actions: tuple[Action, ...] = field(default=())

    def then(self, action: Action) -> History:
        """The history one action later."""
        return History(self.task, self.seed, (*self.actions, action))


@runtime_checkable
class World(Protocol):
    """A batch of histories in, the observation at the end of each out, in the same order."""

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        """Return the observation at the end of each history; never raises for anything a page does.

        Raises:
            ValueError: a task name is unknown (before any page is touched).
        """
        ...

    def close(self) -> None:
        """Release the world's processes; safe to call twice."""
        ...


class CountingWorld(World, Protocol):
    """A world that says what answering took."""

    def counts(self) -> dict[str, int]:
        """Counters for the job's record; empty where there is nothing to say."""
        ...
