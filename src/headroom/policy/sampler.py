"""Batched sampling on the model that is trained, with a stream of random numbers for each sample.

A token is drawn by inverting the cumulative distribution at one uniform number, which is a function of the sample's
seed and the token's place alone (SplitMix64, Steele, Lea and Flood 2014, used as a counter-based generator). So a
sample's tokens do not depend on which batch it is in, in which order, or with whom, up to rounding at the edges of
the distribution; and the log-probability that is reported is the one of the very softmax that was inverted.
Deviation from common samplers: no top-k, no top-p, no penalty, so sampling and scoring cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headroom.policy.forward import Prefixes, SuffixCache, body_and_head, encode_prefixes
from headroom.policy.score import entropy_of, log_softmax

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled action, all (A,): ``ids`` int32, the end token included when it was reached;
    ``log_probabilities`` and ``entropy`` float32, nats, of the softmax that sampled (temperature 1 when greedy)."""

    ids: Ids
    log_probabilities: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32]


class TorchSampler:
    """Samples from a Hugging Face decoder (see ``headroom.policy.files.ARCHITECTURES``).

    ``end_ids`` end an action; several may. ``batch_tokens`` bounds the tokens of one forward pass and of the cache.
    The sampler reads the model's current weights at every call and holds nothing between calls.
    """

    def __init__(self, model: Any, end_ids: Sequence[int], *, batch_tokens: int = 65536) -> None:
        if not end_ids:
            msg = "a sampler needs at least one end id"
            raise ValueError(msg)
        self.model = model
        self.end_ids = tuple(end_ids)
        self.batch_tokens = batch_tokens

    tolerance = None
    """No second copy of the weights, so no canary."""

    def sync(self, model: Any) -> None:
        """Sample from ``model`` from now on."""
        self.model = model

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Ids], *, temperature: float, seeds: Sequence[int], max_new_tokens: int
    ) -> list[Generation]:
        """Sample one action a prompt, in the order given; temperature 0 is greedy (the first of equal maxima).

        Args:
            prompts: int32 (P,) each, P at least 1.
            temperature: divides the logits; not negative.
            seeds: one in [0, 2**64) a prompt; ignored when greedy.
            max_new_tokens: an action is cut there, without an end token.

        Raises:
            ValueError: an argument is out of range, or a prompt is empty.
            FloatingPointError: the model gives no finite probabilities (never when greedy).
        """
        check_request(prompts, seeds, temperature, max_new_tokens)
        out: list[Generation | None] = [None] * len(prompts)
        for rows in self._batches(prompts, max_new_tokens):
            made = self._decode(
                [prompts[row] for row in rows], [seeds[row] for row in rows], temperature, max_new_tokens
            )
            for row, generation in zip(rows, made, strict=True):
                out[row] = generation
        return [generation for generation in out if generation is not None]

    def _batches(self, prompts: Sequence[Ids], max_new_tokens: int) -> Iterator[list[int]]:
        """Rows of similar length together, at most ``batch_tokens`` padded tokens (at least one row) a batch."""
        batch: list[int] = []
        for row in sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i)):
            if batch and (len(batch) + 1) * (len(prompts[row]) + max_new_tokens) > self.batch_tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _decode(
        self, prompts: list[Ids], seeds: list[int], temperature: float, max_new_tokens: int
    ) -> list[Generation]:
        body, head = body_and_head(self.model)
        device = body.embed_tokens.weight.device
        prefixes, prefix_of = self._prefill(body, prompts)
        cache = SuffixCache(prefixes, prefix_of.to(device), max_new_tokens)
        ends = torch.tensor(self.end_ids, device=device)
        tokens = torch.tensor([int(prompt[-1]) for prompt in prompts], device=device)
        live = torch.arange(len(prompts), device=device)
        shape = (len(prompts), max_new_tokens)
        ids = torch.zeros(shape, dtype=torch.int64, device=device)
        log_probabilities, entropy = (torch.zeros(shape, dtype=torch.float32, device=device) for _ in range(2))
        lengths = torch.full((len(prompts),), max_new_tokens, device=device)
        streams = np.array(seeds, dtype=np.uint64)
        for step in range(max_new_tokens):
            logits = head(cache.append(body, tokens))
            log_p = log_softmax(logits, temperature or 1.0)
            tokens = log_p.argmax(dim=-1) if temperature == 0 else _draw(log_p, uniform(streams, step))
            ids[live, step] = tokens
            log_probabilities[live, step] = log_p.gather(1, tokens[:, None]).squeeze(1).float()
            entropy[live, step] = entropy_of(log_p).float()
            going_on = ~torch.isin(tokens, ends)
            if not bool(going_on.all()):
                lengths[live[~going_on]] = step + 1
                rows = going_on.nonzero().squeeze(1)
                if not len(rows):
                    break
                cache.keep(rows)
                tokens, live, streams = tokens[rows], live[rows], streams[rows.cpu().numpy()]
        columns = (ids.to(torch.int32), log_probabilities, entropy)
        arrays = [column.cpu().numpy() for column in columns]
        return [
            Generation(*(array[row, :length].copy() for array in arrays)) for row, length in enumerate(lengths.tolist())
        ]

    def _prefill(self, body: Any, prompts: list[Ids]) -> tuple[Prefixes, Tensor]:
        """Encode each different prompt once, without its last token; which prefix each row continues, int64 (B,)."""
        unique: dict[bytes, int] = {}
        tensors: list[Tensor] = []
        for prompt in prompts:
            head = np.asarray(prompt[:-1], dtype=np.int64)
            if unique.setdefault(head.tobytes(), len(unique)) == len(tensors):
                tensors.append(torch.from_numpy(head))
        prefix_of = [unique[np.asarray(prompt[:-1], dtype=np.int64).tobytes()] for prompt in prompts]
        return encode_prefixes(body, tensors), torch.tensor(prefix_of, dtype=torch.int64)


def check_request(prompts: Sequence[Ids], seeds: Sequence[int], temperature: float, max_new_tokens: int) -> None:
    """Refuse what no engine can answer.

    Raises:
        ValueError: an argument is out of range, or a prompt is empty.
    """
    if len(prompts) != len(seeds) or temperature < 0 or max_new_tokens < 1 or any(len(p) == 0 for p in prompts):
        msg = "generate needs a seed a prompt, no empty prompt, temperature >= 0 and max_new_tokens >= 1"
        raise ValueError(msg)


def uniform(streams: npt.NDArray[np.uint64], step: int) -> npt.NDArray[np.float64]:
    """Number ``step`` of each stream: float64 in [0, 1) with 53 random bits, a pure function of (seed, step)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is the method
        state = streams + np.uint64(((step + 1) * 0x9E3779B97F4A7C15) % 2**64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _draw(log_probabilities: Tensor, numbers: npt.NDArray[np.float64]) -> Tensor:
    """Invert each row's cumulative distribution (B, V) at its number; never a token of probability 0; int64 (B,)."""
    cumulative = log_probabilities.double().exp().cumsum(dim=-1)
    total = cumulative[:, -1:]
    if not bool(torch.isfinite(total).all()):
        raise FloatingPointError("the model's probabilities are not finite; its weights are beyond use")
    height = torch.from_numpy(numbers).to(total.device)[:, None] * total
    height = torch.minimum(height, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, height, right=True).squeeze(1)
