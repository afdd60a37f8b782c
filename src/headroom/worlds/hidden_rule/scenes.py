"""Scenes of our HiddenRule: rooms behind doors, devices in them, a device to switch on, and a rule that is in the way.

arXiv 2607.21273 names a synthetic POMDP of five rooms, six devices and one hidden rule; no more of it is public, so all
else here is our choice. The kinds of task are the kinds of rule. The goal's device works only

    order      after a certain device was switched on (it may be off again)
    pair       while a certain device is on
    exclusive  while a certain device is off
    place      while some device in a certain room is on

and is dark at first. All other devices always work, so that nothing but a try of the goal's device tells of the rule.

The layout is drawn from the seed alone and the rule from (task, seed): the four tasks of a seed look alike.
Solvable: doors connect all rooms, devices can be switched again and again, and the rule's device is never the goal's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import lru_cache

from headroom.seeds import derive

TASKS = ("exclusive", "order", "pair", "place")
"""The kinds of rule."""

ROOMS = ("attic", "bathroom", "bedroom", "cellar", "garage", "hall", "kitchen", "library", "pantry", "study")
DEVICES = (
    "boiler", "dryer", "fan", "heater", "kettle", "lamp", "oven", "printer", "pump", "radio", "speaker", "toaster",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """What a scene looks like before the first action. Rooms and devices are names."""

    doors: Mapping[str, tuple[str, ...]]  # room -> the rooms beside it, sorted; every room is a key
    devices: Mapping[str, str]  # device -> its room
    on: frozenset[str]  # devices that are on
    start: str  # where the agent stands
    goal: str  # the device that has to be switched on


@dataclass(frozen=True)
class Rule:
    """``what`` is a device, or for the kind ``place`` a room."""

    kind: str
    what: str

    def met(self, on: Set[str], switched_on: Set[str], devices: Mapping[str, str]) -> bool:
        """Whether the goal's device works.

        Args:
            on: devices that are on.
            switched_on: devices that the agent has ever switched on.
            devices: device -> its room.
        """
        if self.kind == "order":
            return self.what in switched_on
        if self.kind == "pair":
            return self.what in on
        if self.kind == "exclusive":
            return self.what not in on
        return any(devices[device] == self.what for device in on)


@dataclass(frozen=True)
class Scene:
    """A layout and the rule that it hides."""

    layout: Layout
    rule: Rule


@lru_cache(maxsize=4096)
def layout(seed: int, rooms: int, devices: int) -> Layout:
    """The layout of a seed, with so many rooms and devices.

    Besides the goal's device at least one is on and all devices of some room are off, so that each kind of rule fits.

    Raises:
        ValueError: there are not so many names, or less than three of either.
    """
    if not (3 <= rooms <= len(ROOMS) and 3 <= devices <= len(DEVICES)):
        raise ValueError(
            f"world.rooms is {rooms} and world.devices {devices}; a scene has 3 to {len(ROOMS)} rooms and 3 to "
            f"{len(DEVICES)} devices"
        )
    draw = random.Random(derive("hidden rule layout", seed, rooms, devices))  # noqa: S311
    names = draw.sample(ROOMS, rooms)
    doors: dict[str, set[str]] = {room: set() for room in names}
    pairs = [(room, draw.choice(names[:place])) for place, room in enumerate(names) if place]
    closed = [(a, b) for place, a in enumerate(names) for b in names[:place] if (a, b) not in pairs]
    for a, b in [*pairs, draw.choice(closed)]:  # a tree, and one door more: a way around
        doors[a].add(b)
        doors[b].add(a)
    stand = draw.sample(names, rooms)  # one device a room as far as they go, the others anywhere
    where = {
        device: stand[place] if place < rooms else draw.choice(names)
        for place, device in enumerate(draw.sample(DEVICES, devices))
    }
    goal = draw.choice(list(where))
    others = [device for device in where if device != goal]
    dark = where[draw.choice([device for device in others if _elsewhere(where, others, device)])]
    may_be_on = [device for device in others if where[device] != dark]
    surely = draw.choice(may_be_on)
    return Layout(
        {room: tuple(sorted(doors[room])) for room in sorted(names)},
        {device: where[device] for device in sorted(where)},
        frozenset(device for device in may_be_on if device == surely or draw.random() < 0.5),
        draw.choice([room for room in names if room != where[goal]]),
        goal,
    )


def _elsewhere(where: Mapping[str, str], others: list[str], device: str) -> bool:
    return any(where[other] != where[device] for other in others)


@lru_cache(maxsize=16384)
def scene(task: str, seed: int, rooms: int, devices: int) -> Scene:
    """The scene of (task, seed).

    Raises:
        ValueError: as :func:`layout`, or the task is unknown.
    """
    if task not in TASKS:
        raise ValueError(f"no task is called {task!r}; HiddenRule's are {', '.join(TASKS)}")
    made = layout(seed, rooms, devices)
    others = [device for device in made.devices if device != made.goal]
    lit = {made.devices[device] for device in made.on}
    may_be = {
        "order": [device for device in others if device not in made.on],
        "pair": [device for device in others if device not in made.on],
        "exclusive": sorted(made.on),
        "place": sorted({made.devices[device] for device in others} - lit),
    }[task]
    draw = random.Random(derive("hidden rule", task, seed, rooms, devices))  # noqa: S311
    return Scene(made, Rule(task, draw.choice(may_be)))
