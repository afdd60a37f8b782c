"""Synthetic scenes: a game of any of the six task types from (task, seed), solvable by construction.

The domain, the grammar, what may lie where and the goals are ALFWorld's own (``package.py``). The scene is ours: which
receptacles a room has (:data:`ROOMS`), how many, and what lies in them. Nothing in it comes from a simulated house, so
results on these games are those of "ALFWorld engine, synthetic scenes" and not of ALFWorld.

Solvable: the object lies where one can reach it, neither in the goal's kind of receptacle nor in the appliance; the
goal's receptacle may hold it; a sink, microwave, fridge or lamp is there when the task needs one; and no action of the
domain is irreversible.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterable
from dataclasses import dataclass

from headroom.seeds import derive
from headroom.worlds.alfworld import package

TASKS = (
    "pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place",
)  # fmt: skip
"""ALFWorld's six task types, in its order."""

ROOMS: dict[str, tuple[str, ...]] = {
    "Kitchen": (
        "Cabinet", "CoffeeMachine", "CounterTop", "DiningTable", "Drawer", "Fridge", "GarbageCan", "Microwave", "Shelf",
        "SideTable", "SinkBasin", "StoveBurner",
    ),
    "LivingRoom": (
        "ArmChair", "Cabinet", "CoffeeTable", "Desk", "Drawer", "Dresser", "GarbageCan", "Ottoman", "Safe", "Shelf",
        "SideTable", "Sofa",
    ),
    "Bedroom": (
        "ArmChair", "Bed", "Cabinet", "Desk", "Drawer", "Dresser", "GarbageCan", "LaundryHamper", "Safe", "Shelf",
        "SideTable",
    ),
    "Bathroom": (
        "BathtubBasin", "Cabinet", "Cart", "CounterTop", "Drawer", "GarbageCan", "HandTowelHolder", "Shelf",
        "SinkBasin", "Toilet", "ToiletPaperHanger",
    ),
}  # fmt: skip
"""Which receptacles a room may have: our choice, no table of ALFWorld's."""

REPEATED = ("Cabinet", "Drawer", "Shelf", "CounterTop", "SideTable", "StoveBurner")
"""Receptacle types of which a room may have several."""

APPLIANCE = {
    "pick_clean_then_place_in_recep": "SinkBasin",
    "pick_heat_then_place_in_recep": "Microwave",
    "pick_cool_then_place_in_recep": "Fridge",
}
LAMP, LAMP_STANDS_ON = "DeskLamp", ("Desk", "Dresser", "SideTable")
IN_EVERY_ROOM = frozenset({"Bowl", "Cloth", "Cup", "Mug", "Plate", "SoapBar"})
NAMED_BY_DOMAIN = {
    "SinkBasin": "rtype",
    "Microwave": "rtype",
    "Fridge": "rtype",
    "Knife": "otype",
    "ButterKnife": "otype",
}
FEWEST_RECEPTACLES, FEWEST_OBJECTS = 3, 2


@dataclass(frozen=True)
class GameFile:
    """What a game is to the engine: the three texts of a ``game.tw-pddl``."""

    domain: str
    grammar: str
    problem: str

    def as_json(self) -> dict[str, object]:
        """The content of a ``game.tw-pddl``, in the released format."""
        return {
            "pddl_domain": self.domain,
            "grammar": self.grammar,
            "pddl_problem": self.problem,
            "solvable": True,
            "walkthrough": None,
        }


@dataclass(frozen=True)
class Scene:
    """A room: receptacle types by identifier, objects as (identifier, type, receptacle), and the goal's words."""

    task: str
    room: str
    receptacles: dict[str, str]
    objects: tuple[tuple[str, str, str], ...]
    target: str  # the goal's object type
    parent: str  # the goal's receptacle type; "" when the task has none
    sentence: str


