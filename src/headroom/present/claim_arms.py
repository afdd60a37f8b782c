"""Arms of the dark room as the rules of its claims see them: their shares, and what lies between two of them.

An arm's own interval is the one that :mod:`headroom.measure.dark_room` gives it: Student's t over its training seeds,
or Wilson's for the episodes of one validation. Two arms are compared by training seed, which fixes the games and the
sampler: Student's t over the paired differences of the seeds that both have; with one such seed, Newcombe's score
interval for one validation of each run, which knows nothing of other training seeds.

Seeds that agree exactly leave Student's t no width, although each was measured on a few episodes. There the score
interval of one validation of all these seeds stands in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headroom.measure.intervals import Interval, seed_interval
from headroom.measure.mechanism import COLLAPSED
from headroom.measure.shares import agree, newcombe, wilson
from headroom.present.claim_tables import NOT_RUN, Finding, Tables
from headroom.present.tables import counted

METHODS = {
    "seeds": "Student's t over {seeds}",
    "wilson": "Wilson's interval of one validation of {seeds}",
    "paired": "Student's t over {seeds}, paired",
    "newcombe": "Newcombe's interval of one validation of {seeds}",
    "none": "no interval",
}


@dataclass(frozen=True, slots=True)
class Share:
    """A share, or the difference of two, with its interval; ``seeds`` is the number of training seeds behind it."""

    value: float
    low: float
    high: float
    method: str
    seeds: int

    @property
    def said(self) -> str:
        """``12.0% [3.1, 20.9] (Student's t over 3 seeds)``, in per cent or points."""
        how = METHODS[self.method].format(seeds=counted(self.seeds, "training seed"))
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] ({how})"

    @property
    def points(self) -> tuple[float, float, float]:
        """Value and interval in percentage points."""
        return 100 * self.value, 100 * self.low, 100 * self.high


def missing(tables: Tables, *arms: str) -> Finding | None:
    """That the claim was not run, if no run of one of the arms was made; None if all were."""
    made, listed = set(tables["arms"]["arm"]), set(tables["runs"]["arm"])
    gone = [arm for arm in arms if arm not in made]
    if not gone:
        return None
    said = "; ".join(
        f"this scale makes no run of the arm '{arm}'" if arm in listed else f"the run table has no arm '{arm}'"
        for arm in gone
    )
    return Finding(NOT_RUN, detail=f"{said[0].upper()}{said[1:]}.")


def runs_of(tables: Tables, arm: str) -> pd.DataFrame:
    """The rows of an arm's runs, a training seed each, in the seeds' order, with the seed as index."""
    table = tables["arms"]
    return table[(table["row"] == "run") & (table["arm"] == arm)].astype({"seed": int}).set_index("seed").sort_index()


def share(tables: Tables, arm: str, column: str = "success") -> Share:
    """A column of an arm with its interval; Wilson's counts the episodes of one validation, also where the column was
    measured on more."""
    runs = runs_of(tables, arm)
    values, episodes = runs[column].to_numpy(np.float64), runs["episodes"].to_numpy(np.float64)
    mean = float(values.mean())
    found = seed_interval(values, tables.confidence)
    if agree(values):
        found = wilson(mean, float(episodes.sum()), tables.confidence)
    elif not math.isnan(mean):
        found = Interval(max(found.low, 0.0), min(found.high, 1.0), found.method)
    return Share(mean, found.low, found.high, found.method, len(runs))


def difference(tables: Tables, arm: str, other: str, column: str = "success") -> Share:
    """``arm`` minus ``other`` in a column, over the training seeds that both have; NaN where they have none."""
    first, second = runs_of(tables, arm), runs_of(tables, other)
    seeds = first.index.intersection(second.index)
    if seeds.empty:
        return Share(math.nan, math.nan, math.nan, "none", 0)
    first, second = first.loc[seeds], second.loc[seeds]
    values = (first[column] - second[column]).to_numpy(np.float64)
    mean = float(values.mean())
    if not agree(values):
        found = seed_interval(values, tables.confidence)
        return Share(mean, max(found.low, -1.0), min(found.high, 1.0), "paired", len(seeds))
    one, two = (float(own[column].mean()) for own in (first, second))
    found = newcombe(one, float(first["episodes"].sum()), two, float(second["episodes"].sum()), tables.confidence)
    return Share(mean, found.low, found.high, found.method, len(seeds))


def collapsed(found: Share) -> bool:
    """Whether a share ends under 5% with its whole interval, the study's own definition of a collapse."""
    return found.high < COLLAPSED


def equivalent(found: Share, margin: float) -> bool:
    """Whether the whole interval of a difference lies within the margin."""
    return found.low > -margin and found.high < margin


def apart(found: Share, margin: float) -> bool:
    """Whether the interval of a difference excludes zero and is not within the margin."""
    return (found.low > 0 or found.high < 0) and not equivalent(found, margin)


def harms(found: Share, margin: float) -> bool:
    """Whether the interval of a difference ends below zero and is not within the margin."""
    return found.high < 0 and not equivalent(found, margin)
