"""The clipped policy loss with its KL term, as a sum over tokens that no microbatch split can change.

For a token with probability ratio ``rho = pi / pi_old`` and advantage ``A``,

    l = -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl_beta * k3 - entropy_bonus * H,
    k3 = pi_ref / pi - ln(pi_ref / pi) - 1 >= 0

(PPO, arXiv 1707.06347; GRPO, 2402.03300; "clip-higher", DAPO, 2503.14476; k3, joschu.net/blog/kl-approx.html;
H is the entropy of the token's whole distribution in nats, Mnih et al., 1602.01783).
The loss of a step is the weighted sum of ``l`` over the agent's own tokens. A weight depends on its sequence alone
and is computed from **all** sequences of the step before any of them is put into a microbatch:

- ``token_mean``      1 / (tokens of the step)                  DAPO
- ``sequence_mean``   1 / (sequences * tokens of this sequence)  GRPO
- ``constant_length`` 1 / (sequences * longest allowed action)   Dr. GRPO, 2503.20783

A sequence is one turn. Sequences of dead groups count in the denominators, as in TRL.

Where another engine sampled, its softmax differs from the trainer's by rounding, and the data are slightly off-policy:
the clipped term (never KL and entropy, as in TRL) of each token is then multiplied by ``min(pi_old / pi_sampler, C)``,
truncated importance sampling (Ionides, JCGS 17(2), 2008; Yao et al., fengyao.notion.site/off-policy-rl, 2025).

Deviations: the ratio is per token, never per sequence; k3 is differentiated as it stands and is not multiplied by the
ratio (TRL's ``use_bias_correction_kl``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "constant_length"]


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of a microbatch, a scalar with gradient, and what it was made of, (B, A) without gradient.

    Outside the mask the tensors hold their neutral value: ``ratio`` 1, ``kl`` 0, ``clipped_low`` and
    ``clipped_high`` false. ``kl`` is zero everywhere when there is no reference.
    """

    loss: Tensor
    ratio: Tensor
    log_ratio: Tensor
    kl: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


def sequence_weights(lengths: Sequence[int], aggregation: Aggregation, longest: int) -> list[float]:
    """The weight of every token of each sequence in the loss of the step.

    Args:
        lengths: agent tokens of every sequence of the whole step, each at least 1.
        aggregation: see the module.
        longest: the most tokens an action may have; read by ``constant_length`` only.

    Raises:
        ValueError: a sequence has no token, or ``aggregation`` is unknown.
    """
    if any(length < 1 for length in lengths):
        raise ValueError("every sequence needs at least one token of the agent")
    if aggregation == "token_mean":
        return [1 / max(1, sum(lengths))] * len(lengths)
    if aggregation == "sequence_mean":
        return [1 / (len(lengths) * length) for length in lengths]
    if aggregation == "constant_length":
        return [1 / (len(lengths) * longest)] * len(lengths)
    msg = f"unknown aggregation {aggregation!r}; use token_mean, sequence_mean or constant_length"
    raise ValueError(msg)


def importance_weights(old: Tensor, sampled: Tensor, mask: Tensor, cap: float) -> Tensor:
    """``min(pi_old / pi_sampler, cap)`` of each token, (B, A) without gradient; 1 outside the mask.

    Args:
        old: log-probabilities (B, A) under the trainer's softmax of the policy that collected.
        sampled: the same tokens' under the softmax that drew them, as its engine reported them.
        mask: bool (B, A), true on the agent's own tokens.
        cap: C, positive.
    """
    gap = old.detach().masked_fill(~mask, 0.0) - sampled.detach().to(old).masked_fill(~mask, 0.0)
    return gap.exp().clamp(max=cap).masked_fill(~mask, 1.0)


def policy_loss(
    log_probabilities: Tensor,
    old_log_probabilities: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    kl_beta: float = 0.0,
    reference_log_probabilities: Tensor | None = None,
    importance: Tensor | None = None,
    entropy_bonus: float = 0.0,
    entropy: Tensor | None = None,
) -> TokenLoss:
    """The loss of one microbatch; losses and gradients of the microbatches of a step add up to the step's.

    Args:
        log_probabilities: (B, A), of the tokens that were sampled, with gradient, at the sampling temperature.
        old_log_probabilities: (B, A), of the same tokens under the policy that collected them, without gradient.
        advantages: (B,), one a turn.
        mask: bool (B, A), true on the agent's own tokens; what stands elsewhere is never read.
        weights: (B,), from :func:`sequence_weights` over the whole step.
        clip_low: the ratio is held above ``1 - clip_low`` ...
        clip_high: ... and below ``1 + clip_high``.
        kl_beta: weight of k3.
        reference_log_probabilities: (B, A), needed when ``kl_beta`` is positive; given alone, k3 is only reported.
        importance: (B, A), from :func:`importance_weights`; None where the trainer's own softmax sampled.
        entropy_bonus: weight of the entropy.
        entropy: (B, A) in nats, with gradient; needed when ``entropy_bonus`` is positive, else not read.

    Raises:
        ValueError: ``kl_beta`` is positive and there is no reference, or ``entropy_bonus`` is and there is no entropy.
    """
    if kl_beta > 0 and reference_log_probabilities is None:
        raise ValueError("kl_beta is positive, so the loss needs the reference's log-probabilities")
    if entropy_bonus > 0 and entropy is None:
        raise ValueError("entropy_bonus is positive, so the loss needs the entropy of each token")
    # A replaced input, not a masked output: 0 * nan is nan, and padding may hold anything.
    own = log_probabilities.masked_fill(~mask, 0.0)
    log_ratio = own - old_log_probabilities.detach().masked_fill(~mask, 0.0)
    ratio = log_ratio.exp()
    advantage = advantages.to(own.dtype).unsqueeze(1)
    token_loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    if importance is not None:
        token_loss = token_loss * importance
    kl = torch.zeros_like(own)
    if reference_log_probabilities is not None:
        log_reference_ratio = reference_log_probabilities.detach().masked_fill(~mask, 0.0) - own
        # expm1, because exp(x) - 1 loses all digits where the policies still agree.
        kl = log_reference_ratio.expm1() - log_reference_ratio
        if kl_beta > 0:
            token_loss = token_loss + kl_beta * kl
    if entropy_bonus > 0 and entropy is not None:
        token_loss = token_loss - entropy_bonus * entropy.masked_fill(~mask, 0.0)
    loss = (token_loss.masked_fill(~mask, 0.0) * weights.to(own.dtype).unsqueeze(1)).sum()
    ratio, log_ratio, kl = ratio.detach(), log_ratio.detach(), kl.detach()
    return TokenLoss(
        loss=loss,
        ratio=ratio,
        log_ratio=log_ratio,
        kl=kl,
        # The side that removed the gradient of a token: the ratio left the band in the direction that its advantage
        # already wanted.
        clipped_low=mask & (ratio < 1 - clip_low) & (advantage < 0),
        clipped_high=mask & (ratio > 1 + clip_high) & (advantage > 0),
    )
