"""The runs of ``workflow/data/runs.tsv`` as a table, and which of its columns say what a run is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

CELL = [
    "tasks_trained",
    "init",
    "learning_rate_level",
    "learning_rate",
    "schedule",
    "kl_beta",
    "clip_low",
    "clip_high",
    "group_size",
]
"""What two runs share that differ in their training seed alone."""

RUN_COLUMNS = ["family", *CELL, "seed"]


def read_runs(path: Path, learning_rates: Mapping[str, float]) -> pd.DataFrame:
    """The run table, indexed by run id, with :data:`RUN_COLUMNS`.

    The level in ``runs.tsv`` becomes ``learning_rate_level``, its number at this scale ``learning_rate`` (NaN if the
    scale does not say), and the set that a run trains on ``tasks_trained``.

    Raises:
        SystemExit: the file cannot be read, lacks a column, or names a run twice.
    """
    renamed = {"learning_rate": "learning_rate_level", "tasks": "tasks_trained"}
    try:
        runs = pd.read_csv(path, sep="\t", comment="#", dtype={"run": str, "learning_rate": str})
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as a run table ({error})") from error
    as_named = [name for name in ["run", *RUN_COLUMNS] if name not in ("learning_rate", *renamed.values())]
    missing = [name for name in (*as_named, *renamed) if name not in runs.columns]
    if missing:
        raise SystemExit(f"{path}: lacks the columns {', '.join(missing)}")
    runs = runs.rename(columns=renamed)
    runs["learning_rate"] = [learning_rates.get(str(level), math.nan) for level in runs["learning_rate_level"]]
    if runs["run"].duplicated().any():
        raise SystemExit(f"{path}: names the run {runs.loc[runs['run'].duplicated(), 'run'].iloc[0]} twice")
    return runs.set_index("run")[RUN_COLUMNS]
