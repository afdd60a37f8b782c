"""Advantages: dead groups, scopes, scales, their bounds, and the two propositions of the dark-room study."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.train.advantage import Scale, Scope, advantages, is_dead, standardise
from headroom.train.reward import Reward

SCOPES: tuple[Scope, ...] = ("trajectory", "pooled_step")
SCALES: tuple[Scale, ...] = ("none", "group_std", "batch_std")
every_setting = pytest.mark.parametrize(("scope", "scale"), [(scope, scale) for scope in SCOPES for scale in SCALES])

values = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))
samples = st.lists(values, min_size=2, max_size=20)


def outcome(success: float, turns: int = 1) -> Reward:
    return Reward(success, np.zeros(turns), np.zeros(turns))


def dense(prediction: list[float], success: float = 0.0) -> Reward:
    return Reward(success, np.zeros(len(prediction)), np.array(prediction))


@every_setting
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -0.7, 1 / 3])
def test_a_dead_group_gives_exactly_zero_advantage(scope: Scope, scale: Scale, value: float) -> None:
    dead, live = [outcome(value, 2)] * 3, [outcome(0.0), outcome(1.0)]
    result = advantages([dead, live], scope=scope, scale=scale, epsilon=1e-6)
    assert all((turns == 0.0).all() for turns in result[0])
    assert any((turns != 0.0).any() for turns in result[1])


@every_setting
def test_a_group_of_one_gives_zero_and_never_nan(scope: Scope, scale: Scale) -> None:
    result = advantages([[outcome(1.0)]], scope=scope, scale=scale, epsilon=1e-6)
    np.testing.assert_array_equal(result[0][0], [0.0])


@every_setting
def test_an_empty_group_and_an_empty_step_give_empty_results(scope: Scope, scale: Scale) -> None:
    assert advantages([], scope=scope, scale=scale, epsilon=1e-6) == []
    result = advantages([[], [outcome(0.0), outcome(1.0)]], scope=scope, scale=scale, epsilon=1e-6)
    assert result[0] == []
    assert len(result[1]) == 2


def test_a_float_deviation_would_have_called_this_dead_group_alive() -> None:
    equal = np.array([0.1, 0.1, 0.1])
    assert (equal - equal.mean() != 0).any()  # why equality decides
    assert is_dead(equal)


def test_trajectory_scope_by_hand() -> None:
    group = [outcome(1.0, 2), outcome(0.0, 1), outcome(0.0, 3), outcome(0.0, 1)]
    plain = advantages([group], scope="trajectory", scale="none", epsilon=1e-6)[0]
    np.testing.assert_allclose(plain[0], [0.75, 0.75])
    np.testing.assert_allclose(plain[2], [-0.25, -0.25, -0.25])
    scaled = advantages([group], scope="trajectory", scale="group_std", epsilon=0.0)[0]
    assert scaled[0][0] == pytest.approx(1.5)  # the bound of n = 4, reached by one success


def test_pooled_scope_weighs_long_episodes_more() -> None:
    group = [outcome(1.0, 1), outcome(0.0, 3)]
    pooled = advantages([group], scope="pooled_step", scale="none", epsilon=1e-6)[0]
    np.testing.assert_allclose(pooled[0], [0.75])
    np.testing.assert_allclose(pooled[1], [-0.25, -0.25, -0.25])


def test_pooled_scope_tells_the_turns_of_one_episode_apart_and_trajectory_scope_does_not() -> None:
    group = [dense([0.4, 0.0]), dense([0.0, 0.0])]
    pooled = advantages([group], scope="pooled_step", scale="none", epsilon=1e-6)[0]
    np.testing.assert_allclose(pooled[0], [0.3, -0.1])
    whole = advantages([group], scope="trajectory", scale="none", epsilon=1e-6)[0]
    np.testing.assert_allclose(whole[0], [0.2, 0.2])


def test_batch_deviation_is_shared_and_the_mean_stays_the_groups() -> None:
    groups = [np.array([0.0, 1.0]), np.array([10.0, 20.0])]
    deviation = np.concatenate(groups).std(ddof=1)
    result = standardise(groups, "batch_std", 0.0)
    np.testing.assert_allclose(result[0], np.array([-0.5, 0.5]) / deviation)
    np.testing.assert_allclose(result[1], np.array([-5.0, 5.0]) / deviation)


@every_setting
@given(first=samples, second=samples)
@settings(max_examples=30, deadline=None)
def test_advantages_of_a_group_sum_to_zero_so_nothing_is_normalised_twice(
    scope: Scope, scale: Scale, first: list[float], second: list[float]
) -> None:
    groups = [[outcome(value) for value in first], [outcome(value) for value in second]]
    for group in advantages(groups, scope=scope, scale=scale, epsilon=1e-6):
        assert abs(float(np.concatenate(group).sum())) < 1e-8 * len(group)


@given(samples=samples)
@settings(max_examples=200, deadline=None)
def test_a_standardised_sample_is_at_most_n_minus_one_over_root_n(samples: list[float]) -> None:
    count = len(samples)
    (result,) = standardise([np.array(samples)], "group_std", 0.0)
    assert np.abs(result).max() <= (count - 1) / math.sqrt(count) * (1 + 1e-9)


@pytest.mark.parametrize(("count", "bound"), [(4, 1.5), (200, 14.07)])
def test_the_bound_is_reached_by_one_sample_against_all_others(count: int, bound: float) -> None:
    one = np.zeros(count)
    one[0] = 1.0
    (result,) = standardise([one], "group_std", 0.0)
    assert result[0] == pytest.approx(bound, abs=0.005)


@every_setting
@given(samples=samples, order=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_episodes_does_not_matter(scope: Scope, scale: Scale, samples: list[float], order) -> None:  # type: ignore[no-untyped-def]
    indices = list(range(len(samples)))
    order.shuffle(indices)
    straight = advantages([[outcome(v) for v in samples]], scope=scope, scale=scale, epsilon=1e-6)[0]
    shuffled = advantages([[outcome(samples[i]) for i in indices]], scope=scope, scale=scale, epsilon=1e-6)[0]
    np.testing.assert_allclose([straight[i][0] for i in indices], [turns[0] for turns in shuffled], atol=1e-9)


@given(samples=samples, shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_group_std_ignores_shift_and_scale_of_the_reward(samples: list[float], shift: float, scale: float) -> None:
    rewards = np.array(samples)
    if rewards.std() < 1e-3:
        return
    (before,) = standardise([rewards], "group_std", 0.0)
    (after,) = standardise([rewards * scale + shift], "group_std", 0.0)
    np.testing.assert_allclose(before, after, atol=1e-6)


@pytest.mark.parametrize("scope", SCOPES)
def test_p1_the_shaping_coefficient_cancels_under_the_group_deviation(scope: Scope) -> None:
    """In an all-fail group the dense signal is all there is, and dividing by its deviation undoes its weight."""
    signal = np.random.default_rng(0).uniform(size=(4, 5))

    def shaped(weight: float, scale: Scale) -> np.ndarray:
        group = [dense((weight * row).tolist()) for row in signal]
        return np.concatenate(advantages([group], scope=scope, scale=scale, epsilon=1e-6)[0])

    np.testing.assert_allclose(shaped(0.1, "group_std"), shaped(0.001, "group_std"), rtol=1e-2)
    assert np.abs(shaped(0.001, "group_std")).max() > 1.0  # annealed a hundredfold, it still moves the policy
    np.testing.assert_allclose(shaped(0.1, "none"), 100 * shaped(0.001, "none"), rtol=1e-9)  # centred only: it fades


@pytest.mark.parametrize(("epsilon", "within"), [(1e-8, 1e-4), (1e-6, 2e-3)])
def test_p1_holds_in_a_failing_group_of_pooled_turns_for_any_weight_that_epsilon_does_not_reach(
    epsilon: float, within: float
) -> None:
    """A sweep over the weight of a dense signal is flat: 0.01, 0.1 and 1 teach the same. 200 turns, as in the study."""
    chance = np.random.default_rng(1)
    phi = [chance.choice([0.0, 0.5, 1.0], size=50) for _ in range(4)]

    def shaped(weight: float) -> np.ndarray:
        group = [dense((weight * np.diff(row, prepend=0.0)).tolist()) for row in phi]
        return np.concatenate(advantages([group], scope="pooled_step", scale="group_std", epsilon=epsilon)[0])

    for weight in (0.01, 0.1):
        np.testing.assert_allclose(shaped(weight), shaped(1.0), atol=within * np.abs(shaped(1.0)).max())
    assert np.abs(shaped(0.01)).max() > 1.0


def test_p2_in_pooled_turns_a_signal_that_no_longer_varies_teaches_nothing() -> None:
    shape = np.random.default_rng(2).normal(size=(4, 50))
    sizes = []
    for spread in (1e-2, 1e-7, 1e-9, 0.0):
        group = [dense((0.7 + spread * row).tolist()) for row in shape]
        result = advantages([group], scope="pooled_step", scale="group_std", epsilon=1e-6)[0]
        sizes.append(float(np.abs(np.concatenate(result)).max()))
    assert sizes[0] > 2.0
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < 5e-3
    assert sizes[3] == 0.0


def test_a_channel_of_its_own_by_hand() -> None:
    """Two episodes of one and two turns: outcome 1 and 0, a penalty of -0.5, signals 0.2, 0.0 and 0.4."""
    group = [
        Reward(1.0, np.array([0.0]), np.array([0.2])),
        Reward(0.0, np.array([-0.5, 0.0]), np.array([0.0, 0.4])),
    ]
    plain = advantages([group], scope="pooled_step", scale="none", epsilon=1e-6, channel="decoupled")[0]
    outcome_mean, signal_mean = 0.5 / 3, 0.6 / 3
    np.testing.assert_allclose(plain[0], [(1.0 - outcome_mean) + (0.2 - signal_mean)])
    np.testing.assert_allclose(plain[1], [-0.5 - outcome_mean - signal_mean, -outcome_mean + 0.4 - signal_mean])
    scaled = advantages([group], scope="pooled_step", scale="group_std", epsilon=0.0, channel="decoupled")[0]
    outcomes, signals = np.array([1.0, -0.5, 0.0]), np.array([0.2, 0.0, 0.4])
    wanted = (outcomes - outcomes.mean()) / outcomes.std(ddof=1) + (signals - signals.mean()) / signals.std(ddof=1)
    np.testing.assert_allclose(np.concatenate(scaled), wanted)
    whole = advantages([group], scope="trajectory", scale="group_std", epsilon=0.0, channel="decoupled")[0]
    root = 1 / np.sqrt(2)
    np.testing.assert_allclose(whole[0], [root - root], atol=1e-12)  # outcome 1 against -0.5, signal 0.2 against 0.4
    np.testing.assert_allclose(whole[1], [0.0, 0.0], atol=1e-12)


@every_setting
def test_without_a_signal_a_channel_of_its_own_changes_no_bit(scope: Scope, scale: Scale) -> None:
    groups = [[outcome(1.0, 2), outcome(0.0, 3), Reward(0.0, np.array([-0.1]), np.zeros(1))], [outcome(0.3)] * 2]
    one = advantages(groups, scope=scope, scale=scale, epsilon=1e-6)
    two = advantages(groups, scope=scope, scale=scale, epsilon=1e-6, channel="decoupled")
    for first, second in zip(one, two, strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


def test_p1_does_not_hold_for_the_signal_once_outcomes_differ() -> None:
    def share(weight: float) -> float:
        group = [dense([weight]), dense([0.0]), dense([0.0], success=1.0)]
        first, second, _ = advantages([group], scope="trajectory", scale="group_std", epsilon=1e-6)[0]
        return float(first[0] - second[0])

    assert share(0.001) < 0.02 * share(0.1) * 1.1


def test_p2_the_advantage_dies_with_the_variance_of_the_signal() -> None:
    """While sigma >> epsilon the advantage keeps its size; below epsilon it goes to zero with sigma."""
    shape = np.array([1.0, -1.0, 0.5, -0.5])
    sizes = [float(np.abs(standardise([spread * shape], "group_std", 1e-6)[0]).max()) for spread in (1e-2, 1e-6, 1e-10)]
    assert sizes[0] > 1.0
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 1e-3
    np.testing.assert_array_equal(standardise([0 * shape], "group_std", 1e-6)[0], 0.0)


def test_a_penalty_alone_makes_an_all_fail_group_live() -> None:
    """The trap of a sweep over the shaping weight: the penalty varies in failing groups too, and is scaled up alike."""
    clumsy = Reward(0.0, np.array([-0.1, 0.0]), np.zeros(2))
    group = [clumsy, outcome(0.0, 2), outcome(0.0, 2), outcome(0.0, 2)]
    result = advantages([group], scope="trajectory", scale="group_std", epsilon=1e-6)[0]
    assert result[0][0] == pytest.approx(-1.5, abs=1e-3)
