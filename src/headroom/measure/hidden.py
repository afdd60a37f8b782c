"""Effective rank of hidden states for three token choices, with intervals over the episodes of the probe.

Token choices, for a turn whose sequence is prompt + action:

* ``mean``: one row a turn, the mean over all its tokens;
* ``all``: one row a token;
* ``action``: one row a turn, the position that predicts the first token of the action.

Intervals come from a bootstrap over episodes, on the logarithm of the rank. A resample holds fewer distinct rows
than the sample, so its rank is biased downwards; what the interval should show is the spread. The draws are therefore
shifted to the estimate, and the shift stands beside the interval as ``bootstrap_bias``. The rank itself is of these
N rows: it grows with N, so it is comparable between checkpoints on one probe and not between probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headroom.measure.spectrum import Array64, matrix_ranks, ranks, squared_singular_values

TOKENS = ("mean", "all", "action")
_STACK_BYTES = 64_000_000  # Gram matrices in memory at a time


@dataclass(frozen=True, slots=True)
class RankInterval:
    """Interval of an effective rank; NaN where the matrices are too large to resample."""

    low: float
    high: float
    bias: float


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


def rank_interval(
    rows: Array64,
    episode: npt.NDArray[np.int64],
    weights: Array64,
    *,
    centred: bool,
    confidence: float,
    up_to: int = 512,
) -> RankInterval:
    """Bootstrap interval of the effective rank of rows (N, D) whose episodes (N,) are resampled by ``weights``."""
    if min(rows.shape) > up_to or not np.isfinite(rows).all():
        return RankInterval(np.nan, np.nan, np.nan)
    estimate = matrix_ranks(rows, centred=centred).effective_rank
    squared = resampled_spectra(rows, episode, weights, centred=centred)
    draws = np.array([ranks(values).effective_rank for values in squared])
    if estimate <= 0.0 or (draws <= 0.0).any():
        return RankInterval(np.nan, np.nan, np.nan)
    logs = np.log(draws)
    bias = float(logs.mean() - np.log(estimate))
    tail = (1.0 - confidence) / 2.0
    low, high = np.exp(np.quantile(logs, [tail, 1.0 - tail]) - bias)
    return RankInterval(float(low), float(high), float(np.exp(bias) - 1.0))


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
