"""The replication: settings that differ in the training seed alone, with intervals that count seeds.

Each row states three intervals of the mean difference to the reference (headroom.measure.intervals):
``seed_low/high``, Student's t over seeds, for other seeds on these tasks; ``ci_low/high``, two-way clustered t, for
other seeds and other tasks, on which the equivalence test and the minimum detectable effect rest; and
``bootstrap_low/high``, seeds and tasks resampled at once. Where seeds agree to the last page, the two-way error has
nothing to count, and the interval over tasks of the page means stands in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from scipy import stats

from headroom.config.models import Statistics
from headroom.measure.episodes import Mode
from headroom.measure.intervals import crossed_interval, seed_interval, task_interval, two_way_error
from headroom.measure.run_table import cell_of
from headroom.measure.statistics import (
    clusters,
    detectable_from,
    equivalence,
    equivalence_from,
    minimum_detectable_effect,
    smallest_sign_test_effect,
)


def replicate(
    pages: Mapping[tuple[str, str, Mode], pd.DataFrame], runs: pd.DataFrame, statistics: Statistics
) -> pd.DataFrame:
    """``replication.csv``: one row a cell (``run_table.cell_of``) x task set x mode with at least two training seeds.

    ``pages`` maps (policy, task set, mode) to its page pairs; families do not matter, equal settings do, so the
    seeds of the grid count with those of the replication family.

    Raises:
        ValueError: two runs share settings and seed.
    """
    rows: list[dict[str, Any]] = []
    settings = cell_of(runs)
    for cell, members in runs.groupby(settings, dropna=False, sort=False):
        if members["seed"].duplicated().any():
            raise ValueError(f"the runs {', '.join(map(str, members.index))} have equal settings and a seed twice")
        for task_set, mode in sorted({key[1:] for key in pages if key[0] in members.index}):
            present = {
                int(seed): pages[str(run), task_set, mode]
                for run, seed in members["seed"].sort_values().items()
                if len(pages.get((str(run), task_set, mode), ()))
            }
            if len(present) >= 2:
                key = dict(zip(settings, cell, strict=True)) | {"task_set": task_set, "mode": mode}
                rows.append(key | summarise(present, binary=mode == "greedy", statistics=statistics))
    columns = [*settings, "task_set", "mode"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=columns)


def summarise(present: Mapping[int, pd.DataFrame], *, binary: bool, statistics: Statistics) -> dict[str, Any]:
    """The statistics of one row from each seed's page pairs; tasks that a seed lacks are left out of all.

    The difference is the mean over seeds and tasks, each task counting once.
    """
    every = pd.concat([part.assign(training_seed=seed) for seed, part in present.items()], ignore_index=True)
    cells = every.pivot_table(index="training_seed", columns="task", values="difference", aggfunc="mean")
    cells = cells.dropna(axis="columns")
    every = every[every["task"].isin(cells.columns)]
    page_means = every.groupby(["task", "seed"], sort=True)["difference"].mean().reset_index()
    values = clusters(page_means["task"].tolist(), page_means["difference"].to_numpy(float))
    table = cells.to_numpy(float)
    by_seed = table.mean(axis=1)
    mean, confidence, margin = float(table.mean()), statistics.confidence, statistics.equivalence_margin
    draws, bootstrap_seed = statistics.bootstrap_draws, statistics.bootstrap_seed
    over_seeds = seed_interval(by_seed, confidence)
    over_both = crossed_interval(table, confidence=confidence, draws=draws, seed=bootstrap_seed)
    error, freedom = two_way_error(table)
    floor = smallest_sign_test_effect(values.pairs, confidence, statistics.power)
    if error > 0.0:
        half = float(stats.t.ppf((1.0 + confidence) / 2.0, freedom)) * error
        low, high = max(mean - half, -1.0), min(mean + half, 1.0)
        tost_p = equivalence_from(mean, error, freedom, margin)
        effect = detectable_from(error, freedom, confidence, statistics.power)
        effect = max(effect, floor) if binary else effect
    else:
        bounds = task_interval(values, confidence=confidence, draws=draws, seed=bootstrap_seed)
        low, high = bounds.low, bounds.high
        tost_p = equivalence(values, margin)
        effect = minimum_detectable_effect(values, confidence, statistics.power, binary=binary)
    return {
        "seeds": len(by_seed),
        "tasks": table.shape[1],
        "pairs": len(every),
        "reference_success": float(every["reference"].mean()),
        "policy_success": float(every["policy"].mean()),
        "difference": mean,
        "lowest_seed": float(by_seed.min()),
        "highest_seed": float(by_seed.max()),
        "seed_sd": float(by_seed.std(ddof=1)),
        "seed_low": max(over_seeds.low, -1.0),
        "seed_high": min(over_seeds.high, 1.0),
        "ci_low": low,
        "ci_high": high,
        "bootstrap_low": over_both.low,
        "bootstrap_high": over_both.high,
        "tost_p": tost_p,
        "equivalent": bool(not math.isnan(tost_p) and tost_p <= 1.0 - confidence + 1e-12),
        "minimum_detectable_effect": effect,
    }
