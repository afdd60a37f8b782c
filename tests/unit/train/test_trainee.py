"""Precision, recomputation, chunks and adapters: what they may change (memory) and what not (the step)."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from toy_grpo import POOL, TASKS, FakeButtonsWorld, toy_job
from toy_processes import deep_policy

from headroom.agent.episode import Turn
from headroom.config.models import Lora, Optimiser, TinyModel, Trainer
from headroom.policy.decoder import Decoder
from headroom.policy.sampler import TorchSampler
from headroom.policy.tiny import tiny_config
from headroom.train.batch import make_batch
from headroom.train.grpo import collect, train
from headroom.train.optimiser import adamw
from headroom.train.rollout import PhaseSeconds
from headroom.train.trainee import Trainee
from headroom.train.update import update

LORA = Lora(rank=2, alpha=4, target_modules=("q_proj", "v_proj", "down_proj"))
LOW = Trainer(precision="bfloat16_masters")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    policy = deep_policy()
    sampler = TorchSampler(policy.model, policy.codec.end_ids)
    groups = collect(FakeButtonsWorld(), policy, sampler, toy_job(), TASKS, POOL, 0, PhaseSeconds())
    return [turn for group in groups for episode in group.episodes for turn in episode.turns]


def gradients(turns: list[Turn], trainer: Trainer, seed: int = 0) -> tuple[Trainee, dict[str, torch.Tensor]]:
    """One backward pass of a weighted sum of log-probabilities."""
    trainee = Trainee(deep_policy().model, adamw(Optimiser(), 1e-3), trainer, seed=seed)
    scored = trainee.score(make_batch(turns)).log_probabilities
    trainee.backward((scored * torch.linspace(-1, 1, scored.numel()).view(scored.shape)).sum())
    return trainee, {name: master.grad for name, master in trainee.masters.items() if master.grad is not None}


def digest(model: nn.Module) -> dict[str, str]:
    """Of every tensor that is not an adapter's."""
    return {
        name.replace(".base_layer", ""): hashlib.sha256(value.detach().view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, value in model.named_parameters()
        if ".lora_" not in name
    }


def relative_error(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert found.keys() == expected.keys()
    difference = torch.cat([(found[name] - expected[name]).flatten() for name in expected])
    return float(difference.norm() / torch.cat([value.flatten() for value in expected.values()]).norm())


# The plain layout


def test_in_float32_the_masters_are_the_models_own_parameters() -> None:
    model = deep_policy().model
    trainee = Trainee(model, adamw(Optimiser(), 1e-3))
    assert [id(master) for master in trainee.parameters()] == [id(parameter) for parameter in model.parameters()]
    assert "run_part" not in model.__dict__
    assert all("run_part" not in layer.__dict__ for layer in model.model.layers)


def test_a_plain_run_imports_no_adapter_library_and_no_shards() -> None:
    code = "import sys, headroom.train.grpo, headroom.train.sft as s; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"peft", "transformers", "torch.distributed.fsdp", "torch.distributed.tensor"} & set(loaded)


# Recomputation and chunks


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_recomputed_blocks_give_the_same_gradient_to_the_bit(turns: list[Turn], lora: Lora | None) -> None:
    _, kept = gradients(turns, Trainer(lora=lora))
    trainee, recomputed = gradients(turns, Trainer(lora=lora, gradient_checkpointing=True))
    assert all(torch.equal(recomputed[name], kept[name]) for name in kept)
    trainee.finish()
    assert all("run_part" not in layer.__dict__ for layer in trainee.model.model.layers)


def test_recomputation_keeps_less_for_the_backward_pass(turns: list[Turn]) -> None:
    def kept(trainer: Trainer) -> int:
        trainee, sizes = Trainee(deep_policy().model, adamw(Optimiser(), 1e-3), trainer), []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            trainee.score(make_batch(turns))
        return sum(sizes)

    assert kept(Trainer(gradient_checkpointing=True)) < 0.6 * kept(Trainer())


@pytest.mark.parametrize("chunk", [1, 2, 7, 10**6])
def test_logits_in_chunks_give_the_same_scores_and_gradient(turns: list[Turn], chunk: int) -> None:
    plain, expected = gradients(turns, Trainer())
    chunked, found = gradients(turns, Trainer(logits_chunk=chunk))
    batch = make_batch(turns)
    for own, other in zip(chunked.score(batch), plain.score(batch), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-6)
    assert relative_error(found, expected) < 1e-6


# bfloat16 with float32 masters


def test_in_bfloat16_the_model_computes_low_and_everything_that_accumulates_is_float32(turns: list[Turn]) -> None:
    trainee, found = gradients(turns, LOW)
    assert {parameter.dtype for parameter in trainee.model.parameters()} == {torch.bfloat16}
    assert all(parameter.grad is None for parameter in trainee.model.parameters())
    assert {master.dtype for master in trainee.parameters()} == {value.dtype for value in found.values()}
    assert {master.dtype for master in trainee.parameters()} == {torch.float32}
    trainee.step()
    moments = [value for state in trainee.optimiser.state.values() for value in state.values()]
    assert {value.dtype for value in moments} == {torch.float32}
    assert trainee.score(make_batch(turns)).log_probabilities.dtype == torch.float32


def test_the_gradient_in_bfloat16_is_that_of_float32_to_its_precision(turns: list[Turn]) -> None:
    _, expected = gradients(turns, Trainer())
    _, found = gradients(turns, LOW)
    assert 1e-6 < relative_error(found, expected) < 0.03  # one rounding of bfloat16 is 0.004


def test_steps_too_small_for_bfloat16_add_up_in_the_masters() -> None:
    trainee = Trainee(deep_policy().model, lambda masters: torch.optim.SGD(masters, lr=1.0), LOW)
    name = "model.layers.0.mlp.up_proj.weight"
    own, master = dict(trainee.model.named_parameters())[name], trainee.masters[name]
    before, without = own.detach().clone(), own.detach().clone()
    for _ in range(64):
        master.grad = master.detach().abs() * 2.0**-11  # less than half of the distance to the next bfloat16
        without -= without.abs() * 2.0**-11
        trainee.step()
    assert torch.equal(without, before)
    assert float((own != before).float().mean()) > 0.9
    assert torch.equal(own, master.to(torch.bfloat16))


def test_the_finished_model_holds_the_masters_in_float32_and_ties_its_embedding(turns: list[Turn]) -> None:
    trainee, _ = gradients(turns, LOW)
    trainee.step()
    masters = {name: master.detach().clone() for name, master in trainee.masters.items()}
    trainee.finish()
    found = dict(trainee.model.named_parameters())
    assert all(torch.equal(found[name], masters[name]) for name in masters)
    assert trainee.model.lm_head.weight is trainee.model.model.embed_tokens.weight


@pytest.mark.parametrize("trainer", [LOW, Trainer(lora=LORA), LOW.model_copy(update={"lora": LORA})])
def test_six_steps_are_three_and_three_after_a_resume_to_the_bit(tmp_path: Path, trainer: Trainer) -> None:
    job = toy_job(6, checkpoint_every=3, kl_beta=0.02).model_copy()
    job = job.model_copy(update={"grpo": job.grpo.model_copy(update={"trainer": trainer})})

    def run() -> dict[str, torch.Tensor]:
        policy = deep_policy()
        reference = policy.model if trainer.lora else deep_policy().model.requires_grad_(False)
        train(policy, reference, FakeButtonsWorld(), job, TASKS, POOL, scratch=tmp_path)
        return policy.model.state_dict()

    unbroken = run()
    (tmp_path / "step-00000006.safetensors").unlink()
    resumed = run()
    assert all(torch.equal(resumed[name], unbroken[name]) for name in unbroken)


# LoRA


@pytest.mark.parametrize("precision", ["float32", "bfloat16_masters"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_after_the_first_backward_pass_every_b_has_a_gradient(
    turns: list[Turn], precision: Any, checkpointing: bool
) -> None:
    trainer = Trainer(precision=precision, gradient_checkpointing=checkpointing, lora=LORA)
    trainee, found = gradients(turns, trainer)
    second_factors = [name for name in trainee.masters if ".lora_B." in name]
    assert len(second_factors) == 3 * 3
    assert all(bool(found[name].any()) for name in second_factors)
    assert all(not found[name].any() for name in trainee.masters if ".lora_A." in name)  # B is zero
    assert all(parameter.grad is None for name, parameter in trainee.model.named_parameters() if ".lora_" not in name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16_masters"])
def test_the_base_is_the_same_to_the_byte_before_during_and_after_training(turns: list[Turn], precision: Any) -> None:
    policy = deep_policy()
    before = digest(policy.model)
    trainee = Trainee(policy.model, adamw(Optimiser(), 1e-2), Trainer(precision=precision, lora=LORA))
    held = digest(policy.model)
    settings = toy_job(kl_beta=0.05).grpo
    for _ in range(3):
        update(trainee, policy.model, turns, torch.linspace(-1, 1, len(turns), dtype=torch.float64), settings)
    assert digest(policy.model) == held
    assert (held == before) == (precision == "float32")
    trainee.finish()
    after = digest(policy.model)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.split(".")[-2] in LORA.target_modules}


def test_an_untrained_adapter_changes_nothing_and_the_kl_to_its_base_is_zero(turns: list[Turn]) -> None:
    plain = Trainee(deep_policy().model, adamw(Optimiser(), 1e-3))
    trainee = Trainee(deep_policy().model, adamw(Optimiser(), 1e-3), Trainer(lora=LORA))
    batch = make_batch(turns)
    assert torch.equal(trainee.score(batch).log_probabilities, plain.score(batch).log_probabilities)
    assert torch.equal(trainee.score_base(batch), plain.score(batch).log_probabilities)
    with torch.no_grad():
        for name, master in trainee.masters.items():
            if ".lora_B." in name:
                master.fill_(0.1)
    assert not torch.equal(trainee.score(batch).log_probabilities, plain.score(batch).log_probabilities)
    assert torch.equal(trainee.score_base(batch), plain.score(batch).log_probabilities)
    assert all(master.requires_grad for master in trainee.parameters())


def test_equal_seeds_give_equal_factors_whatever_the_global_random_state() -> None:
    def factors(seed: int) -> torch.Tensor:
        trainee = Trainee(deep_policy().model, adamw(Optimiser(), 1e-3), Trainer(lora=LORA), seed=seed)
        return torch.cat([master.detach().flatten() for master in trainee.parameters()])

    first = factors(1)
    torch.rand(3)
    assert torch.equal(factors(1), first)
    assert not torch.equal(factors(2), first)


def test_a_layer_that_the_model_does_not_have_is_refused() -> None:
    lora = Lora(target_modules=("q_proj", "query"))
    with pytest.raises(ValueError, match=r"trainer.lora.target_modules: .*'query'; it has .*q_proj"):
        Trainee(deep_policy().model, adamw(Optimiser(), 1e-3), Trainer(lora=lora))


# Settings and memory


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValidationError):
        Trainer.model_validate({"lora": {"dropout": 0.1}})
    with pytest.raises(ValidationError):
        Trainer.model_validate({"precision": "float16"})


@pytest.mark.parametrize(
    ("layers", "width", "feed_forward", "billions"), [(36, 2560, 9728, 4.0), (36, 4096, 12288, 8.2)], ids=["4B", "8B"]
)
def test_a_step_of_a_large_model_holds_the_bytes_a_weight_that_the_layout_says(
    layers: int, width: int, feed_forward: int, billions: float
) -> None:
    """Counted on the meta device, which has shapes and types and no memory: Qwen3-4B and -8B, AdamW, masters."""
    shape = TinyModel(
        width=width, layers=layers, heads=32, key_value_heads=8, head_width=128, feed_forward=feed_forward,
        tied_embeddings=width == 2560,
    )  # fmt: skip
    with torch.device("meta"):
        model = Decoder(tiny_config(shape, vocabulary=151936, pad_id=0, end_ids=(1,)))
    trainee = Trainee(model, adamw(Optimiser(), 1e-5), LOW)
    count = sum(master.numel() for master in trainee.parameters())
    assert count / 1e9 == pytest.approx(billions, rel=0.02)
    for master in trainee.parameters():
        master.grad = torch.empty_like(master)
    trainee.step()
    held = {
        "weights": list(model.parameters()),
        "masters": list(trainee.parameters()),
        "gradients": [master.grad for master in trainee.parameters()],
        "moments": [value for s in trainee.optimiser.state.values() for k, value in s.items() if k != "step"],
    }
    sizes = {name: sum(t.numel() * t.element_size() for t in tensors) / count for name, tensors in held.items()}
    assert sizes == {"weights": 2, "masters": 4, "gradients": 4, "moments": 8}
