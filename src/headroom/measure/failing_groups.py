"""What an all-fail group is paid (arXiv 2607.21273, propositions 1 and 2), and what a run's steps say of a collapse.

In a group that fails as a whole only penalty and dense signal differ. ``failing_groups.csv`` has a row such a group of
a run with a signal, as the run logged it: ``spread`` is the deviation of the signal's part of its samples (in units of
reward), ``advantage`` the mean size of its advantages, ``signal_advantage`` the same had the signal alone been paid,
and ``signal_advantage_doubled`` the same with twice the signal's weight.

``signs.csv`` has a row a run: ``entropy_step``, the finished training steps when the entropy alone first warned
(empty: never), and ``signal_in_failing``, the mean over steps of the signal's spread in all-fail groups times their
share.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from headroom.train.dark_room import ENTROPY_FALLEN, FAILING, WINDOW

GROUPS = ["step", *(name.removeprefix("failing_") for name in FAILING)]
"""Columns of ``failing_groups.csv`` behind run, arm and seed."""


def group_rows(steps: pd.DataFrame) -> pd.DataFrame:
    """The all-fail groups of one run, with the columns :data:`GROUPS`; a run without a signal logs none."""
    if not set(FAILING) <= set(steps.columns):
        return pd.DataFrame(columns=GROUPS)
    table = steps[["step", *FAILING]].explode(list(FAILING)).dropna().astype(dict.fromkeys(FAILING, "float64"))
    return table.set_axis(GROUPS, axis="columns").reset_index(drop=True)


def signs(steps: pd.DataFrame) -> dict[str, float]:
    """The row of one run in ``signs.csv``."""
    table = steps.sort_values("step", kind="stable")
    spread, share = (table[name].astype("float64") for name in ("spread_failing_prediction", "all_fail_groups"))
    return {"entropy_step": _entropy_step(table), "signal_in_failing": float((spread * share).fillna(0.0).mean())}


def _entropy_step(table: pd.DataFrame) -> float:
    """The first step whose window of entropies is at most ``ENTROPY_FALLEN`` of the first; NaN if none is."""
    means = table["entropy"].astype("float64").rolling(WINDOW).mean().to_numpy()
    if len(means) < 2 * WINDOW:
        return math.nan
    fallen = np.flatnonzero(means[2 * WINDOW - 1 :] <= ENTROPY_FALLEN * means[WINDOW - 1])
    return float(table["step"].iloc[2 * WINDOW - 1 + int(fallen[0])]) + 1 if len(fallen) else math.nan
