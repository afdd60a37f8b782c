"""Rules of the claims about all-fail groups of the dark room (arXiv 2607.21273, propositions 1 and 2, criterion).

They rest on ``failing_groups.csv`` and ``signs.csv`` of :mod:`headroom.measure.failing_groups`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from headroom.config.models import Statistics
from headroom.measure.intervals import seed_interval, task_interval
from headroom.measure.mechanism import FEWEST, correlation
from headroom.measure.statistics import clusters
from headroom.present.claim_arms import missing, share
from headroom.present.claim_tables import Finding, Tables, decide, undecided
from headroom.present.tables import counted

Floats = npt.NDArray[np.float64]
CANCELS = (0.95, 1.05)
"""Within these a factor counts as one."""
VANISHED = 0.05
"""Mean size of an advantage under which there is none."""


def coefficient_cancels(tables: Tables, *, arm: str) -> Finding:
    """Twice the signal's weight changes the mean size of the advantage in all-fail groups by a factor of one.

    The factor is of the means over all such groups of a run; its interval is Student's t over training seeds, and for
    one seed over the steps of its run.
    """
    if gone := missing(tables, arm):
        return gone
    table = _groups(tables, arm)
    seeds = table["run"].nunique()
    sums = table.groupby("run" if seeds > 1 else "step")[["signal_advantage", "signal_advantage_doubled"]].sum()
    sums = sums[sums["signal_advantage"] > 0]
    if len(sums) < 2:
        return undecided(
            f"{counted(len(table), 'all-fail group')} in which the signal had an advantage, too few to judge"
        )
    factors = (sums["signal_advantage_doubled"] / sums["signal_advantage"]).to_numpy(np.float64)
    mean, bounds = float(factors.mean()), seed_interval(factors, tables.confidence)
    yes = CANCELS[0] < bounds.low and bounds.high < CANCELS[1]
    no = bounds.high <= CANCELS[0] or bounds.low >= CANCELS[1]
    text = f"Student's t over {len(sums)} {'training seeds' if seeds > 1 else 'steps of one run'}; penalties taken out"
    return Finding(
        decide(yes=yes, no=no), mean, bounds.low, bounds.high, "ratio", f"{len(table)} all-fail groups", text
    )


def advantage_vanishes(tables: Tables, *, arm: str) -> Finding:
    """Over all-fail groups, the size of the advantage falls with the signal's spread, and is nothing where that ends.

    Groups of a step share a policy, so steps of runs are resampled, not groups. The mean size of an advantage that was
    divided by its own deviation lies in [0, 1].
    """
    if gone := missing(tables, arm):
        return gone
    table = _groups(tables, arm)
    spread, size = (table[name].to_numpy(np.float64) for name in ("spread", "advantage"))
    steps = table["run"].astype(str) + " " + table["step"].astype(str)
    if steps.nunique() < FEWEST or np.ptp(spread) == 0 or np.ptp(size) == 0:
        return undecided(
            f"{counted(len(table), 'all-fail group')}, or the signal or the advantage does not vary in them"
        )
    rho, low, high = _rank_correlation(spread, size, steps.to_numpy(str), tables)
    lowest = spread <= np.quantile(spread, 0.1)
    own = clusters(list(steps[lowest]), size[lowest])
    end = task_interval(
        own, confidence=tables.confidence, draws=tables.draws, seed=tables.seed, support=(0.0, max(1.0, size.max()))
    )
    alone = float(table.loc[lowest, "signal_advantage"].mean())
    text = (
        f"mean size in the lowest tenth of the spread {own.mean:.2f} [{end.low:.2f}, {end.high:.2f}], "
        f"{int(lowest.sum())} groups, penalties in it; of the signal alone {alone:.2f}"
    )
    yes = low > 0 and end.high < VANISHED
    no = high <= 0 or end.low >= VANISHED
    return Finding(decide(yes=yes, no=no), rho, low, high, "rho", f"{len(table)} all-fail groups", text)


def _groups(tables: Tables, arm: str) -> pd.DataFrame:
    table = tables["failing_groups"]
    return table[table["arm"] == arm].reset_index(drop=True)


def _rank_correlation(x: Floats, y: Floats, labels: npt.NDArray[np.str_], tables: Tables) -> tuple[float, float, float]:
    """Spearman's rho of x and y (N,) with the percentile interval of a bootstrap over clusters (N,) of them.

    The ranks of the whole sample are resampled, as in :func:`headroom.measure.mechanism.correlation`.
    """
    a, b = (ranks - ranks.mean() for ranks in (stats.rankdata(x), stats.rankdata(y)))
    _, index = np.unique(labels, return_inverse=True)
    size = int(index.max()) + 1
    parts = np.stack([np.bincount(index, v, size) for v in (np.ones_like(a), a, b, a * a, b * b, a * b)], axis=1)
    generator = np.random.default_rng([tables.seed, size])
    weights = generator.multinomial(size, np.full(size, 1.0 / size), size=tables.draws)
    drawn = _pearson(weights.astype(np.float64) @ parts)
    tail = (1.0 - tables.confidence) / 2.0
    low, high = np.nanquantile(drawn, [tail, 1.0 - tail])
    return float(_pearson(parts.sum(axis=0)[None])[0]), float(low), float(high)


def _pearson(sums: Floats) -> Floats:
    """From the sums (M, 6) of 1, a, b, a^2, b^2 and ab; NaN where one of the two does not vary."""
    n, a, b, aa, bb, ab = sums.T
    scale = np.sqrt(np.maximum(n * aa - a * a, 0.0) * np.maximum(n * bb - b * b, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(scale > 0, (n * ab - a * b) / scale, np.nan), dtype=np.float64)


def spread_costs(tables: Tables, *, baseline: str) -> Finding:
    """Over arms that divide, with a signal or as the baseline, success lost goes with the signal's spread in failing
    groups times their share."""
    if gone := missing(tables, baseline):
        return gone
    listed = tables["runs"]
    divided = listed[listed["advantage_scale"] != "none"]
    arms = [baseline, *divided.loc[divided["signal"] != "none", "arm"]]
    table = tables["signs"]
    spread = table[table["arm"].isin(arms)].groupby("arm", sort=True)["signal_in_failing"].mean()
    reference = share(tables, baseline).value
    lost = np.array([reference - share(tables, str(arm)).value for arm in spread.index], dtype=np.float64)
    spread, lost = spread[np.isfinite(lost)], lost[np.isfinite(lost)]
    rule = Statistics(confidence=tables.confidence, bootstrap_draws=tables.draws, bootstrap_seed=tables.seed)
    found = correlation(spread.to_numpy(np.float64), lost, rule)
    if pd.isna(found["spearman"]):
        return undecided(f"{counted(len(spread), 'arm')} that divide, fewer than {FEWEST} or all alike")
    rho, low, high = (found[f"spearman{end}"] for end in ("", "_ci_low", "_ci_high"))
    text = f"bootstrap over arms: {', '.join(map(str, spread.index))}"
    return Finding(decide(yes=low > 0, no=high <= 0), rho, low, high, "rho", counted(len(spread), "arm"), text)
