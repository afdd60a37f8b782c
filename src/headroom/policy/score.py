"""Log-probabilities of action tokens with gradient, under the softmax that sampled them.

Shapes: ``B`` turns, ``A`` longest action, ``R`` turns that differ (equal turns are computed once), ``V`` vocabulary,
``D`` width. Action tokens are found by position, so padding may share its id with the end token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headroom.policy.forward import body_and_head, encode_prefixes, extend, run_part

LOGITS_AT_ONCE = 2**25
"""Logits held at a time (128 MiB in float32); above it they are recomputed in the backward pass, chunk by chunk."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Turns as tensors (made by ``headroom.train.batch``); equal prompts and equal turns are stored once.

    ``index`` is the place of each of the B turns in the list that the batch was cut from.
    ``action_ids`` int64 (B, A) and ``action_mask`` bool (B, A), true on action tokens, the end token included.
    ``prefixes`` are unique prompts without their last token, int64 each; ``suffixes`` int64 (R, A) hold that last
    token and the action without its last; ``prefix_of`` int64 (R,); ``row_of`` int64 (B,) maps turns to R.
    """

    index: tuple[int, ...]
    action_ids: Tensor
    action_mask: Tensor
    prefixes: tuple[Tensor, ...]
    suffixes: Tensor
    targets: Tensor
    target_mask: Tensor
    prefix_of: Tensor
    row_of: Tensor

    @property
    def tokens(self) -> int:
        """Tokens that a forward pass computes: packed prefixes and padded suffixes."""
        return sum(len(prefix) for prefix in self.prefixes) + self.suffixes.numel()

    def padded(self, values: Sequence[npt.NDArray[np.float32]]) -> Tensor:
        """Per-token numbers of *all* turns of the caller's list -> float32 (B, A) of this batch, zero at padding."""
        out = torch.zeros(self.action_mask.shape, dtype=torch.float32)
        for row, place in enumerate(self.index):
            out[row, : len(values[place])] = torch.from_numpy(np.ascontiguousarray(values[place], dtype=np.float32))
        return out


class Scored(NamedTuple):
    """``log_probabilities`` float32 (B, A), natural logarithm, with gradient; ``entropy`` float32 (B, A), nats,
    with gradient only where that was asked for. Both are 0 at padding. A float64 model gives float64."""

    log_probabilities: Tensor
    entropy: Tensor


def action_log_probabilities(
    model: Any,
    batch: Batch,
    temperature: float = 1.0,
    *,
    logits_at_once: int = LOGITS_AT_ONCE,
    entropy_gradient: bool = False,
) -> Scored:
    """Score the action tokens of ``batch`` under ``softmax(logits / temperature)``.

    Logits are computed at action positions only, in float32 from there on. ``entropy_gradient`` gives the entropy a
    gradient; between the passes that keeps no tensor more, since the log-probabilities are kept already.

    Raises:
        ValueError: the temperature is not positive.
    """
    if not temperature > 0:
        msg = f"a score needs a temperature above 0, got {temperature}"
        raise ValueError(msg)
    return run_part(model, _score, batch, temperature, logits_at_once, entropy_gradient)  # type: ignore[no-any-return]


def _score(model: Any, batch: Batch, temperature: float, logits_at_once: int, entropy_gradient: bool) -> Scored:
    body, head = body_and_head(model)
    device = body.embed_tokens.weight.device
    prefixes = encode_prefixes(body, batch.prefixes)
    hidden = extend(body, batch.suffixes.to(device), prefixes, batch.prefix_of.to(device))
    mask = batch.target_mask.to(device)
    places = mask.flatten().nonzero().squeeze(1)
    chosen = hidden.flatten(0, 1).index_select(0, places)  # (tokens, D)
    targets = batch.targets.to(device).flatten().index_select(0, places)
    rows = max(1, logits_at_once // head.weight.shape[0])
    if len(chosen) <= rows:
        parts = [_token_scores(chosen, targets, head, temperature, entropy_gradient)]
    else:
        parts = [
            checkpoint(
                _token_scores,
                part,
                ids,
                head,
                temperature,
                entropy_gradient,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for part, ids in zip(torch.split(chosen, rows), torch.split(targets, rows), strict=True)
        ]
    row_of = batch.row_of.to(device)

    def spread(values: Tensor) -> Tensor:  # (tokens,) -> (R, A) -> (B, A)
        return values.new_zeros(mask.numel()).index_copy(0, places, values).view(mask.shape).index_select(0, row_of)

    return Scored(*(spread(torch.cat(column)) for column in zip(*parts, strict=True)))


def _token_scores(
    hidden: Tensor, targets: Tensor, head: Any, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    """(tokens, D) -> log-probability of each target and entropy of its distribution, both (tokens,)."""
    log_probabilities = log_softmax(head(hidden), temperature)
    if entropy_gradient:
        entropy: Tensor = _Entropy.apply(log_probabilities)  # type: ignore[no-untyped-call]
    else:
        with torch.no_grad():
            entropy = entropy_of(log_probabilities)
    return log_probabilities.gather(1, targets[:, None]).squeeze(1), entropy


def log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """The one softmax of this project: at least float32, temperature, no truncation, no penalty; over the last axis."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide if temperature == 1.0 else wide / temperature, dim=-1)


def entropy_of(log_probabilities: Tensor) -> Tensor:
    """Entropy in nats over the last axis; an impossible token adds 0."""
    entropy: Tensor = torch.special.entr(log_probabilities.exp()).sum(dim=-1)
    return entropy


class _Entropy(torch.autograd.Function):
    """:func:`entropy_of` with the gradient ``-p (ln p + 1)`` in each log-probability, 0 at an impossible token.

    Plain autograd would keep two more tensors of (tokens, V), and has no finite gradient where p rounds to 0.
    """

    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor) -> Tensor:
        ctx.save_for_backward(log_probabilities)
        return entropy_of(log_probabilities)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (log_probabilities,) = ctx.saved_tensors
        p = log_probabilities.exp()
        slope = (log_probabilities + 1.0).masked_fill_(p == 0, 0.0).mul_(p)
        product: Tensor = slope.mul_(-gradient.unsqueeze(-1))
        return product
