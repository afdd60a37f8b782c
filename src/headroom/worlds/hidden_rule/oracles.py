"""Two demonstrators.

:func:`oracle` searches as one who does not know the rule: it walks through the house, tries the goal's device where it
meets it, turns every other device to the other state, and tries again after each change. Whatever the rule, it is met
when all devices are turned. It reads the episode's texts alone, so an agent can learn to do the same. In one turn of
:data:`IDLES` it looks or waits instead: a policy that never saw that done would never do it, and the dark room's door
would be out of its reach (the paper's released models need no such lesson). :func:`planner` knows the rule and the
house: the shortest way, which shows that a scene can be solved and how quickly.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headroom.seeds import derive
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.hidden_rule.scenes import TASKS
from headroom.worlds.hidden_rule.world import GO, LOOK, OFF, ON, WAIT, HiddenRule, State, commands, step

Oracle = Callable[[Sequence[Observation], Sequence[Action]], Action | None]

IDLES = 6
"""One turn in so many is idle, by a hash of what was read and of the turn's number."""

_GOAL = re.compile(r"switch on the (\w+)\.")
_AT = re.compile(r"You are in the (\w+)\.")
_DEVICE = re.compile(r"The (\w+) is (on|off)\.")
_DOORS = re.compile(r"Doors lead to ([^.]*)\.")
_DARK = re.compile(r"The \w+ stays dark\.")
_TURNED = re.compile(r"The \w+ turns (?:on|off)\.")


@dataclass
class Notes:
    """What an agent knows after an episode so far."""

    goal: str
    at: str = ""
    doors: dict[str, list[str]] = field(default_factory=dict)  # of the rooms that it was in
    devices: dict[str, str] = field(default_factory=dict)  # device -> its room
    first: dict[str, bool] = field(default_factory=dict)  # device -> whether it was on when first seen
    now: dict[str, bool] = field(default_factory=dict)  # device -> whether it was on when last seen
    open: bool = True  # whether something was changed since the goal's device was last tried

    def unturned(self, room: str) -> list[str]:
        """Devices of a room, other than the goal's, that are as when they were first seen."""
        return [
            device
            for device, place in self.devices.items()
            if place == room and device != self.goal and self.now[device] == self.first[device]
        ]


def notes(observations: Sequence[Observation]) -> Notes:
    """Read an episode from its beginning.

    Raises:
        LookupError: the utterance is no goal of this world.
    """
    goal = _GOAL.fullmatch(observations[0].utterance)
    if goal is None:
        raise LookupError(f"no goal is understood in {observations[0].utterance!r}")
    known = Notes(goal[1])
    for observation in observations:
        text = _said(observation)
        here, doors = _AT.search(text), _DOORS.search(text)
        if here is None or doors is None:
            continue
        known.at = here[1]
        known.doors[known.at] = [name.removeprefix("the ") for name in doors[1].split(", ")]
        for device, state in _DEVICE.findall(text):
            known.devices[device] = known.at
            known.first.setdefault(device, state == "on")
            known.now[device] = state == "on"
        if _TURNED.search(text):
            known.open = True
        elif _DARK.search(text):
            known.open = False
    return known


def search(known: Notes) -> str:
    """The next command of one who does not know the rule; "" where nothing is left to do."""
    if known.open and known.devices.get(known.goal) == known.at:
        return f"{ON}{known.goal}"
    for device in known.unturned(known.at):
        return f"{OFF if known.now[device] else ON}{device}"
    unseen = {room for doors in known.doors.values() for room in doors} - known.doors.keys()
    left = unseen | {room for room in known.doors if known.unturned(room)}
    if not left and known.open and known.goal in known.devices:
        left = {known.devices[known.goal]}
    return _towards(known.doors, known.at, left)


def _towards(doors: Mapping[str, Sequence[str]], at: str, rooms: Collection[str]) -> str:
    """The first step of a shortest known way into one of the rooms; "" where there is none."""
    waiting, met = deque([(at, "")]), {at}
    while waiting:
        room, first = waiting.popleft()
        if room in rooms and first:
            return f"{GO}{first}"
        for beside in doors.get(room, ()):
            if beside not in met:
                met.add(beside)
                waiting.append((beside, first or beside))
    return ""


ORACLES = dict.fromkeys(TASKS, search)
"""Task -> who demonstrates it: who does not know the rule does the same under each."""


def oracle(task: str) -> Oracle:
    """The searching oracle: (observations so far, actions so far) -> the next action.

    It answers None when the episode is over or when nothing is left to try.

    Raises:
        ValueError: the task is unknown.
    """
    if task not in ORACLES:
        raise ValueError(f"no oracle for task {task!r}; there is one for: {', '.join(ORACLES)}")

    def next_action(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
        if observations[-1].done:
            return None
        try:
            command = ORACLES[task](notes(observations))
        except LookupError:
            return None
        idle = derive("idle", observations[-1].utterance, _said(observations[-1]), len(actions)) % (2 * IDLES)
        if command and idle < 2:
            command = (LOOK, WAIT)[idle]
        return Action("command", text=command) if command else None

    return next_action


def _said(observation: Observation) -> str:
    return " ".join(element.name for element in observation.elements if element.role == "text")


def plan(world: HiddenRule, history: History) -> tuple[Action, ...]:
    """A shortest way from the end of a history to the goal, by one who knows the rule; () when it is reached.

    Raises:
        ValueError: the task is unknown.
    """
    of, start = world.scene(history.task, history.seed), world.state(history)
    waiting: deque[tuple[State, tuple[Action, ...]]] = deque([(start, ())])
    met = {_position(start)}
    while waiting:
        state, actions = waiting.popleft()
        if state.won:
            return actions
        for command in commands(of.layout, state):
            action = Action("command", text=command)
            after = step(of, state, action)
            if _position(after) not in met:
                met.add(_position(after))
                waiting.append((after, (*actions, action)))
    raise AssertionError(f"{history.task} {history.seed}: no scene is without a solution")


def _position(state: State) -> tuple[str, frozenset[str], frozenset[str]]:
    return state.at, state.on, state.switched_on


def planner(world: HiddenRule) -> Callable[[str, int], Oracle]:
    """For (task, seed), an oracle that follows :func:`plan`, from wherever the episode stands."""

    def of(task: str, seed: int) -> Oracle:
        def next_action(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
            if observations[-1].done:
                return None
            return plan(world, History(task, seed, tuple(actions)))[0]

        return next_action

    return of
