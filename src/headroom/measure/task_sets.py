"""``task_sets.json``: the two disjoint sets of tasks that selection chose."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

NAMES = ("mastered", "headroom")
FILLED = "filled"
"""Optional key: set -> its tasks that did not qualify and took a place for which too few did."""


def read_task_sets(path: Path) -> dict[str, tuple[str, ...]]:
    """Read {"mastered": [...], "headroom": [...]}; :data:`FILLED`, which says how they were chosen, is left aside.

    Raises:
        SystemExit: the file is missing, is not such a mapping, or names a task twice.
    """
    remedy = "run the selection stage, which writes it"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as task sets ({error}); {remedy}") from error
    if not isinstance(value, dict) or set(value) - {FILLED} != set(NAMES):
        raise SystemExit(f"{path}: needs exactly the keys {' and '.join(NAMES)}; {remedy}")
    for name, tasks in ((name, value[name]) for name in NAMES):
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise SystemExit(f"{path}: {name} is not a list of task names; {remedy}")
    every = [task for name in NAMES for task in value[name]]
    twice = sorted({task for task in every if every.count(task) > 1})
    if twice:
        raise SystemExit(f"{path}: {', '.join(twice)} named twice; the sets are disjoint, {remedy}")
    return {name: tuple(value[name]) for name in NAMES}


def tasks_of(sets: dict[str, tuple[str, ...]], names: Iterable[str], path: Path) -> list[str]:
    """All tasks of the named sets, in order.

    Raises:
        SystemExit: a named set is empty: an evaluation on nothing would look like a result.
    """
    tasks: list[str] = []
    for name in names:
        if not sets[name]:
            raise SystemExit(f"{path}: the set {name} is empty, but the evaluation asks for it; select again")
        tasks.extend(sets[name])
    return tasks
