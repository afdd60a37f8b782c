"""Turns, episodes and groups, held as the sampler made them.

Token ids and log-probabilities are stored and trained on; text is kept for reading only and is never tokenised
again. One turn is one training sample: (observation + short history) -> action.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from headroom.worlds.base import Outcome


class Ending(StrEnum):
    """How an episode ended."""

    DONE = "done"  # the page ended it
    HORIZON = "horizon"  # the turn limit was reached
    INFRASTRUCTURE = "infrastructure"  # excluded with a count, never scored


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn.

    ``prompt_ids`` int32 (P,) and ``action_ids`` int32 (A,), the end token included when it was sampled;
    ``log_probabilities`` float32 (A,), of ``action_ids`` under the softmax that sampled them (temperature
    applied, natural logarithm). ``prediction_score`` in [0, 1] is how right the turn's prediction of the next
    observation was (``headroom.train.signal``); None where that observation has nothing to predict. ``anchor_score``:
    1 if its answer to the anchor question is right, else 0; None where nothing is asked. ``confidence`` in [0, 1] is
    what it says of its success, 0 where it says none; None where the dialect has no word for it. Where a rollout was
    asked to keep them, ``facts`` are those of the next observation and ``table`` the slots of the prompt
    (``headroom.agent.slots.SlotTable``; None without slots).
    """

    prompt_ids: npt.NDArray[np.int32]
    action_ids: npt.NDArray[np.int32]
    log_probabilities: npt.NDArray[np.float32]
    action_text: str
    outcome: Outcome
    prediction_score: float | None = None
    anchor_score: float | None = None
    confidence: float | None = None
    facts: tuple[tuple[str, str], ...] = ()
    table: Any = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode: ``success`` is done with a raw reward above the declared threshold."""

    task: str
    seed: int
    sample: int  # index among the samples of the same page; 0 for greedy
    turns: tuple[Turn, ...]
    raw_reward: float
    success: bool
    ending: Ending
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The samples of one page: every episode has the same task and seed (GRPO's group)."""

    task: str
    seed: int
    episodes: tuple[Episode, ...]

    def __post_init__(self) -> None:
        for episode in self.episodes:
            if (episode.task, episode.seed) != (self.task, self.seed):
                msg = f"group ({self.task}, {self.seed}) holds an episode of ({episode.task}, {episode.seed})"
                raise ValueError(msg)
