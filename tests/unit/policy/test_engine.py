"""Which engine samples, and how a canary tells one that answers for another policy."""

import importlib.util

import numpy as np
import pytest
import torch

from headroom.config.models import Grpo
from headroom.policy.canary import PROMPTS, TOKENS, canary_prompts, canary_scores, canary_seeds, judge
from headroom.policy.engine import EngineError, open_engine
from headroom.policy.load import Policy
from headroom.policy.sampler import TorchSampler
from headroom.policy.score import action_log_probabilities
from headroom.train.batch import Example, make_batch


class Codec:
    end_ids = (3, 5)


def settings(**changes):
    plain = {"run": "r", "seed": 0, "init": "sft", "tasks": "mastered", "learning_rate": 1e-4}
    return Grpo.model_validate(plain | changes)


def test_torch_samples_from_the_trained_model_itself_and_needs_no_canary(model, tmp_path):
    engine = open_engine(Policy(model, Codec(), tmp_path), settings())
    assert isinstance(engine, TorchSampler)
    assert (engine.model, engine.end_ids) == (model, (3, 5))
    assert engine.tolerance is engine.sync(model) is None


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_an_environment_without_vllm_is_one_line_with_the_remedy(model, tmp_path):
    with pytest.raises(EngineError, match=r"^engine: vllm needs vLLM.*setup.sh --vllm.*engine: torch$"):
        open_engine(Policy(model, Codec(), tmp_path), settings(engine="vllm"))


def test_canary_prompts_fit_fill_two_blocks_and_begin_differently():
    prompts = canary_prompts(1000, 512, 32)
    assert len(prompts) == len(canary_seeds()) == len(set(canary_seeds())) == PROMPTS
    assert max(len(prompt) for prompt in prompts) == 65
    assert len({tuple(prompt[:5]) for prompt in prompts}) == PROMPTS
    assert all(np.array_equal(a, b) for a, b in zip(prompts, canary_prompts(1000, 512, 32), strict=True))
    assert max(len(prompt) for prompt in canary_prompts(9, 20, 32)) == 20 - TOKENS


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_canary_is_scored_as_the_trainer_scores(any_model, temperature):
    prompts = canary_prompts(37, 60, 16)
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 37, (PROMPTS, TOKENS)))
    measured = canary_scores(any_model, prompts, ids, temperature)
    batch = make_batch([Example(p, a.astype(np.int32)) for p, a in zip(prompts, ids.numpy(), strict=True)])
    expected = action_log_probabilities(any_model, batch, temperature).log_probabilities.detach()
    np.testing.assert_allclose(measured, expected.float(), rtol=1e-5, atol=1e-5)


def scores(*values):
    return np.array([values], dtype=np.float32)


def test_a_gap_above_the_tolerance_is_a_fault_and_below_it_is_reported():
    assert judge(scores(-1.0, -2.0), scores(-1.0, -2.00005), None, 1e-4) == (pytest.approx(5e-5, rel=1e-2), "")
    gap, wrong = judge(scores(-1.0, -2.0), scores(-1.0, -2.3), None, 1e-4)
    assert gap == pytest.approx(0.3)
    assert "0.3 nats off" in wrong


def test_a_number_that_is_none_is_a_fault_of_the_engine_and_the_end_of_a_policy():
    assert judge(scores(np.nan), scores(-1.0), None, 1.0)[1]
    with pytest.raises(FloatingPointError, match="beyond use"):
        judge(scores(-1.0), scores(np.nan), None, 1.0)


def test_an_engine_nearer_to_the_base_than_to_the_adapter_serves_the_base():
    base, trained = scores(-1.0, -2.0), scores(-1.1, -2.2)
    assert "adapter is not applied" in judge(base + 1e-3, trained, base, 0.5)[1]
    assert judge(trained + 1e-3, trained, base, 0.5)[1] == ""
    assert judge(base + 1e-3, base, base, 0.5)[1] == ""  # an adapter that does nothing yet
