"""A canary: a fixed batch that the engine answers after each sync and the trained model scores.

An engine that kept an old tensor, an old cache or no adapter still writes fluent text, so nothing but a comparison
shows it. The canary is sampled through the very path of the rollouts (temperature, seeds, adapter), on prompts of
random tokens, the longest of which fill blocks of the engine's prefix cache, and each sampled token's log-probability
is held to the trained model's. Random prompts reach rows of the embedding that a task's prompts never show.

What it cannot see: a fault that moves no log-probability by more than the tolerance. Such a fault stays, so it is seen
when the updates that were missed have added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headroom.policy.forward import body_and_head, encode_prefixes, extend
from headroom.policy.score import log_softmax
from headroom.seeds import derive

Floats = npt.NDArray[np.float32]

PROMPTS, TOKENS = 8, 8
"""Sequences of a canary, and sampled tokens of each."""

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
"""Nats. Rounding of tiny models came to 1e-5 in float32 and to 0.08 in bfloat16, where a logit of 16 is off by 0.06."""


def canary_prompts(vocabulary: int, longest: int, block: int) -> list[npt.NDArray[np.int32]]:
    """``PROMPTS`` prompts of random ids, int32 (P,), no two alike at the start.

    Args:
        vocabulary: ids are below it.
        longest: tokens that a prompt and its ``TOKENS`` may have together.
        block: tokens that the engine caches together; the longest prompts hold two blocks where ``longest`` allows.
    """
    most = max(1, min(longest - TOKENS, 2 * block + 1))
    random = np.random.default_rng(derive("canary", vocabulary))
    lengths = [max(1, most * (place + 1) // PROMPTS) for place in range(PROMPTS)]
    return [random.integers(0, vocabulary, length).astype(np.int32) for length in lengths]


def canary_seeds() -> list[int]:
    """One a prompt, the same at every sync."""
    return [derive("canary", place) for place in range(PROMPTS)]


@torch.no_grad()
def canary_scores(model: Any, prompts: Sequence[npt.NDArray[np.int32]], ids: Tensor, temperature: float) -> Floats:
    """Log-probabilities of ``ids``, int64 (K, n), after K prompts under ``softmax(logits / temperature)``, (K, n)."""
    body, head = body_and_head(model)
    device = body.embed_tokens.weight.device
    prefixes = encode_prefixes(body, [torch.from_numpy(prompt[:-1].astype(np.int64)) for prompt in prompts])
    last = torch.tensor([[int(prompt[-1])] for prompt in prompts])
    rows = torch.arange(len(prompts), device=device)
    hidden = extend(body, torch.cat((last, ids[:, :-1]), dim=1).to(device), prefixes, rows)
    scores = log_softmax(head(hidden), temperature).gather(2, ids[:, :, None].to(device)).squeeze(2)
    return scores.float().cpu().numpy()


def judge(engine: Floats, trained: Floats, base: Floats | None, tolerance: float) -> tuple[float, str]:
    """The largest distance in nats, and what is wrong ("" if nothing is).

    Args:
        engine: log-probabilities of the canary's tokens as the engine reports them, (K, n).
        trained: the same tokens' under the trained model.
        base: the same tokens' under the model without its adapter; None where there is none.
        tolerance: nats.

    Raises:
        FloatingPointError: the trained model's are not finite.
    """
    if not np.isfinite(trained).all():
        raise FloatingPointError("the model's probabilities are not finite; its weights are beyond use")
    gap = float(np.abs(engine - trained).max())
    # Where the adapter is not applied, the engine is a rounding from the base and an adapter's work from the trained
    # model; where it is, the reverse. The factor lets an adapter pass that is still too small to tell.
    if base is not None and gap > 3 * float(np.abs(engine - base).max()):
        return gap, "it answers as the base model: the adapter is not applied"
    if not gap <= tolerance:
        return gap, f"a log-probability is {gap:.3g} nats off, and {tolerance:g} are allowed"
    return gap, ""
