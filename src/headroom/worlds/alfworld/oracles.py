"""Two demonstrators of the six task types.

:func:`oracle` searches: from what the agent has read, it opens and visits receptacles in the order in which the game
names them until it has seen what the task needs. An agent can learn to do the same. It is a function of the episode so
far, as MiniWoB++'s oracles are. :func:`planner` knows where everything lies: it asks the world for the planner's
shortest way, which shows that a game can be solved and how quickly, and not how one finds out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import Action, History, Observation, Outcome

Oracle = Callable[[Sequence[Observation], Sequence[Action]], Action | None]

_GOALS = (
    r"(?:put (?:a|some)|put two|find two|look at|examine the) (?:(?:clean|hot|cool) )?(?P<what>\w+)"
    r" (?:in|on|under the|with the|and put them in) (?P<where>\w+)",
    r"(?:clean|heat|cool) some (?P<what>\w+) and put it in (?P<where>\w+)",
)
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see ([^.]*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_THING = re.compile(r"\ban? (\w+ \d+)")
_TAKEN = re.compile(r"You (?:pick up|take) the (\w+ \d+) from the (\w+ \d+)\.")
_PUT = re.compile(r"You (?:move|put) the (\w+ \d+) (?:to|in|on|in/on) the (\w+ \d+)\.")
_TREATED = re.compile(r"You (?:clean|heat|cool) the (\w+ \d+) using")


@dataclass
class Notes:
    """What an agent knows after an episode so far."""

    what: str = ""  # the goal's kind of object
    where: str = ""  # the goal's kind of receptacle, or of lamp
    receptacles: tuple[str, ...] = ()
    at: str = ""
    holding: str = ""
    seen: dict[str, list[str]] = field(default_factory=dict)  # receptacle -> what lies there
    closed: set[str] = field(default_factory=set)
    treated: set[str] = field(default_factory=set)

    def find(self, kind: str, done: Set[tuple[str, str]] = frozenset()) -> tuple[str, str]:
        """A thing of a kind that was seen, and where, other than those that are done; ("", "") when there is none."""
        met = ((thing, place) for place, things in self.seen.items() for thing in things if _kind(thing) == kind)
        return next((each for each in met if each not in done), ("", ""))


def notes(observations: Sequence[Observation], actions: Sequence[Action]) -> Notes:
    """Read an episode from its beginning.

    Raises:
        LookupError: the utterance is no goal that ALFWorld's templates give.
    """
    found = next(filter(None, (re.match(goal, observations[0].utterance) for goal in _GOALS)), None)
    if found is None:
        raise LookupError(f"no goal is understood in {observations[0].utterance!r}")
    known = Notes(found["what"], found["where"], tuple(_THING.findall(_said(observations[0]))))
    for action, observation in zip(actions, observations[1:], strict=False):
        if observation.outcome is not Outcome.OK:
            continue
        text, command = _said(observation), action.text.strip()
        if command.startswith("go to "):
            known.at = command.removeprefix("go to ")
        elif command.startswith("close "):
            known.closed.add(command.removeprefix("close "))
        if command.startswith(("go to ", "open ", "examine ")):
            known.closed |= {*_CLOSED.findall(text)}
            for place, things in _SEEN.findall(text):
                known.closed.discard(place)
                known.seen[place] = _THING.findall(things)
        for thing, place in _TAKEN.findall(text):
            known.holding = thing
            known.seen[place] = [other for other in known.seen.get(place, []) if other != thing]
        for thing, place in _PUT.findall(text):
            known.holding = ""
            known.seen.setdefault(place, []).append(thing)
        known.treated |= {*_TREATED.findall(text)}
    return known


def _look(known: Notes, page: Observation) -> str:
    if _kind(known.holding) != known.what:
        return _fetch(known, known.what, page)
    lamp, place = known.find(known.where)
    if not lamp:
        return _explore(known)
    return f"use {lamp}" if known.at == place else f"go to {place}"


def _place(known: Notes, page: Observation, verb: str = "", appliance: str = "") -> str:
    goals = [place for place in known.receptacles if _kind(place) == known.where]
    # Two things must come to the same place: the one where the first of them lies already.
    begun = [place for place in goals if any(_kind(thing) == known.what for thing in known.seen.get(place, ()))]
    goal = (begun or goals or [""])[0]
    if not goal:
        return ""
    held = known.holding
    if _kind(held) != known.what:
        there = known.seen.get(goal, ())
        return _fetch(known, known.what, page, {(thing, goal) for thing in there if not verb or thing in known.treated})
    if verb and held not in known.treated:
        station = next((place for place in known.receptacles if _kind(place) == appliance), "")
        if not station:
            return ""
        return f"{verb} {held} with {station}" if known.at == station else f"go to {station}"
    if known.at != goal:
        return f"go to {goal}"
    return f"open {goal}" if goal in known.closed else _put(page, held, goal)


def _fetch(known: Notes, kind: str, page: Observation, done: Set[tuple[str, str]] = frozenset()) -> str:
    """Lay down what is held, then go to the next thing of a kind and take it, or go on looking for one."""
    if known.holding:
        here = _put(page, known.holding, known.at) if known.at else ""
        if here and here in (_commands(page) or [here]):
            return here
        return next((f"go to {place}" for place in known.receptacles if place != known.at), "")
    thing, place = known.find(kind, done)
    if not thing:
        return _explore(known)
    if known.at != place:
        return f"go to {place}"
    return f"open {place}" if place in known.closed else f"take {thing} from {place}"


def _explore(known: Notes) -> str:
    if known.at in known.closed and known.at not in known.seen:
        return f"open {known.at}"
    return next((f"go to {place}" for place in known.receptacles if place not in known.seen), "")


def _put(page: Observation, thing: str, place: str) -> str:
    """The release decides whether one moves or puts."""
    listed = [each for each in _commands(page) if each.startswith((f"put {thing} ", f"move {thing} "))]
    return next((each for each in listed if each.endswith(f" {place}")), f"move {thing} to {place}")


def _commands(page: Observation) -> list[str]:
    return [element.name for element in page.elements if element.role == "command"]


def _said(observation: Observation) -> str:
    return " ".join(element.name for element in observation.elements if element.role == "text")


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]


ORACLES: dict[str, Callable[[Notes, Observation], str]] = {
    "pick_and_place_simple": _place,
    "look_at_obj_in_light": _look,
    "pick_clean_then_place_in_recep": partial(_place, verb="clean", appliance="sinkbasin"),
    "pick_heat_then_place_in_recep": partial(_place, verb="heat", appliance="microwave"),
    "pick_cool_then_place_in_recep": partial(_place, verb="cool", appliance="fridge"),
    "pick_two_obj_and_place": _place,
}


def oracle(task: str) -> Oracle:
    """The searching oracle of ``task``: (observations so far, actions so far) -> the next action.

    It answers None when the episode is over, when nothing is left to search, or when the game has just refused the very
    action.

    Raises:
        ValueError: the task is unknown.
    """
    if task not in ORACLES:
        raise ValueError(f"no oracle for task {task!r}; there is one for: {', '.join(sorted(ORACLES))}")
    solve = ORACLES[task]

    def next_action(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
        if observations[-1].done:
            return None
        try:
            command = solve(notes(observations, actions), observations[-1])
        except LookupError:
            return None
        action = Action("command", text=command)
        refused = bool(actions) and actions[-1] == action and observations[-1].outcome.invalid
        return action if command and not refused else None

    return next_action


def planner(world: AlfWorld) -> Callable[[str, int], Oracle]:
    """For (task, seed), an oracle that follows the planner, from wherever the episode stands."""

    def of(task: str, seed: int) -> Oracle:
        def next_action(observations: Sequence[Observation], actions: Sequence[Action]) -> Action | None:
            if observations[-1].done:
                return None
            plan = world.plan(History(task, seed, tuple(actions)))
            return plan[0] if plan else None

        return next_action

    return of
