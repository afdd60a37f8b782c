"""What an episode is paid, in parts that are never mixed before they are logged.

Three parts, in the units of the reward:

- ``success``: once an episode, ``reward_success`` or ``reward_failure``;
- ``penalty``: once a turn, ``reward_invalid_action`` where the action did not reach the page;
- ``prediction``: once a turn, a dense signal such as the shaping term of a prediction reward; zeros when the study
  has none.

The parts stay apart because a penalty varies inside a group in which every episode fails, exactly as a dense signal
does: without the parts, a sweep over the weight of the signal proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headroom.agent.episode import Ending, Episode

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reward:
    """The parts of one episode of ``T`` turns: ``success`` a scalar, ``penalty`` and ``prediction`` float64 (T,)."""

    success: float
    penalty: Floats
    prediction: Floats

    def __post_init__(self) -> None:
        if self.penalty.shape != self.prediction.shape or self.penalty.ndim != 1:
            msg = f"one penalty and one prediction a turn, not {self.penalty.shape} and {self.prediction.shape}"
            raise ValueError(msg)

    @property
    def outcome(self) -> Reward:
        """This reward without its prediction part."""
        return Reward(self.success, self.penalty, np.zeros_like(self.prediction))

    @property
    def dense(self) -> Reward:
        """The prediction part alone."""
        return Reward(0.0, np.zeros_like(self.penalty), self.prediction)

    @property
    def episode_return(self) -> float:
        """The sum of all parts. ``fsum`` rounds once, so that equal parts in any order give equal returns."""
        return math.fsum([self.success, *self.penalty.tolist(), *self.prediction.tolist()])

    @property
    def turn_rewards(self) -> Floats:
        """float64 (T,): each turn's own penalty and prediction, plus the success of the whole episode.

        This is the sample reward of the pooled-step estimator: the outcome reaches every turn, the dense parts only
        the turn that earned them.
        """
        return self.success + self.penalty + self.prediction


def scored(episode: Episode) -> bool:
    """Whether the episode has a reward at all: an infrastructure failure has none, and is excluded with a count."""
    return episode.ending is not Ending.INFRASTRUCTURE


def reward(
    episode: Episode,
    *,
    success: float,
    failure: float,
    invalid_action: float,
    prediction: Sequence[float] | Floats | None = None,
) -> Reward:
    """Pay an episode.

    Args:
        episode: a scored episode of ``T`` turns.
        success: paid when the episode succeeded.
        failure: paid when it did not.
        invalid_action: paid for each action that did not reach the page; zero or negative.
        prediction: a dense signal, one value a turn; default zeros.

    Raises:
        ValueError: the episode ended by an infrastructure failure, or ``prediction`` has another length than ``T``.
    """
    if not scored(episode):
        msg = f"episode ({episode.task}, {episode.seed}, {episode.sample}) failed by infrastructure and has no reward"
        raise ValueError(msg)
    penalty = np.array([invalid_action if turn.outcome.invalid else 0.0 for turn in episode.turns], dtype=np.float64)
    dense = np.zeros_like(penalty) if prediction is None else np.asarray(prediction, dtype=np.float64)
    return Reward(success if episode.success else failure, penalty, dense)
