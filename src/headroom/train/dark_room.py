"""The dark room (arXiv 2607.21273): a collapse in which the agent comes to do what it can predict best, for as long as
it may. Entropy alone gives false alarms, so :func:`early_warning` asks for three signs at once: entropy has fallen,
predictions have become right, and episodes run to the turn limit. Why it can happen is in the parts of the reward: in
a group that fails as a whole only penalty and dense signal differ, and dividing by their deviation undoes any weight.
So the deviation inside a group is reported for each part, over all groups and over the failing ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from headroom.train.advantage import Floats, Scale, Scope, advantages
from headroom.train.reward import Reward

PARTS = ("success", "penalty", "prediction")
WINDOW = 5
"""Steps over which the signs of a collapse are averaged."""
ENTROPY_FALLEN, PREDICTION_RIGHT, LENGTH_PINNED = 0.5, 0.9, 0.9
"""The signs: at most this share of the run's first entropy, at least this score, at least this share of episodes."""


def _samples(group: Sequence[Reward], part: str, scope: Scope) -> Floats:
    """A part of the samples of a group, as :mod:`headroom.train.advantage` would meet it, float64 (n,)."""
    values = [np.full_like(r.penalty, r.success) if part == "success" else getattr(r, part) for r in group]
    if scope == "pooled_step":
        return np.concatenate([np.zeros(0), *values])
    return np.array([r.success if part == "success" else v.sum() for r, v in zip(group, values, strict=True)])


def part_spreads(rewards: Sequence[Sequence[Reward]], failing: Sequence[bool], scope: Scope) -> dict[str, Any]:
    """Deviations inside a group, mean over groups, in units of reward: of each part of the samples (``spread_PART``),
    and over all-fail groups of each part (``spread_failing_PART``) and of the whole samples (``spread_failing``).

    A sample is an episode or, in the scope ``pooled_step``, a turn. The deviation divides by n: a group of one has 0.
    ``prediction`` is the dense part, whichever signal it is. A potential that is 1 at every turn is paid at the first
    alone: pooled over episodes of ``T`` turns it keeps a deviation of w sqrt(T - 1) / T.
    """
    columns: dict[str, list[float]] = defaultdict(list)
    for group, fails in zip(rewards, failing, strict=True):
        parts = {part: _samples(group, part, scope) for part in PARTS}
        for part, samples in parts.items():
            spread = float(samples.std()) if len(samples) else 0.0
            columns[f"spread_{part}"].append(spread)
            if fails:
                columns[f"spread_failing_{part}"].append(spread)
        if fails:
            whole = sum(parts.values(), np.zeros(len(parts["success"])))
            columns["spread_failing"].append(float(whole.std()) if len(whole) else 0.0)
    return {name: float(np.mean(columns[name])) if columns[name] else None for name in SPREADS}


SPREADS = (
    *(f"spread_{part}" for part in PARTS),
    *(f"spread_failing_{part}" for part in PARTS[1:]),
    "spread_failing",
)
"""Columns of :func:`part_spreads`."""


def failing_groups(
    rewards: Sequence[Sequence[Reward]],
    estimates: Sequence[Sequence[Floats]],
    failing: Sequence[bool],
    *,
    scope: Scope,
    scale: Scale,
    epsilon: float,
) -> dict[str, list[float]]:
    """The columns :data:`FAILING`, a number an all-fail group: the deviation of the signal's part of its samples (as in
    :func:`part_spreads`), and the mean size of its advantages: ``estimates``, those of the signal alone (penalties
    taken out), and those of the signal alone at twice its weight."""
    alone = [[reward.dense for reward in group] for group in rewards]
    twice = [[Reward(0.0, r.penalty, 2.0 * r.prediction) for r in group] for group in alone]
    sizes = [
        [
            float(np.abs(np.concatenate(group)).mean())
            for group, fails in zip(part, failing, strict=True)
            if fails and group
        ]
        for part in (estimates, *(advantages(p, scope=scope, scale=scale, epsilon=epsilon) for p in (alone, twice)))
    ]
    kept = [group for group, fails in zip(rewards, failing, strict=True) if fails and group]
    spreads = [float(_samples(group, "prediction", scope).std()) for group in kept]
    return dict(zip(FAILING, (spreads, *sizes), strict=True))


FAILING = ("failing_spread", "failing_advantage", "failing_signal_advantage", "failing_signal_advantage_doubled")
"""Columns of :func:`failing_groups`: lists, in the steps of a run that has a dense signal alone."""


def early_warning(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether the last ``WINDOW`` rows of a run together show the three signs of a dark room.

    Entropy: its mean is at most ``ENTROPY_FALLEN`` of that of the first ``WINDOW`` rows; prediction: its mean score is
    at least ``PREDICTION_RIGHT``; length: at least ``LENGTH_PINNED`` of the episodes ran to the turn limit. False
    before there are two windows of rows, and where one of the three was not measured.
    """
    if len(rows) < 2 * WINDOW:
        return False
    first, last = rows[:WINDOW], rows[-WINDOW:]

    def mean(some: Sequence[dict[str, Any]], name: str) -> float:
        values = [row[name] for row in some]
        return math.nan if None in values else float(np.mean(values))

    return (
        mean(last, "entropy") <= ENTROPY_FALLEN * mean(first, "entropy")
        and mean(last, "prediction_score") >= PREDICTION_RIGHT
        and mean(last, "horizon_share") >= LENGTH_PINNED
    )
