"""Our HiddenRule as a world: histories in, observations out. See ``scenes.py`` for what is hidden.

What an agent reads is what its command did, the room that it stands in, and, if ``list_commands``, what the game
accepts here. ``look`` and ``wait`` are always accepted and change nothing: what follows them is known for certain,
which is the dark room's door. A try of the goal's device while its rule is not met is accepted too and leaves it dark.

The facts of an observation:

``location``
    the room.
``objects``
    "yes" if a device that is on can be seen. Every room may have devices, so that one sees some would hardly vary;
    whether one is on is known of a room that one stands in, was learned of a room seen before, and is open elsewhere.
``anchor``
    how many devices were on when the agent last saw them, a number that its observations so far give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from headroom.config.worlds import HiddenRuleSettings
from headroom.worlds.base import Action, Element, History, Observation, Outcome
from headroom.worlds.hidden_rule.scenes import Layout, Scene, scene
from headroom.worlds.memo import Memo

NOTHING_HAPPENS = "Nothing happens."
GO, ON, OFF, LOOK, WAIT = "go to ", "switch on ", "switch off ", "look", "wait"


@dataclass(frozen=True)
class State:
    """A point of an episode."""

    at: str
    on: frozenset[str]
    switched_on: frozenset[str]  # by the agent, ever
    seen: Mapping[str, bool]  # device -> whether it was on when last seen
    said: str = ""
    outcome: Outcome = Outcome.OK
    won: bool = False


def begin(layout: Layout) -> State:
    """Before the first action."""
    return _seen(layout, State(layout.start, layout.on, frozenset(), {}))


def commands(layout: Layout, state: State) -> list[str]:
    """What the game accepts, sorted."""
    return sorted([
        *(f"{GO}{room}" for room in layout.doors[state.at]),
        *(f"{OFF if device in state.on else ON}{device}" for device in _here(layout, state)),
        LOOK,
        WAIT,
    ])  # fmt: skip


def step(of: Scene, state: State, action: Action) -> State:
    """The state after an action. Nothing happens after the end."""
    if state.won:
        return state
    command = action.text.strip()
    if action.verb != "command" or command not in commands(of.layout, state):
        outcome = Outcome.UNSUPPORTED if action.verb == "command" else Outcome.MALFORMED
        return replace(state, said=NOTHING_HAPPENS, outcome=outcome)
    state = replace(state, said="Time passes." if command == WAIT else "", outcome=Outcome.OK)
    if command.startswith(GO):
        state = replace(state, at=command.removeprefix(GO))
    elif command.startswith(OFF):
        device = command.removeprefix(OFF)
        state = replace(state, on=state.on - {device}, said=f"The {device} turns off.")
    elif command.startswith(ON):
        device = command.removeprefix(ON)
        if device == of.layout.goal and not of.rule.met(state.on, state.switched_on, of.layout.devices):
            return replace(state, said=f"The {device} stays dark.")
        state = replace(
            state, on=state.on | {device}, switched_on=state.switched_on | {device}, said=f"The {device} turns on.",
            won=device == of.layout.goal,
        )  # fmt: skip
    return _seen(of.layout, state)


class HiddenRule:
    """The :class:`~headroom.worlds.base.World` protocol over :func:`step`."""

    def __init__(self, settings: HiddenRuleSettings | None = None) -> None:
        self.settings = settings or HiddenRuleSettings()
        self._memo = Memo(self.settings.memo_megabytes * 1_000_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def scene(self, task: str, seed: int) -> Scene:
        """The scene of (task, seed) at the size of the settings.

        Raises:
            ValueError: the task is unknown.
        """
        return scene(task, seed, self.settings.rooms, self.settings.devices)

    def state(self, history: History) -> State:
        """Where a history leads.

        Raises:
            ValueError: the task is unknown.
        """
        of = self.scene(history.task, history.seed)
        state = begin(of.layout)
        for action in history.actions:
            state = step(of, state, action)
        return state

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        """The observation at the end of each history, in order; see :class:`~headroom.worlds.base.World`.

        Raises:
            ValueError: a task is unknown.
        """
        answers = []
        for history in histories:
            known = self._memo.get(history)
            answers.append(known or self._observation(history))
            if known is None:
                self._memo.put(history, answers[-1])
        return answers

    def counts(self) -> dict[str, int]:
        """Nothing: no answer comes from outside this process."""
        return {}

    def close(self) -> None:
        """Nothing is held."""

    def _observation(self, history: History) -> Observation:
        layout, state = self.scene(history.task, history.seed).layout, self.state(history)
        elements = [Element("text", f"{state.said} {_room(layout, state)}".strip())]
        if self.settings.list_commands:
            elements += [Element("command", command) for command in commands(layout, state)]
        facts = (
            ("location", state.at),
            ("objects", "yes" if any(device in state.on for device in _here(layout, state)) else "no"),
            ("anchor", str(sum(state.seen.values()))),
        )
        utterance, reward = f"switch on the {layout.goal}.", float(state.won)
        return Observation(utterance, tuple(elements), state.outcome, reward, state.won, facts=facts)


def _here(layout: Layout, state: State) -> list[str]:
    return [device for device, room in layout.devices.items() if room == state.at]


def _seen(layout: Layout, state: State) -> State:
    return replace(state, seen={**state.seen, **{device: device in state.on for device in _here(layout, state)}})


def _room(layout: Layout, state: State) -> str:
    devices = [f"The {device} is {'on' if device in state.on else 'off'}." for device in _here(layout, state)]
    return " ".join([
        f"You are in the {state.at}.", *devices, f"Doors lead to the {', the '.join(layout.doors[state.at])}."
    ])  # fmt: skip
