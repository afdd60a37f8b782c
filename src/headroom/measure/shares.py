"""Intervals of shares: of one (Wilson 1927), and of the difference of two from other episodes (Newcombe 1998)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from headroom.measure.intervals import Interval


def agree(values: npt.NDArray[np.float64]) -> bool:
    """Whether values are one number, but for rounding: then their deviation is no measure of anything."""
    return len(values) == 1 or bool(np.ptp(values) < 1e-9)


def wilson(share: float, episodes: float, confidence: float) -> Interval:
    """Wilson's score interval of a share of so many episodes; NaN without one."""
    if not episodes > 0 or math.isnan(share):
        return Interval(math.nan, math.nan, "none")
    z = float(stats.norm.ppf((1 + confidence) / 2))
    scale = 1 + z**2 / episodes
    centre = (share + z**2 / (2 * episodes)) / scale
    half = z * math.sqrt(share * (1 - share) / episodes + z**2 / (4 * episodes**2)) / scale
    return Interval(max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)), "wilson")


def newcombe(first: float, first_episodes: float, second: float, second_episodes: float, confidence: float) -> Interval:
    """Newcombe's hybrid score interval (his method 10) of ``first - second``, two independent shares; NaN without
    episodes of both."""
    one, two = wilson(first, first_episodes, confidence), wilson(second, second_episodes, confidence)
    difference = first - second
    low = difference - math.hypot(first - one.low, two.high - second)
    high = difference + math.hypot(one.high - first, second - two.low)
    return Interval(low, high, "newcombe")
