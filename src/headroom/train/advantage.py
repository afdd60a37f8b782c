"""Group-relative advantages: the one place where rewards are centred and, if asked, scaled.

For the samples ``r_1 .. r_n`` of one page,

    A_i = (r_i - mean r) / (s + epsilon),

with two factors that the two studies of this project set differently:

- **scope**: ``trajectory``: a sample is an episode, ``r_i`` its return, and ``A_i`` reaches all its turns
  (GRPO, arXiv 2402.03300, for agents). ``pooled_step``: a sample is a turn, ``r_i`` its turn reward, and mean and
  deviation are pooled over all turns of the episodes of one page (arXiv 2607.21273).
- **scale**: ``none``: no division, no epsilon (Dr. GRPO, arXiv 2503.20783). ``group_std``: ``s`` is the standard
  deviation of the group's samples. ``batch_std``: ``s`` is that of all samples of the step, while the mean stays the
  group's.

Where the dense signal is a **channel** of its own (``decoupled``), its part of the samples and all the rest (success
and penalty) are each centred and scaled as above on their own, and the two advantages of a turn are added.

The deviation divides by ``n - 1`` (as ``torch.std`` does in verl and as TRL does), so ``|A_i| <= (n - 1) / sqrt(n)``;
the population deviation (GRPO-Zero) would be smaller by ``sqrt((n - 1) / n)`` and its bound ``sqrt(n - 1)``.

Deviations from the textbook: a group whose samples are all *exactly* equal is dead and gets exactly 0, and so does a
group of one. Neither is decided by a floating-point deviation, which is not 0 for three times 0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from headroom.train.reward import Reward

Scope = Literal["trajectory", "pooled_step"]
Scale = Literal["none", "group_std", "batch_std"]
Channel = Literal["added", "decoupled"]
Floats = npt.NDArray[np.float64]


def standardise(groups: Sequence[Floats], scale: Scale, epsilon: float) -> list[Floats]:
    """Centre each group's samples on their mean and divide as ``scale`` says.

    Args:
        groups: one float64 (n,) an element; ``n`` may differ and may be 0.
        scale: see the module.
        epsilon: added to the deviation, in units of reward; not used by ``none``.

    Returns:
        One float64 (n,) a group; exactly 0 for dead groups and groups of one.
    """
    batch = np.concatenate(groups) if groups else np.zeros(0)
    batch_deviation = batch.std(ddof=1) if len(batch) > 1 else 0.0
    result = []
    for samples in groups:
        if is_dead(samples):
            result.append(np.zeros_like(samples))
            continue
        centred = samples - samples.mean()
        if scale == "group_std":
            centred = centred / (samples.std(ddof=1) + epsilon)
        elif scale == "batch_std":
            centred = centred / (batch_deviation + epsilon)
        result.append(centred)
    return result


def is_dead(samples: Floats) -> bool:
    """Whether a group has nothing to teach: fewer than two samples, or all exactly equal."""
    return len(samples) < 2 or bool((samples == samples[0]).all())


def advantages(
    groups: Sequence[Sequence[Reward]], *, scope: Scope, scale: Scale, epsilon: float, channel: Channel = "added"
) -> list[list[Floats]]:
    """The advantage of every turn of every episode.

    Args:
        groups: the rewards of the *scored* episodes of each page; an excluded episode must not be among them.
        scope: what a sample is; see the module.
        scale: what divides; see the module.
        epsilon: added to the deviation, in units of reward.
        channel: whether the prediction part is a channel of its own; see the module.

    Returns:
        For each group, for each of its episodes of ``T`` turns, float64 (T,).
    """
    if channel == "decoupled":
        apart = ([[r.outcome for r in group] for group in groups], [[r.dense for r in group] for group in groups])
        first, second = (advantages(part, scope=scope, scale=scale, epsilon=epsilon) for part in apart)
        return [[a + b for a, b in zip(one, two, strict=True)] for one, two in zip(first, second, strict=True)]
    if scope == "trajectory":
        returns = [np.array([r.episode_return for r in group], dtype=np.float64) for group in groups]
        return [
            [np.full_like(r.penalty, value) for r, value in zip(group, values, strict=True)]
            for group, values in zip(groups, standardise(returns, scale, epsilon), strict=True)
        ]
    turns = [np.concatenate([r.turn_rewards for r in group]) if group else np.zeros(0) for group in groups]
    return [
        np.split(values, np.cumsum([len(r.penalty) for r in group])[:-1]) if group else []
        for group, values in zip(groups, standardise(turns, scale, epsilon), strict=True)
    ]
