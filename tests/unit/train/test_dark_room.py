"""The signs of a dark room: parts of the reward inside a group, and the early warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headroom.train.advantage import advantages
from headroom.train.dark_room import FAILING as COLUMNS
from headroom.train.dark_room import SPREADS, WINDOW, early_warning, failing_groups, part_spreads
from headroom.train.reward import Reward


def a_reward(penalty: list[float], prediction: list[float], success: float = 0.0) -> Reward:
    return Reward(success, np.array(penalty), np.array(prediction))


FAILING = [a_reward([-0.1, 0.0], [0.0, 0.0]), a_reward([0.0, 0.0], [0.1, 0.0])]
MIXED = [a_reward([0.0], [0.0], 10.0), a_reward([0.0], [0.0], 0.0)]


def test_each_part_has_its_own_deviation_over_episodes() -> None:
    row = part_spreads([FAILING, MIXED], [True, False], "trajectory")
    assert tuple(row) == SPREADS
    assert row["spread_success"] == pytest.approx((0 + 5) / 2)
    assert row["spread_penalty"] == row["spread_prediction"] == pytest.approx(0.05 / 2)
    assert row["spread_failing_penalty"] == row["spread_failing_prediction"] == pytest.approx(0.05)
    assert row["spread_failing"] == pytest.approx(0.1)


def test_and_over_turns_where_the_estimator_pools_them() -> None:
    row = part_spreads([FAILING], [True], "pooled_step")
    assert row["spread_failing_penalty"] == pytest.approx(np.std([-0.1, 0, 0, 0]))
    assert row["spread_failing"] == pytest.approx(np.std([-0.1, 0, 0.1, 0]))


def test_a_potential_that_is_always_one_keeps_a_deviation_over_turns_and_none_over_episodes() -> None:
    mastered = [a_reward([0.0] * 6, (0.1 * np.diff(np.ones(6), prepend=0.0)).tolist()) for _ in range(4)]
    assert part_spreads([mastered], [True], "pooled_step")["spread_prediction"] == pytest.approx(0.1 * np.sqrt(5) / 6)
    assert part_spreads([mastered], [True], "trajectory")["spread_prediction"] == 0.0


def test_a_step_without_a_failing_group_or_without_any_episode_measures_nothing() -> None:
    assert part_spreads([MIXED], [False], "pooled_step")["spread_failing"] is None
    assert set(part_spreads([], [], "trajectory").values()) == {None}
    assert part_spreads([[]], [True], "pooled_step")["spread_failing"] == 0.0


@pytest.mark.parametrize(("scale", "factor"), [("none", 2.0), ("group_std", 1.0)])
def test_a_division_takes_the_signals_weight_out_of_a_failing_group_and_a_small_spread_is_not_a_small_advantage(
    scale: Any, factor: float
) -> None:
    small = [a_reward([0.0, 0.0], [1e-4, 0.0]), a_reward([0.0, 0.0], [0.0, 0.0])]
    dead = [a_reward([-0.1, 0.0], [0.0, 0.0]), a_reward([0.0, 0.0], [0.0, 0.0])]
    groups = [FAILING, MIXED, small, dead, []]
    estimates = advantages(groups, scope="pooled_step", scale=scale, epsilon=1e-9)
    kinds: Any = {"scope": "pooled_step", "scale": scale, "epsilon": 1e-9}
    found = failing_groups(groups, estimates, [True, False, True, True, True], **kinds)
    assert tuple(found) == COLUMNS
    assert found["failing_spread"] == pytest.approx([np.std([0.1, 0, 0, 0]), np.std([1e-4, 0, 0, 0]), 0.0])
    assert found["failing_signal_advantage"][2] == 0.0 < found["failing_advantage"][2], "a penalty is still there"
    doubled, once = (np.array(found[name][:2]) for name in (COLUMNS[3], COLUMNS[2]))
    assert doubled / once == pytest.approx(factor, abs=1e-4)
    assert found["failing_advantage"][0] == pytest.approx(np.mean(np.abs(np.concatenate(estimates[0]))))


def rows(**last: Any) -> list[dict[str, Any]]:
    begun = {"entropy": 1.0, "prediction_score": 0.4, "horizon_share": 0.3}
    return [begun] * WINDOW + [begun | {"entropy": 0.3, "prediction_score": 0.97, "horizon_share": 1.0} | last] * WINDOW


def test_the_warning_needs_all_three_signs() -> None:
    assert early_warning(rows())
    assert not early_warning(rows(entropy=0.8))
    assert not early_warning(rows(prediction_score=0.6))
    assert not early_warning(rows(horizon_share=0.5))


def test_there_is_no_warning_before_two_windows_or_without_a_prediction() -> None:
    assert not early_warning(rows()[1:])
    assert not early_warning([])
    assert not early_warning(rows(prediction_score=None))
