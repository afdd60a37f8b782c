"""The parts of a reward stay apart, and an infrastructure failure has no reward."""

from __future__ import annotations

import numpy as np
import pytest

from headroom.agent.episode import Ending, Episode, Turn
from headroom.train.reward import Reward, reward, scored
from headroom.worlds.base import Outcome


def an_episode(outcomes: list[Outcome], *, success: bool, ending: Ending = Ending.DONE) -> Episode:
    ids = np.zeros(1, dtype=np.int32)
    turns = tuple(Turn(ids, ids, np.zeros(1, dtype=np.float32), "", outcome) for outcome in outcomes)
    return Episode("task", 1, 0, turns, 1.0 if success else -1.0, success, ending)


def test_success_is_paid_once_and_each_invalid_action_costs_its_own_turn() -> None:
    episode = an_episode([Outcome.OK, Outcome.MALFORMED, Outcome.OCCLUDED], success=True)
    paid = reward(episode, success=10.0, failure=0.0, invalid_action=-0.1)
    assert paid.success == 10.0
    np.testing.assert_array_equal(paid.penalty, [0.0, -0.1, -0.1])
    np.testing.assert_array_equal(paid.prediction, [0.0, 0.0, 0.0])
    assert paid.episode_return == pytest.approx(9.8)
    np.testing.assert_allclose(paid.turn_rewards, [10.0, 9.9, 9.9])


def test_a_dense_signal_is_logged_apart_from_the_penalty() -> None:
    episode = an_episode([Outcome.OK, Outcome.MALFORMED], success=False)
    paid = reward(episode, success=1.0, failure=0.0, invalid_action=-0.1, prediction=[0.5, 0.25])
    np.testing.assert_array_equal(paid.penalty, [0.0, -0.1])
    np.testing.assert_array_equal(paid.prediction, [0.5, 0.25])
    assert paid.episode_return == pytest.approx(0.65)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_every_kind_of_invalid_action_costs_the_same(outcome: Outcome) -> None:
    paid = reward(an_episode([outcome], success=False), success=1.0, failure=0.0, invalid_action=-0.5)
    assert paid.episode_return == -0.5


def test_equal_parts_in_another_order_give_exactly_equal_returns() -> None:
    """Or a dead group would look alive: 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ when they are added one by one."""
    early = Reward(0.0, np.array([-0.1, -0.1, 0.0]), np.array([0.1, 0.2, 0.3]))
    late = Reward(0.0, np.array([0.0, -0.1, -0.1]), np.array([0.3, 0.2, 0.1]))
    assert early.prediction.sum() != late.prediction.sum()
    assert early.episode_return == late.episode_return


def test_an_infrastructure_failure_has_no_reward() -> None:
    episode = an_episode([Outcome.OK], success=False, ending=Ending.INFRASTRUCTURE)
    assert not scored(episode)
    with pytest.raises(ValueError, match="no reward"):
        reward(episode, success=1.0, failure=0.0, invalid_action=0.0)


def test_a_signal_of_another_length_than_the_episode_is_refused() -> None:
    with pytest.raises(ValueError, match="one prediction a turn"):
        reward(an_episode([Outcome.OK], success=False), success=1, failure=0, invalid_action=0, prediction=[0.1, 0.2])
