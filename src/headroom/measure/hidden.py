"""Effective rank of hidden states for three token choices, with intervals over the episodes of the probe.

Token choices, for a turn whose sequence is prompt + action:

* ``mean``: one row a turn, the mean over all its tokens;
* ``all``: one row a token;
* ``action``: one row a turn, the position that predicts the first token of the action.

Intervals of all three measures come from the same resampled spectra: a bootstrap over episodes, on the logarithm of
the measure. A resample holds fewer distinct rows
than the sample, so its rank is biased downwards; what the interval should show is the spread. The draws are therefore
shifted to the estimate, and the shift stands beside the interval as ``bootstrap_bias``. The rank itself is of these
N rows: it grows with N, so it is comparable between checkpoints on one probe and not between probes. Where no interval
can be had, the reason stands in its place (:data:`REASONS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from headroom.measure.spectrum import Array64, matrix_ranks, ranks, squared_singular_values

TOKENS = ("mean", "all", "action")
_STACK_BYTES = 64_000_000  # Gram matrices in memory at a time


MEASURES = ("effective_rank", "participation_ratio", "stable_rank")
Reason = Literal["bootstrap", "too large to resample", "not finite", "a draw has rank zero"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Values of the column ``interval``: how it was made, or why there is none."""


@dataclass(frozen=True, slots=True)
class RankInterval:
    """Interval of one measure; NaN where there is none."""

    low: float
    high: float
    bias: float


@dataclass(frozen=True, slots=True)
class RankIntervals:
    """The interval of each measure (:data:`MEASURES`), and "bootstrap" or why there is none."""

    of: Mapping[str, RankInterval]
    reason: Reason


def rows_of(
    states: Sequence[npt.NDArray[np.float32]],
    tokens: str,
    action_positions: Sequence[npt.NDArray[np.int64]],
    episode: npt.NDArray[np.int64],
) -> tuple[Array64, npt.NDArray[np.int64]]:
    """The rows (N, D) float64 of a token choice, and the episode (N,) of each; ``states`` are (T_i, D), one a turn.

    Raises:
        ValueError: an unknown token choice.
    """
    if tokens == "mean":
        return np.stack([state.mean(axis=0, dtype=np.float64) for state in states]), episode
    if tokens == "action":
        picked = [state[at[0]] for state, at in zip(states, action_positions, strict=True)]
        return np.stack(picked).astype(np.float64), episode
    if tokens == "all":
        lengths = [len(state) for state in states]
        return np.concatenate(states).astype(np.float64), np.repeat(episode, lengths)
    raise ValueError(f"no token choice {tokens!r}; there are {', '.join(TOKENS)}")


def episode_weights(episodes: int, draws: int, seed: int) -> Array64:
    """How often each episode is drawn, float64 (draws, episodes); one matrix serves every checkpoint and layer."""
    generator = np.random.default_rng([seed, episodes])
    return generator.multinomial(episodes, np.full(episodes, 1.0 / episodes), size=draws).astype(np.float64)


def rank_intervals(
    rows: Array64,
    episode: npt.NDArray[np.int64],
    weights: Array64,
    *,
    centred: bool,
    confidence: float,
    up_to: int = 512,
) -> RankIntervals:
    """Bootstrap intervals of the measures of rows (N, D) whose episodes (N,) are resampled by ``weights``."""
    if not np.isfinite(rows).all():
        return _no_interval("not finite")
    if min(rows.shape) > up_to:
        return _no_interval("too large to resample")
    estimate = matrix_ranks(rows, centred=centred)
    draws = [ranks(squared) for squared in resampled_spectra(rows, episode, weights, centred=centred)]
    smallest = np.min([found.effective_rank for found in (estimate, *draws)])  # the other two are zero where it is
    if not np.isfinite(smallest):  # the squares of finite states can overflow
        return _no_interval("not finite")
    if smallest <= 0.0:
        return _no_interval("a draw has rank zero")
    tail = (1.0 - confidence) / 2.0
    intervals = {}
    for name in MEASURES:
        logs = np.log([getattr(draw, name) for draw in draws])
        bias = float(logs.mean() - np.log(getattr(estimate, name)))
        low, high = np.exp(np.quantile(logs, [tail, 1.0 - tail]) - bias)
        intervals[name] = RankInterval(float(low), float(high), float(np.exp(bias) - 1.0))
    return RankIntervals(intervals, "bootstrap")


def _no_interval(reason: Reason) -> RankIntervals:
    return RankIntervals(dict.fromkeys(MEASURES, RankInterval(np.nan, np.nan, np.nan)), reason)


def resampled_spectra(rows: Array64, episode: npt.NDArray[np.int64], weights: Array64, *, centred: bool) -> Array64:
    """Squared singular values (draws, K) of each resample, from per-episode moments or from the Gram of the rows.

    Equal to building each resample's matrix with repeated rows, which the tests do.
    """
    count, width = rows.shape
    shifted = rows - rows.mean(axis=0) if centred else rows  # near the mean already, so that centring loses no digits
    if width <= count:
        return _by_episode(shifted, episode, weights, centred=centred)
    gram = shifted @ shifted.T
    out = np.empty((len(weights), count))
    for draw, share in enumerate(weights):
        times = share[episode]
        one = gram
        if centred:
            p = times / times.sum()
            toward = gram @ p
            one = gram - toward[:, None] - toward[None, :] + p @ toward
        root = np.sqrt(times)
        out[draw] = squared_singular_values(one * root[:, None] * root[None, :], width)
    return out


def _by_episode(rows: Array64, episode: npt.NDArray[np.int64], weights: Array64, *, centred: bool) -> Array64:
    width, episodes = rows.shape[1], weights.shape[1]
    second, total = np.zeros((episodes, width * width)), np.zeros((episodes, width))
    for number in range(episodes):
        own = rows[episode == number]
        second[number] = (own.T @ own).ravel()
        total[number] = own.sum(axis=0)
    counts = np.bincount(episode, minlength=episodes).astype(np.float64)
    out = np.empty((len(weights), width))
    step = max(1, _STACK_BYTES // (8 * width * width))
    for first in range(0, len(weights), step):
        part = weights[first : first + step]
        gram = (part @ second).reshape(-1, width, width)
        if centred:
            sums = part @ total
            gram -= sums[:, :, None] * (sums / (part @ counts)[:, None])[:, None, :]
        out[first : first + step] = squared_singular_values(gram, len(rows))
    return out