def scene(task: str, seed: int, receptacles: int, objects: int) -> Scene:
    """The scene of (task, seed) with at most so many receptacles and objects.

    Raises:
        ValueError: the task is unknown, or the bounds are below what a task needs.
    """
    if task not in TASKS:
        raise ValueError(f"no task is called {task!r}; ALFWorld's are {', '.join(TASKS)}")
    check_bounds(receptacles, objects)
    table = package.tables()
    draw = random.Random(derive("alfworld scene", task, seed, receptacles, objects))  # noqa: S311
    room = draw.choice(sorted(table.rooms[task]))
    kinds = ROOMS[room]
    target, parent, source = draw.choice(_goals(task, room))
    chosen = [name for name in dict.fromkeys((parent, source, APPLIANCE.get(task, ""))) if name]
    if task == "look_at_obj_in_light" and not set(chosen) & set(LAMP_STANDS_ON):
        chosen.append(draw.choice([name for name in kinds if name in LAMP_STANDS_ON]))
    for _ in range(draw.randint(max(len(chosen), (receptacles + 1) // 2), receptacles) - len(chosen)):
        chosen.append(draw.choice([name for name in kinds if name in REPEATED or name not in chosen]))
    places = {_identifier(kind, number): kind for number, kind in enumerate(sorted(chosen), start=1)}

    copies = 2 if task == "pick_two_obj_and_place" else 1
    lying = [
        (target, draw.choice(_where(places, target, without=(parent, APPLIANCE.get(task))))) for _ in range(copies)
    ]
    if task == "look_at_obj_in_light":
        lying.append((LAMP, draw.choice([place for place, kind in places.items() if kind in LAMP_STANDS_ON])))
    others = [kind for kind in _fitting(room, places.values()) if kind != target]
    for _ in range(draw.randint(max(len(lying), (objects + 1) // 2), objects) - len(lying) if others else 0):
        kind = draw.choice(others)
        lying.append((kind, draw.choice(_where(places, kind))))
    things = [(_identifier(kind, number), kind, place) for number, (kind, place) in enumerate(sorted(lying), start=1)]
    words = {"obj": target.lower(), "recep": parent.lower(), "toggle": LAMP.lower(), "mrecep": ""}
    sentence = draw.choice(table.sentences[task]).format(**words)
    return Scene(task, room, places, tuple(things), target, parent, sentence)


def game(task: str, seed: int, receptacles: int, objects: int) -> GameFile:
    """The generated game of (task, seed); see :func:`scene`."""
    made = scene(task, seed, receptacles, objects)
    grammar = package.grammar().replace("UNKNOWN GOAL", made.sentence)
    return GameFile(package.domain(), grammar, problem(made))


def problem(made: Scene) -> str:
    """The scene as a PDDL problem of ALFWorld's domain."""
    table = package.tables()
    kinds = {**dict.fromkeys(made.receptacles.values(), "rtype"), **NAMED_BY_DOMAIN}
    kinds |= {kind: "otype" for _, kind, _ in made.objects}
    declared = ["agent1 - agent", "loc_0 - location"]
    facts = ["(= (total-cost) 0)", "(atLocation agent1 loc_0)"]
    declared += [f"{kind}Type - {sort}" for kind, sort in kinds.items()]
    at: dict[str, str] = {}
    for number, (place, kind) in enumerate(made.receptacles.items(), start=1):
        at[place] = f"loc_{number}"
        declared += [f"{place} - receptacle", f"{at[place]} - location"]
        facts += [f"(receptacleAtLocation {place} {at[place]})", f"(receptacleType {place} {kind}Type)"]
        facts += [f"(openable {place})"] if kind in table.openable else []
    for thing, kind, place in made.objects:
        declared.append(f"{thing} - object")
        facts += [f"(objectType {thing} {kind}Type)", f"(inReceptacle {thing} {place})"]
        facts.append(f"(objectAtLocation {thing} {at[place]})")
        abilities = {
            "cleanable": table.cleanable, "heatable": table.heatable, "coolable": table.coolable,
            "sliceable": table.sliceable, "isReceptacleObject": table.holders, "toggleable": {LAMP},
        }  # fmt: skip
        facts += [f"({ability} {thing})" for ability, able in abilities.items() if kind in able]
        facts += [f"(pickupable {thing})"] if kind != LAMP else []
    for place in sorted({*made.receptacles.values()}):
        for kind in sorted({kind for _, kind, _ in made.objects} & table.contents[place]):
            facts.append(f"(canContain {place}Type {kind}Type)")
    words = {"obj": made.target, "recep": made.parent, "toggle": LAMP, "mrecep": ""}
    goal = table.goals[made.task].replace("#", "-").format(**words)  # its last bracket closes the definition
    lines = [
        "(define (problem synthetic)", "(:domain alfred)", "(:objects", *declared, ")", "(:init", *facts, ")", goal
    ]  # fmt: skip
    return "\n".join(lines)


def check_bounds(receptacles: int, objects: int) -> None:
    """Whether a scene of every task fits.

    Raises:
        ValueError: a bound is too small; the message names the setting.
    """
    for name, given, least in (
        ("receptacles", receptacles, FEWEST_RECEPTACLES),
        ("objects", objects, FEWEST_OBJECTS),
    ):
        if given < least:
            raise ValueError(f"world.{name}: {given} is too few; the tasks need at least {least}")


def _identifier(kind: str, number: int) -> str:
    # The released games' form: the name that is shown is what stands before the bar, with "basin" where it occurs.
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{number:02}_bar_{kind}"
    return f"{kind}_bar_{number:02}"


def _fitting(room: str, kinds: Iterable[str]) -> list[str]:
    """Object types that may lie in one of the receptacle types; food and cookware stay in the kitchen."""
    table = package.tables()
    kitchen = (table.heatable | table.coolable | table.cleanable | table.sliceable) - IN_EVERY_ROOM
    found = set().union(*(table.contents[kind] for kind in kinds))
    return sorted(kind for kind in found if not kind.endswith("Sliced") and (room == "Kitchen" or kind not in kitchen))


def _where(places: dict[str, str], kind: str, without: Container[str | None] = ()) -> list[str]:
    contents = package.tables().contents
    return [place for place, holder in places.items() if kind in contents[holder] and holder not in without]


def _goals(task: str, room: str) -> list[tuple[str, str, str]]:
    """Every (object type, goal's receptacle type or "", a receptacle type where the object can lie) of a room."""
    table = package.tables()
    able = {
        "pick_clean_then_place_in_recep": table.cleanable,
        "pick_heat_then_place_in_recep": table.heatable,
        "pick_cool_then_place_in_recep": table.coolable,
    }.get(task)
    found = []
    for kind in _fitting(room, ROOMS[room]):
        if able is not None and kind not in able:
            continue
        holders = [place for place in ROOMS[room] if kind in table.contents[place]]
        if task == "look_at_obj_in_light":
            found += [(kind, "", source) for source in holders]
            continue
        others = [place for place in holders if place != APPLIANCE.get(task)]
        found += [(kind, parent, source) for parent in others for source in others if source != parent]
    return found
