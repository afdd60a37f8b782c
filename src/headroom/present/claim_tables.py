"""What the rules of the claims read, and what they return."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd

NOT_RUN: Final = "not run in this release"
Verdict = Literal["reproduced", "not reproduced", "inconclusive", "not run in this release"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict and what it rests on.

    ``effect``, ``low`` and ``high`` are the estimate that decides and its interval, in ``unit``; NaN where there is
    none. ``n`` says how many of what, ``detail`` what else a reader must see (equivalence, detectable effect).
    """

    verdict: Verdict
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    n: str = ""
    detail: str = ""


def undecided(why: str) -> Finding:
    """No verdict, with the reason."""
    return Finding("inconclusive", detail=why)


def decide(*, yes: bool, no: bool) -> Verdict:
    """Three-valued. Where both rules hold (an effect above zero, yet smaller than the margin), neither decides."""
    return "inconclusive" if bool(yes) == bool(no) else "reproduced" if yes else "not reproduced"


@dataclass
class Tables:
    """The tables of one study; each is read when a rule asks for it, and ``used`` remembers which were.

    ``margin`` and ``confidence`` are those of ``study``; ``regimes`` maps a regime to its runs.
    """

    paths: Mapping[str, Path]
    margin: float
    regimes: Mapping[str, Sequence[str]]
    draws: int = 2000
    confidence: float = 0.95
    seed: int = 7
    study: Literal["gate", "dark room"] = "gate"
    used: set[str] = field(default_factory=set)
    _read: dict[str, pd.DataFrame] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Where a table lies; the caller reads it."""
        self.used.add(name)
        return self.paths[name]

    def __getitem__(self, name: str) -> pd.DataFrame:
        path = self.path(name)
        if name not in self._read:
            self._read[name] = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", comment="#")
        return self._read[name]

    def runs(self, regime: str) -> list[str]:
        """The runs of a regime that this scale made."""
        return list(self.regimes.get(regime, ()))

    def greedy(self, task_set: str = "mastered", against: str = "contrasts") -> pd.DataFrame:
        """The greedy contrasts of all runs on a task set, with the supervised policy.

        ``against`` "init_contrasts": of the runs from another initialisation, with that one.
        """
        table = self[against]
        kept = table[(table["mode"] == "greedy") & (table["task_set"] == task_set) & table["family"].notna()]
        return kept.reset_index(drop=True)

    def cell(self, level: str, tasks: str) -> dict[str, Any] | None:
        """The recipe's setting at a learning-rate level, trained and evaluated on ``tasks``: mean over its seeds.

        Where only one seed was trained, that run's own contrast, with ``seeds`` 1; None if there is none.
        """
        table = self["replication"]
        own = table[
            (table["learning_rate_level"] == level)
            & (table["tasks_trained"] == tasks)
            & (table["task_set"] == tasks)
            & (table["mode"] == "greedy")
            & (table["init"] == "sft")
            & (table["schedule"] == "constant")
        ]
        if len(own):
            return dict(own.sort_values("seeds", ascending=False).iloc[0])
        runs = self.greedy(tasks)
        runs = runs[(runs["learning_rate_level"] == level) & (runs["tasks_trained"] == tasks) & (runs["init"] == "sft")]
        return dict(runs.iloc[0]) | {"seeds": 1} if len(runs) else None


def points(row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Difference and its interval in percentage points."""
    return 100 * float(row["difference"]), 100 * float(row["ci_low"]), 100 * float(row["ci_high"])
