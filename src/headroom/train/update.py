"""What GRPO does with a rollout that ``headroom.train.grpo`` collected: score its turns, the loss, the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headroom.agent.episode import Turn
from headroom.config.models import Grpo
from headroom.policy.score import Batch, action_log_probabilities
from headroom.train.auxiliary import Targets, cross_entropy
from headroom.train.batch import microbatches
from headroom.train.diagnostics import Row, TokenStatistics, larger
from headroom.train.loss import importance_weights, policy_loss, sequence_weights
from headroom.train.trainee import Trainee

NO_LIVE_GROUP, NOT_FINITE = "no live group", "gradient not finite"
"""Why a rollout was not learned from."""


def update(
    trainee: Trainee,
    reference: Any,
    turns: Sequence[Turn],
    advantage: Tensor,
    settings: Grpo,
    auxiliary: Targets | None = None,
) -> tuple[Row, dict[str, float]]:
    """Take ``updates_per_rollout`` optimiser steps on a rollout; the columns of the update and its seconds by phase.

    There is something to learn where a group is live, or where the auxiliary loss has a target.

    Args:
        trainee: the model, trained in place.
        reference: a frozen model, or None; the trained model itself under LoRA, which means its base.
        turns: N turns of scored episodes, as they were sampled.
        advantage: float64 (N,).
        settings: of the run.
        auxiliary: the targets of its auxiliary loss; None where it has none.
    """
    statistics, norm, done, reason = TokenStatistics(), None, 0, ""
    seconds = {"seconds_score": 0.0, "seconds_backward": 0.0}
    learns = bool((advantage != 0).any()) or bool(auxiliary and auxiliary.items)
    batches = trainee.processes.deal(microbatches(turns, settings.microbatch_tokens) if turns else [])
    # The denominators belong to the whole step, and so are fixed before it is cut.
    lengths = [len(turn.action_ids) for turn in turns]
    weights = torch.tensor(
        sequence_weights(lengths, settings.aggregation, settings.max_new_tokens), dtype=torch.float64
    )
    extra = _dealt(trainee, auxiliary, settings)
    cap = settings.vllm.importance_cap if settings.engine == "vllm" else None
    old: list[Tensor] = []
    importance: list[Tensor | None] = []
    anchor: list[Tensor | None] = []
    for number in range(settings.updates_per_rollout):
        trainee.zero_grad()
        for place, (batch, counts) in enumerate(batches):
            started = time.perf_counter()
            with trainee.learning(learns):
                own, entropy = trainee.score(batch, settings.temperature, entropy_gradient=settings.entropy_bonus > 0)
            mask = batch.action_mask.to(own.device)
            if number == 0:
                old.append(own.detach())  # the policy that collected is still this one, so the ratio is exactly 1
                anchor.append(_anchor(trainee, reference, batch, settings.temperature))
                sampled = batch.padded([turn.log_probabilities for turn in turns]).to(own)
                gap = float((own.detach() - sampled).abs()[mask].max())
                statistics.sampler_gap = larger(statistics.sampler_gap, gap)
                importance.append(None if cap is None else importance_weights(own, sampled, mask, cap))
            rows = torch.tensor(batch.index)
            result = policy_loss(
                own, old[place], advantage[rows].to(own), mask, weights[rows].to(own), clip_low=settings.clip_low,
                clip_high=settings.clip_high, kl_beta=settings.kl_beta, reference_log_probabilities=anchor[place],
                importance=importance[place], entropy_bonus=settings.entropy_bonus, entropy=entropy,
            )  # fmt: skip
            if counts:
                statistics.add(
                    result, entropy.detach(), mask,
                    with_reference=reference is not None, importance=importance[place], cap=cap,
                )  # fmt: skip
            scored_at = time.perf_counter()
            if learns:
                trainee.backward(result.loss, counts)
            seconds["seconds_score"] += scored_at - started
            seconds["seconds_backward"] += time.perf_counter() - scored_at
        if not learns:
            reason = NO_LIVE_GROUP
            break
        for batch, trained, share, counts in extra:
            started = time.perf_counter()
            nats = cross_entropy(trainee.score(batch).log_probabilities, trained)
            statistics.auxiliary += float(nats.detach()) if counts else 0.0
            scored_at = time.perf_counter()
            trainee.backward(share * nats, counts)
            seconds["seconds_score"] += scored_at - started
            seconds["seconds_backward"] += time.perf_counter() - scored_at
        started = time.perf_counter()
        norm = trainee.clip(settings.optimiser.gradient_clip)
        if not math.isfinite(norm):
            reason = NOT_FINITE
            break
        trainee.step()
        done += 1
        seconds["seconds_backward"] += time.perf_counter() - started
    trainee.zero_grad()
    first, *others = trainee.processes.gather(statistics)
    for other in others:
        first.merge(other)
    row: Row = {
        **first.row(number + 1 if batches else 0),
        **(auxiliary.row(first.auxiliary, number + 1) if auxiliary is not None else {}),
        "gradient_norm": norm if norm is not None and math.isfinite(norm) else None,
        "updates": done,
        "skipped": bool(reason),
        "skip_reason": reason,
    }
    return row, seconds


def _dealt(trainee: Trainee, auxiliary: Targets | None, settings: Grpo) -> list[tuple[Batch, Tensor, float, bool]]:
    """This process's microbatches of targets: which tokens are trained, float32 (B, A), their share of the step's loss,
    and whether a microbatch counts."""
    if auxiliary is None or not auxiliary.items:
        return []
    share = settings.auxiliary.weight / auxiliary.tokens  # of the whole step, and so fixed before it is cut
    marks = [target.trained for target in auxiliary.items]
    dealt = trainee.processes.deal(microbatches(auxiliary.items, settings.microbatch_tokens))
    return [(batch, batch.padded(marks), share, counts) for batch, counts in dealt]


def _anchor(trainee: Trainee, reference: Any, batch: Batch, temperature: float) -> Tensor | None:
    """Log-probabilities of the reference, float32 (B, A), without gradient."""
    if reference is None:
        return None
    if reference is trainee.model:
        return trainee.score_base(batch, temperature)
    with torch.no_grad():
        return action_log_probabilities(reference, batch, temperature).log_probabilities
