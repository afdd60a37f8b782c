"""What is taken from the packages ``alfworld``, ``textworld`` and ``fast-downward-textworld``, and how.

``import alfworld`` writes a folder into the user's home and an environment variable; so its domain, its grammar and its
two tables are read as the files that they are. TextWorld imports jericho (GPL-2.0-or-later) for games of another kind:
while it is imported, an empty module stands in for a jericho that is not installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

NEEDED = ("alfworld", "textworld", "fast_downward", "tatsu", "mementos")
REMEDY = "type ./setup.sh --alfworld (or make setup-alfworld)"


class EngineMissingError(ValueError):
    """A package of the engine is not installed."""


def check_installed() -> None:
    """Find the packages without importing them.

    Raises:
        EngineMissingError: one line that names what is missing and what to type.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EngineMissingError(f"world.kind: alfworld needs {', '.join(missing)}, not installed here; {REMEDY}")


@dataclass(frozen=True)
class Tables:
    """ALFWorld's own tables: what may lie where, what can be done to it, and the goals with their sentences."""

    rooms: dict[str, frozenset[str]]  # task -> rooms
    contents: dict[str, frozenset[str]]  # receptacle type -> object types
    heatable: frozenset[str]
    coolable: frozenset[str]
    cleanable: frozenset[str]
    sliceable: frozenset[str]
    openable: frozenset[str]
    holders: frozenset[str]  # object types that can hold something themselves
    goals: dict[str, str]  # task -> goal, in PDDL with # for the dash of a type
    sentences: dict[str, tuple[str, ...]]  # task -> templates


@cache
def tables() -> Tables:
    """Read the tables of the installed ``alfworld``.

    Raises:
        EngineMissingError: it is not installed.
    """
    constants, goals = _alone("gen/constants.py"), _alone("gen/goal_library.py").gdict
    actions = constants.VAL_ACTION_OBJECTS
    return Tables(
        rooms={task: frozenset(rooms) for task, rooms in constants.GOALS_VALID.items()},
        contents={name: frozenset(held) for name, held in constants.VAL_RECEPTACLE_OBJECTS.items()},
        heatable=frozenset(actions["Heatable"]),
        coolable=frozenset(actions["Coolable"]),
        cleanable=frozenset(actions["Cleanable"]),
        sliceable=frozenset(actions["Sliceable"]),
        openable=frozenset(constants.OPENABLE_CLASS_LIST),
        holders=frozenset(constants.MOVABLE_RECEPTACLES),
        goals={task: goal["pddl"] for task, goal in goals.items()},
        sentences={task: tuple(goal["templates"]) for task, goal in goals.items()},
    )


@cache
def domain() -> str:
    """The PDDL domain of the installed ``alfworld``."""
    return (_folder() / "data" / "alfred.pddl").read_text(encoding="utf-8")


@cache
def grammar() -> str:
    """The grammar of the installed ``alfworld``, with ``UNKNOWN GOAL`` where a game puts its own."""
    return (_folder() / "data" / "alfred.twl2").read_text(encoding="utf-8")


@cache
def textworld() -> tuple[ModuleType, ModuleType]:
    """TextWorld's ``logic`` and its ``envs.pddl.logic``, imported once.

    Raises:
        EngineMissingError: a package is not installed.
    """
    check_installed()
    with _without_jericho():
        from textworld import logic
        from textworld.envs.pddl import logic as pddl_logic
    return logic, pddl_logic


@cache
def fast_downward() -> ModuleType:
    """The planner's Python side.

    Raises:
        EngineMissingError: a package is not installed.
    """
    check_installed()
    import fast_downward as module

    return module  # type: ignore[no-any-return]


@contextmanager
def _without_jericho() -> Iterator[None]:
    if importlib.util.find_spec("jericho") is not None or "jericho" in sys.modules:
        yield
        return
    empty: Any = ModuleType("jericho")
    empty.UnsupportedGameWarning = empty.TruncatedInputActionWarning = Warning
    sys.modules["jericho"] = empty
    # TextWorld silences what it takes for jericho's warnings; the stand-in's must not silence everybody's.
    import warnings

    try:
        with warnings.catch_warnings():
            yield
    finally:
        del sys.modules["jericho"]


def _folder() -> Path:
    check_installed()
    found = importlib.util.find_spec("alfworld")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _alone(path: str) -> Any:
    """A module of alfworld that needs no other, run without its package."""
    found = importlib.util.spec_from_file_location(f"_alfworld_{Path(path).stem}", _folder() / path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
