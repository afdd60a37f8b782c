"""``task_sets.json``: the two disjoint sets of tasks that selection chose, and every candidate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

NAMES = ("mastered", "headroom")
EVERY = "all"
"""The set of every candidate; files of before it lack it."""
FILLED = "filled"
"""Optional key: set -> its tasks that did not qualify and took a place for which too few did."""


def read_task_sets(path: Path) -> dict[str, tuple[str, ...]]:
    """Read {"mastered": [...], "headroom": [...], "all": [...]}; :data:`FILLED`, how they were chosen, is left aside.

    Raises:
        SystemExit: the file is missing, is not such a mapping, or names a task twice.
    """
    remedy = "run the selection stage, which writes it"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as task sets ({error}); {remedy}") from error
    if not isinstance(value, dict) or set(value) - {FILLED, EVERY} != set(NAMES):
        raise SystemExit(f"{path}: needs exactly the keys {' and '.join(NAMES)}; {remedy}")
    names = [name for name in (*NAMES, EVERY) if name in value]
    for name, tasks in ((name, value[name]) for name in names):
        if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
            raise SystemExit(f"{path}: {name} is not a list of task names; {remedy}")
    chosen = [task for name in NAMES for task in value[name]]
    for every, what in ((chosen, "the sets are disjoint"), (value.get(EVERY, []), "it is one list")):
        twice = sorted({task for task in every if every.count(task) > 1})
        if twice:
            raise SystemExit(f"{path}: {', '.join(twice)} named twice; {what}, {remedy}")
    return {name: tuple(value[name]) for name in names}


def labels(sets: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The disjoint sets that episodes are labelled and compared by: the chosen ones; where none was chosen, all."""
    chosen = {name: sets[name] for name in NAMES}
    return chosen if any(chosen.values()) or EVERY not in sets else {EVERY: sets[EVERY]}


def tasks_of(sets: Mapping[str, tuple[str, ...]], names: Iterable[str], path: Path) -> list[str]:
    """All tasks of the named sets, in order, each once.

    Raises:
        SystemExit: a named set is empty: an evaluation on nothing would look like a result.
    """
    tasks: list[str] = []
    for name in names:
        if not sets.get(name):
            fault = "is empty" if name in sets else "is not there"
            raise SystemExit(f"{path}: the set {name} {fault}, but the evaluation asks for it; select again")
        tasks.extend(sets[name])
    return list(dict.fromkeys(tasks))
