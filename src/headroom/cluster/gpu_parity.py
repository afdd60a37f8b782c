"""What a GPU computes, held to float32. The limits were fixed before any GPU was measured.

Precision: the same weights and turns in ``bfloat16_masters`` and in ``float32``, on the device, at the full width and
vocabulary of the shape but with few of its blocks, for which float32 leaves room. bfloat16 keeps 8 bits, so each
rounding is off by 2^-9 = 0.2% of a number, and a log-probability of a random model, whose logits have deviation 1,
passes some twenty of them: 0.02 nats are expected, and the limit of the mean is that; of the largest, ten times as
much. Gradients add errors of independent sign: the limit is a cosine of 0.99 and 5% of the norm. (Measured since, on a
processor with two blocks of Qwen3-4B's width: 0.010 and 0.023 nats, 1 - cosine 1e-4, norm 0.2%.)

Device: a tiny model in float32 on the device and on the processor; only the order of sums differs, which costs 1e-5
nats there; limit 1e-3 (TF32, ten bits, would break it), and greedy tokens must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headroom.cluster.gpu_random import random_model
from headroom.config.models import Optimiser, Trainer
from headroom.policy.sampler import TorchSampler
from headroom.train.batch import Example, make_batch
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee

BLOCKS = 2
MEAN_NATS, LARGEST_NATS, COSINE_LOSS, NORM_SHARE = 0.02, 0.2, 0.01, 0.05
DEVICE_NATS = 1e-3


@dataclass(frozen=True)
class Check:
    """A number that must not exceed its limit."""

    name: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether it does not; what is not finite never holds."""
        return math.isfinite(self.value) and self.value <= self.limit


def precision_parity(config: dict[str, Any], device: str, turns: Sequence[Example]) -> list[Check]:
    """bfloat16 against float32, forward and backward; see the module."""
    small = {**config, "num_hidden_layers": min(BLOCKS, config["num_hidden_layers"])}
    exact, exact_gradient = _scored(small, device, turns, "float32")
    rounded, rounded_gradient = _scored(small, device, turns, "bfloat16_masters")
    gap = (exact - rounded).abs()
    dots = sum(float((exact_gradient[name] * rounded_gradient[name]).sum()) for name in exact_gradient)
    norms = [
        math.sqrt(sum(float(g.square().sum()) for g in some.values())) for some in (exact_gradient, rounded_gradient)
    ]
    return [
        Check("bfloat16, mean gap of a log-probability, nats", float(gap.mean()), MEAN_NATS),
        Check("bfloat16, largest gap of a log-probability, nats", float(gap.max()), LARGEST_NATS),
        Check("bfloat16, 1 - cosine of the gradients", max(0.0, 1.0 - dots / (norms[0] * norms[1])), COSINE_LOSS),
        Check("bfloat16, gap of the gradient's norm, share", abs(norms[1] / norms[0] - 1.0), NORM_SHARE),
    ]


def _scored(
    config: dict[str, Any], device: str, turns: Sequence[Example], precision: Literal["float32", "bfloat16_masters"]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probabilities of all action tokens, float32 (N,), and the gradient of their mean by master."""
    trainee = Trainee(random_model(config, device), adamw(Optimiser(), 0.0), Trainer(precision=precision))
    batch = make_batch(turns)
    scored = trainee.score(batch).log_probabilities
    chosen = scored[batch.action_mask.to(scored.device)]
    trainee.backward(-chosen.mean())
    gradient = {name: master.grad.float() for name, master in trainee.named_parameters() if master.grad is not None}
    return chosen.detach().float(), gradient


def device_parity(config: dict[str, Any], device: str, turns: Sequence[Example]) -> list[Check]:
    """The device against the processor, in float32; see the module."""
    there = random_model(config, "cpu")
    here = random_model(config, "cpu").to(device)  # the same weights: generators of two devices differ
    batch = make_batch(turns)
    with torch.no_grad():
        gaps = [Trainee(model, adamw(Optimiser(), 0.0)).score(batch).log_probabilities.cpu() for model in (there, here)]
    prompts = [turn.prompt_ids for turn in turns]
    said = [
        TorchSampler(model, (1,)).generate(prompts, temperature=0.0, seeds=[0] * len(prompts), max_new_tokens=8)
        for model in (there, here)
    ]
    different = sum(not np.array_equal(a.ids, b.ids) for a, b in zip(*said, strict=True))
    return [
        Check("device, largest gap of a log-probability, nats", float((gaps[0] - gaps[1]).abs().max()), DEVICE_NATS),
        Check("device, greedy actions that differ", float(different), 0.0),
    ]
