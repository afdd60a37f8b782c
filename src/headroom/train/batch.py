"""Turns -> padded tensors, cut into microbatches that fit a token budget.

The cut is a pure function of the turns: sorted by prompt length, then by content, so that equal prompts meet in one
microbatch and are encoded once. Which turns share a microbatch never changes the gradient, because the denominators
of the loss belong to the step (``headroom.train.loss``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from headroom.policy.score import Batch


class Sample(Protocol):
    """Anything with a prompt and an action as token ids: a sampled ``Turn`` or a demonstrated ``Example``."""

    @property
    def prompt_ids(self) -> npt.NDArray[np.int32]:
        """int32 (P,), P at least 1."""
        ...

    @property
    def action_ids(self) -> npt.NDArray[np.int32]:
        """int32 (A,), A at least 1, the end token included."""
        ...


@dataclass(frozen=True, slots=True)
class Example:
    """A demonstrated turn: ``prompt_ids`` int32 (P,), ``action_ids`` int32 (A,) with the end token."""

    prompt_ids: npt.NDArray[np.int32]
    action_ids: npt.NDArray[np.int32]


def make_batch(samples: Sequence[Sample], index: Sequence[int] | None = None) -> Batch:
    """Tensors of ``samples[i] for i in index`` (default: all), in that order.

    Raises:
        ValueError: no sample, an empty prompt or an empty action.
    """
    places = tuple(range(len(samples))) if index is None else tuple(index)
    if not places:
        msg = "a batch needs at least one turn"
        raise ValueError(msg)
    prefixes: dict[bytes, int] = {}
    rows: dict[tuple[bytes, bytes], int] = {}
    prefix_tensors, row_samples, prefix_of, row_of = [], [], [], []
    for place in places:
        prompt = np.ascontiguousarray(samples[place].prompt_ids, dtype=np.int64)
        action = np.ascontiguousarray(samples[place].action_ids, dtype=np.int64)
        if not len(prompt) or not len(action):
            msg = f"turn {place} has an empty {'prompt' if len(action) else 'action'}"
            raise ValueError(msg)
        prefix, row = prompt[:-1].tobytes(), (prompt.tobytes(), action.tobytes())
        if prefix not in prefixes:
            prefixes[prefix] = len(prefixes)
            prefix_tensors.append(torch.from_numpy(prompt[:-1].copy()))
        if row not in rows:
            rows[row] = len(rows)
            row_samples.append((prompt, action))
            prefix_of.append(prefixes[prefix])
        row_of.append(rows[row])
    longest = max(len(action) for _, action in row_samples)
    suffixes = np.zeros((len(row_samples), longest), dtype=np.int64)
    targets = np.zeros_like(suffixes)
    mask = np.zeros(suffixes.shape, dtype=np.bool_)
    for number, (prompt, action) in enumerate(row_samples):
        suffixes[number, 0], suffixes[number, 1 : len(action)] = prompt[-1], action[:-1]
        targets[number, : len(action)] = action
        mask[number, : len(action)] = True
    spread = torch.tensor(row_of, dtype=torch.int64)
    target_ids, target_mask = torch.from_numpy(targets), torch.from_numpy(mask)
    return Batch(
        index=places,
        action_ids=target_ids[spread],
        action_mask=target_mask[spread],
        prefixes=tuple(prefix_tensors),
        suffixes=torch.from_numpy(suffixes),
        targets=target_ids,
        target_mask=target_mask,
        prefix_of=torch.tensor(prefix_of, dtype=torch.int64),
        row_of=spread,
    )


def microbatches(samples: Sequence[Sample], token_budget: int) -> list[Batch]:
    """All samples, each once, in batches of at most ``token_budget`` computed tokens (a lone longer turn is kept).

    The order depends on the samples alone; a turn's place in the list is found in ``Batch.index``.

    Raises:
        ValueError: the budget is not positive, or a sample is empty.
    """
    if token_budget <= 0:
        msg = f"the token budget of a microbatch must be positive, got {token_budget}"
        raise ValueError(msg)
    return [make_batch(samples, index) for index in _cut(samples, token_budget)]


def _cut(samples: Sequence[Sample], token_budget: int) -> Iterator[list[int]]:
    prompts = [np.asarray(sample.prompt_ids, dtype=np.int64).tobytes() for sample in samples]
    actions = [np.asarray(sample.action_ids, dtype=np.int64).tobytes() for sample in samples]
    order = sorted(range(len(samples)), key=lambda i: (len(prompts[i]), prompts[i], len(actions[i]), actions[i], i))
    index: list[int] = []
    prefix_tokens, rows, longest = 0, 0, 0
    for i in order:
        new_prompt = not index or prompts[i] != prompts[index[-1]]
        new_row = new_prompt or actions[i] != actions[index[-1]]
        after = (
            prefix_tokens + new_prompt * (len(samples[i].prompt_ids) - 1),
            rows + new_row,
            max(longest, len(samples[i].action_ids)),
        )
        if index and after[0] + after[1] * after[2] > token_budget:
            yield index
            index, after = [], (len(samples[i].prompt_ids) - 1, 1, len(samples[i].action_ids))
        index.append(i)
        prefix_tokens, rows, longest = after
    if index:
        yield index
