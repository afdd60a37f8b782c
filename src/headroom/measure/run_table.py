"""A run table as a table, and which of its columns say what a run is.

The gate's is ``workflow/data/runs.tsv``, the dark room's ``workflow/data/dark_room.tsv``: they differ in their columns.
"""

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

ARM = ["arm", "signal", "form", "weight", "schedule", "channel", "advantage_scale", "auxiliary"]
ARM += ["auxiliary_weight"]
"""The same of the dark room's runs."""


def cell_of(runs: pd.DataFrame) -> list[str]:
    """The columns of :func:`read_runs` that two runs share which differ in their training seed alone."""
    return ARM if "arm" in runs.columns else CELL


def read_runs(path: Path, learning_rates: Mapping[str, float]) -> pd.DataFrame:
    """The run table, indexed by run id, with :data:`RUN_COLUMNS`; of the dark room: family, init, :data:`ARM`, seed.

    The level in ``runs.tsv`` becomes ``learning_rate_level``, its number at this scale ``learning_rate`` (NaN if the
    scale does not say), and the set that a run trains on ``tasks_trained``.

    Raises:
        SystemExit: the file cannot be read, lacks a column, or names a run twice.
    """
    renamed = {"learning_rate": "learning_rate_level", "tasks": "tasks_trained"}
    try:
        texts = dict.fromkeys(("run", "learning_rate", "weight", "auxiliary_weight"), str)
        runs = pd.read_csv(path, sep="\t", comment="#", dtype=texts)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as a run table ({error})") from error
    arms = "arm" in runs.columns
    if arms:
        runs, renamed = runs.assign(init="sft"), {}
    columns = ["family", "init", *ARM, "seed"] if arms else RUN_COLUMNS
    as_named = [name for name in ["run", *columns] if name not in ("learning_rate", *renamed.values())]
    missing = [name for name in (*as_named, *renamed) if name not in runs.columns]
    if missing:
        raise SystemExit(f"{path}: lacks the columns {', '.join(missing)}")
    runs = runs.rename(columns=renamed)
    if not arms:
        runs["learning_rate"] = [learning_rates.get(str(level), math.nan) for level in runs["learning_rate_level"]]
    if runs["run"].duplicated().any():
        raise SystemExit(f"{path}: names the run {runs.loc[runs['run'].duplicated(), 'run'].iloc[0]} twice")
    return runs.set_index("run")[columns]
