"""What is counted, held to what torch counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headroom.config.models import TinyModel
from headroom.plan import work
from headroom.plan.architecture import Shape, count
from headroom.policy.score import action_log_probabilities
from headroom.policy.tiny import tiny_config, tiny_model
from headroom.train.batch import Example, make_batch

MODEL = TinyModel(width=128, layers=6, heads=4, key_value_heads=4, head_width=32, feed_forward=384)
PROFILE = work.Profile(turns=1, prompt_tokens=61, action_tokens=8)


def tiny_shape() -> Shape:
    return count("tiny", tiny_config(MODEL, vocabulary=600, pad_id=0, end_ids=(1,)))


def test_operations_of_an_update_are_those_that_torch_counts() -> None:
    chance = np.random.default_rng(0)
    draw = lambda size: chance.integers(3, 600, size=size).astype(np.int32)  # noqa: E731
    batch = make_batch([Example(draw(61), draw(8)) for _ in range(12)])
    model = tiny_model(MODEL, vocabulary=600, pad_id=0, end_ids=(1,), seed=0).eval()
    with FlopCounterMode(display=False) as counter:
        action_log_probabilities(model, batch).log_probabilities.sum().backward()
    counted = work.update(tiny_shape(), PROFILE, 12, 12, budget=10**6, recomputed=False, reference=False).update_flops
    # Above: of the last block the prefix needs keys and values alone.
    assert 1.0 <= counted / counter.get_total_flops() < 1.25


def test_a_group_shares_its_first_page_and_no_other() -> None:
    profile = work.Profile(turns=3, prompt_tokens=100, action_tokens=10)
    assert work.prefix_tokens(profile, pages=4, episodes=32) == 100 * (4 + 32 * 2)


def test_recomputation_and_a_reference_add_a_forward_pass_each() -> None:
    def flops(**over: bool) -> float:
        options = {"recomputed": False, "reference": False} | over
        return work.update(tiny_shape(), PROFILE, 4, 32, budget=10**6, **options).update_flops

    assert flops(recomputed=True) == pytest.approx(flops() * 4 / 3)
    assert flops(recomputed=True, reference=True) == pytest.approx(flops() * 5 / 3)


def test_work_adds_up_and_scales() -> None:
    one = work.rollout(tiny_shape(), PROFILE, 4, 8)
    assert one + one == one.times(2)


def test_spectra_grow_with_the_cube_of_the_width() -> None:
    def of(width: int) -> float:
        config = tiny_config(TinyModel(width=width, heads=width // 32, key_value_heads=width // 32,
                                       feed_forward=3 * width), vocabulary=600, pad_id=0, end_ids=(1,))  # fmt: skip
        with torch.no_grad():
            return work.spectra(count("tiny", config))

    assert of(256) == pytest.approx(8 * of(128))
