"""Our advantages against TRL's own lines, run on TRL's own reward tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headroom.train.advantage import Scale, standardise


def trl_advantages(rewards: np.ndarray, scale: str, epsilon: float) -> np.ndarray:
    """TRL 1.16's ``sum_then_normalize`` with its own ``nanstd``; ``rewards`` (groups, n)."""
    from trl.trainer.utils import nanstd

    values = torch.tensor(rewards)
    centred = values - values.nanmean(dim=1, keepdim=True)
    if scale == "group":
        centred = centred / (nanstd(values, dim=1, keepdim=True) + epsilon)
    elif scale == "batch":
        centred = centred / (nanstd(values) + epsilon)
    return centred.numpy()


@pytest.mark.parametrize(("ours", "theirs"), [("none", "none"), ("group_std", "group"), ("batch_std", "batch")])
def test_every_scale_equals_trl_at_the_same_epsilon(ours: Scale, theirs: str) -> None:
    rewards = np.random.default_rng(0).normal(size=(5, 8))
    measured = np.stack(standardise(list(rewards), ours, 1e-4))
    np.testing.assert_allclose(measured, trl_advantages(rewards, theirs, 1e-4), atol=1e-12)


def test_the_population_deviation_of_other_references_differs_by_a_constant_of_the_group_size() -> None:
    """GRPO-Zero divides by n under the root: its advantages are larger by sqrt(n / (n - 1)), for every sample alike."""
    rewards = np.random.default_rng(1).normal(size=8)
    population = (rewards - rewards.mean()) / rewards.std()
    (sample,) = standardise([rewards], "group_std", 0.0)
    np.testing.assert_allclose(population, sample * np.sqrt(8 / 7), atol=1e-12)


def test_trl_gives_a_dead_group_of_inexact_rewards_a_small_advantage_and_ours_gives_zero() -> None:
    rewards = np.full((1, 3), 0.1)
    theirs = trl_advantages(rewards, "group", 1e-4)
    np.testing.assert_allclose(theirs, 0.0, atol=1e-10)
    np.testing.assert_array_equal(standardise(list(rewards), "group_std", 1e-4)[0], 0.0)


def test_a_group_of_one_is_nan_in_trl_before_it_is_patched_and_zero_here() -> None:
    assert np.isnan(trl_advantages(np.array([[1.0]]), "group", 1e-4)).all()
    np.testing.assert_array_equal(standardise([np.array([1.0])], "group_std", 1e-4)[0], [0.0])
