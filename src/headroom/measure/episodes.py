"""Episode tables: one row an episode, and the pairing of two policies on the same episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from headroom.agent.episode import Ending, Episode

Mode = Literal["greedy", "sampled"]
KEY = ["task", "seed", "mode", "sample"]
COLUMNS = [
    "policy",
    "task",
    "task_set",
    "seed",
    "mode",
    "sample",
    "success",
    "raw_reward",
    "ending",
    "failure",
    "turns",
    "invalid",
    "actions",
    "outcomes",
]


def table(
    episodes: Iterable[Episode], *, policy: str, mode: Mode, task_sets: Mapping[str, Iterable[str]] | None = None
) -> pd.DataFrame:
    """Tabulate episodes: the columns of :data:`COLUMNS`, sorted by (policy, task, seed, mode, sample).

    ``task_sets`` maps a set's name to its tasks; a task in none of them has an empty ``task_set``. ``raw_reward``
    is float32, ``invalid`` counts turns whose action did not reach the page, ``actions`` and ``outcomes`` are lists.

    Raises:
        ValueError: an episode occurs twice, or a task is in two sets.
    """
    set_of: dict[str, str] = {}
    for name, tasks in (task_sets or {}).items():
        for task in tasks:
            if set_of.setdefault(task, name) != name:
                raise ValueError(f"task {task} is in the sets {set_of[task]} and {name}; a task belongs to one")
    rows = [
        {
            "policy": policy,
            "task": episode.task,
            "task_set": set_of.get(episode.task, ""),
            "seed": episode.seed,
            "mode": mode,
            "sample": episode.sample,
            "success": episode.success,
            "raw_reward": episode.raw_reward,
            "ending": str(episode.ending),
            "failure": episode.failure,
            "turns": len(episode.turns),
            "invalid": sum(turn.outcome.invalid for turn in episode.turns),
            "actions": [turn.action_text for turn in episode.turns],
            "outcomes": [str(turn.outcome) for turn in episode.turns],
        }
        for episode in episodes
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS).astype(
        {"seed": "int64", "sample": "int64", "turns": "int64", "invalid": "int64", "raw_reward": "float32"}
    )
    frame["success"] = frame["success"].astype(bool)
    return ordered(frame)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by (policy, task, seed, mode, sample); raises ValueError if an episode occurs twice."""
    frame = frame.sort_values(["policy", *KEY], kind="stable").reset_index(drop=True)
    twice = frame.duplicated(["policy", *KEY])
    if twice.any():
        first = frame.loc[twice, ["policy", *KEY]].iloc[0].tolist()
        raise ValueError(f"{int(twice.sum())} episodes occur twice, the first is {first}")
    return frame


def read(directory: Path) -> pd.DataFrame:
    """Read ``episodes.parquet`` of a job's directory.

    Raises:
        SystemExit: the file is missing or lacks a column; the message says what to run.
    """
    path = directory / "episodes.parquet"
    try:
        frame = pd.read_parquet(path)
    except OSError as error:
        raise SystemExit(f"{path}: cannot be read; run the evaluation of this policy first ({error})") from error
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise SystemExit(f"{path}: lacks the columns {', '.join(missing)}; evaluate the policy again")
    return frame


def scored(frame: pd.DataFrame) -> pd.DataFrame:
    """The episodes that count: all but infrastructure failures."""
    return frame[frame["ending"] != str(Ending.INFRASTRUCTURE)]


def pair(reference: pd.DataFrame, policy: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Pair two episode tables on (task, seed, mode, sample).

    Returns the pairs (columns of KEY, ``task_set``, ``reference``, ``policy``: bool) sorted by KEY, and how many
    pairs were dropped because the infrastructure failed on either side.

    Raises:
        ValueError: the two do not hold exactly the same keys; the message lists what is missing on each side.
    """
    left, right = reference.set_index(KEY), policy.set_index(KEY)
    if left.index.has_duplicates or right.index.has_duplicates:
        raise ValueError("an episode occurs twice; pair one policy with one reference")
    only_left, only_right = left.index.difference(right.index), right.index.difference(left.index)
    if len(only_left) or len(only_right):
        raise ValueError(
            "the two policies were not evaluated on the same episodes: "
            f"{_some(only_left)} missing from the policy, {_some(only_right)} missing from the reference"
        )
    index = left.index.sort_values()
    left, right = left.loc[index], right.loc[index]
    keep = ((left["ending"] != str(Ending.INFRASTRUCTURE)) & (right["ending"] != str(Ending.INFRASTRUCTURE))).to_numpy(
        dtype=bool
    )
    pairs = index.to_frame(index=False)
    pairs["task_set"] = left["task_set"].to_numpy()
    pairs["reference"] = left["success"].to_numpy(dtype=bool)
    pairs["policy"] = right["success"].to_numpy(dtype=bool)
    return pairs[keep].reset_index(drop=True), int(np.count_nonzero(~keep))


def _some(keys: pd.Index[Any], limit: int = 5) -> str:
    if not len(keys):
        return "none"
    shown = ", ".join(f"({', '.join(map(str, key))})" for key in keys[:limit])
    return f"{len(keys)} episodes ({shown}{', ...' if len(keys) > limit else ''})"
