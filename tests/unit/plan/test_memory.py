"""Memory by component, held to the tensors that real passes of the real code save."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from headroom.config.models import Lora, TinyModel, Trainer, Vllm
from headroom.plan import memory
from headroom.plan.architecture import Shape, count
from headroom.policy import score
from headroom.policy.sampler import TorchSampler
from headroom.policy.tiny import tiny_config, tiny_model
from headroom.train.batch import Example, make_batch
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee

MODEL = TinyModel(width=128, layers=4, heads=4, key_value_heads=2, head_width=32, feed_forward=384)
BILLIONS = Shape("4b", "qwen3", 4_022_468_096, 100_000_000, 388_956_160, 0, 36, 2560, 32, 8, 128, 9728, 151936)


def tiny_shape() -> Shape:
    return count("tiny", tiny_config(MODEL, vocabulary=600, pad_id=0, end_ids=(1,)))


def saved_bytes(trainer: Trainer, prompts: int = 24, length: int = 60, action: int = 8) -> tuple[int, int]:
    """Bytes that a scoring pass saves for its backward, weights left out; and the tokens of the pass."""
    chance = np.random.default_rng(0)
    draw = lambda size: chance.integers(3, 600, size=size).astype(np.int32)  # noqa: E731
    batch = make_batch([Example(draw(length), draw(action)) for _ in range(prompts)])
    model = tiny_model(MODEL, vocabulary=600, pad_id=0, end_ids=(1,), seed=0).eval()
    trainee = Trainee(model, adamw_of_none(), trainer)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scored = trainee.score(batch)
    assert scored.log_probabilities.requires_grad
    return sum(seen.values()), batch.tokens


def adamw_of_none():
    from headroom.config.models import Optimiser

    return adamw(Optimiser(), 1e-3)


@pytest.mark.parametrize("recomputed", [False, True])
def test_activations_are_those_that_the_real_pass_saves(recomputed: bool) -> None:
    measured, tokens = saved_bytes(Trainer(gradient_checkpointing=recomputed))
    shape = tiny_shape()
    # What the recomputed block needs on top is not saved by the forward pass.
    again = 2 * memory.activations(shape, tokens, 4, recomputed=False) / shape.layers if recomputed else 0
    counted = memory.activations(shape, tokens, 4, recomputed=recomputed) - again
    logits = 8 * 24 * 600 * 4
    assert 0.75 < counted / (measured - logits) < 1.35, (counted, measured, logits)


def test_its_constants_are_the_code_s() -> None:
    assert memory.LOGITS_AT_ONCE == score.LOGITS_AT_ONCE
    assert inspect.signature(TorchSampler).parameters["batch_tokens"].default == memory.CACHE_TOKENS


def test_an_adapter_has_as_many_parameters_as_peft_makes() -> None:
    lora = Lora(rank=4)
    model = tiny_model(MODEL, vocabulary=600, pad_id=0, end_ids=(1,), seed=0).eval()
    trainee = Trainee(model, adamw_of_none(), Trainer(lora=lora))
    assert memory.adapter_parameters(tiny_shape(), lora) == sum(p.numel() for p in trainee.parameters())


def test_full_training_in_bfloat16_holds_eighteen_bytes_a_weight_alone_and_sixteen_shared() -> None:
    trainer = Trainer(precision="bfloat16_masters", gradient_checkpointing=True)
    load = memory.Load(tokens=1, actions=1)
    names = ("weights", "float32 masters", "gradients", "AdamW moments")
    alone = memory.training(BILLIONS, trainer, load, reference=False)["update"]
    assert sum(alone.get(name, 0) for name in names) == 18 * BILLIONS.parameters
    four = memory.training(BILLIONS, trainer.model_copy(update={"processes": 4}), load, reference=False)["update"]
    assert four["float32 masters"] + four["AdamW moments"] == 12 * BILLIONS.parameters / 4


def test_four_billion_weights_need_more_than_one_eighty_gigabyte_device_whole_and_fit_on_four() -> None:
    trainer = Trainer(precision="bfloat16_masters", gradient_checkpointing=True)
    load = memory.Load(tokens=8192, actions=400, cached=10_000, rows=16)
    assert memory.peak(memory.training(BILLIONS, trainer, load, reference=False))[1] > 75e9
    four = trainer.model_copy(update={"processes": 4})
    assert memory.peak(memory.training(BILLIONS, four, load, reference=False))[1] < 50e9


def test_each_component_grows_with_what_it_is_made_of() -> None:
    trainer = Trainer(precision="bfloat16_masters", gradient_checkpointing=True)
    small = memory.training(BILLIONS, trainer, memory.Load(1000, 100, 1000, 4), reference=False)
    large = memory.training(BILLIONS, trainer, memory.Load(2000, 200, 2000, 4), reference=True)
    assert large["update"]["activations"] == pytest.approx(2 * small["update"]["activations"])
    assert large["update"]["logits"] == pytest.approx(2 * small["update"]["logits"])
    assert large["rollout"]["key-value cache"] == pytest.approx(2 * small["rollout"]["key-value cache"])
    assert large["update"]["reference model"] == 2 * BILLIONS.parameters


def test_an_engine_keeps_its_weights_and_its_cache_beside_the_trainer_and_the_sampler_none() -> None:
    trainer = Trainer(precision="bfloat16_masters", gradient_checkpointing=True)
    load, engine = memory.Load(1000, 100, 1000, 4), Vllm(cache_mb=4096)
    moments = memory.training(BILLIONS, trainer, load, reference=False, engine=engine)
    for moment in ("rollout", "update", "end"):
        assert moments[moment]["vLLM weights"] == 2 * BILLIONS.parameters
        assert moments[moment]["vLLM key-value cache"] == 4 * 2**30
    assert "key-value cache" not in moments["rollout"]
    assert moments["load"]["vLLM weights"] == 2 * BILLIONS.parameters, "it is opened before the weights are sharded"
