"""Our loss against TRL's GRPOTrainer on the same model and tensors: loss and gradient, for every setting both have."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headroom.agent.episode import Turn
from headroom.config.models import Grpo, Optimiser
from headroom.train.loss import Aggregation, importance_weights, policy_loss, sequence_weights
from headroom.train.trainee import Trainee
from headroom.train.update import update
from headroom.worlds.base import Outcome

PAD, VOCABULARY, LONGEST = 0, 32, 7
BATCH = 6


@pytest.fixture(scope="module")
def trl_setup(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer and a function that builds a trainer around a model; imported late, because TRL takes seconds."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w1"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2")
    folder: Path = tmp_path_factory.mktemp("trl")

    def trainer(model: Qwen3ForCausalLM, beta: float, **settings: Any) -> GRPOTrainer:
        config = GRPOConfig(
            output_dir=str(folder),
            report_to=[],
            bf16=False,
            use_cpu=True,
            per_device_train_batch_size=BATCH,
            num_generations=2,
            max_completion_length=LONGEST,
            epsilon=0.2,
            epsilon_high=0.28,
            use_bias_correction_kl=False,
            **settings,
        )
        result = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["w3 w4"] * BATCH}),
            processing_class=tokenizer,
        )
        result.beta = beta  # after construction, or TRL would look the reference model up on a hub
        return result

    return trainer


def tiny(seed: int = 0) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=VOCABULARY,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=16,
                initializer_range=0.3,
                tie_word_embeddings=True,
                pad_token_id=PAD,
                eos_token_id=2,
            )
        ).eval()


def a_batch(seed: int = 0) -> dict[str, Tensor]:
    """Left-padded prompts and right-padded completions, as TRL holds them, off-policy enough that both sides clip."""
    generator = torch.Generator().manual_seed(seed)
    prompt_lengths, lengths = torch.tensor([5, 3, 4, 5, 2, 5]), torch.tensor([7, 1, 4, 2, 7, 3])
    prompt_mask = (torch.arange(5) >= 5 - prompt_lengths.unsqueeze(1)).long()
    completion_mask = (torch.arange(LONGEST) < lengths.unsqueeze(1)).long()

    def ids(mask: Tensor) -> Tensor:
        return torch.where(mask.bool(), torch.randint(3, VOCABULARY, mask.shape, generator=generator), PAD)

    return {
        "prompt_ids": ids(prompt_mask),
        "prompt_mask": prompt_mask,
        "completion_ids": ids(completion_mask),
        "completion_mask": completion_mask,
        "advantages": torch.tensor([1.5, -0.5, 0.0, -1.0, 0.25, -0.25]),
        "num_items_in_batch": completion_mask.sum(),
        "noise": 0.4 * torch.randn(BATCH, LONGEST, generator=generator),
        "reference_noise": 0.4 * torch.randn(BATCH, LONGEST, generator=generator),
    }


def token_scores(model: Any, batch: dict[str, Tensor], temperature: float = 1.0) -> Tensor:
    """(B, A) log-probabilities of the completions, by a plain forward pass over prompt and completion."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -LONGEST - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(2, batch["completion_ids"].unsqueeze(2)).squeeze(2)


def gradients(model: Any, loss: Tensor) -> Tensor:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def ours(model: Any, batch: dict[str, Tensor], aggregation: Aggregation, beta: float, on_policy: bool) -> Tensor:
    scores = token_scores(model, batch)
    mask = batch["completion_mask"].bool()
    weights = sequence_weights(mask.sum(1).tolist(), aggregation, LONGEST)
    return policy_loss(
        scores,
        scores.detach() if on_policy else scores.detach() + batch["noise"],
        batch["advantages"],
        mask,
        torch.tensor(weights, dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.28,
        kl_beta=beta,
        reference_log_probabilities=scores.detach() + batch["reference_noise"] if beta else None,
    ).loss


@pytest.mark.parametrize("on_policy", [True, False], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(
    ("loss_type", "aggregation"),
    [
        ("grpo", "sequence_mean"),
        ("bnpo", "token_mean"),  # per microbatch in TRL; equal here, where the microbatch is the step
        ("dapo", "token_mean"),
        ("dr_grpo", "constant_length"),
    ],
)
def test_loss_and_gradient_equal_trl(
    trl_setup: Any, loss_type: str, aggregation: Aggregation, beta: float, on_policy: bool
) -> None:
    model, batch = tiny(), a_batch()
    trainer = trl_setup(model, loss_type=loss_type, beta=beta)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    scores = token_scores(model, batch).detach()
    inputs = {name: value for name, value in batch.items() if "noise" not in name}
    if not on_policy:
        inputs["old_per_token_logps"] = scores + batch["noise"]
    if beta:
        inputs["ref_per_token_logps"] = scores + batch["reference_noise"]
    theirs = trainer._compute_loss(trainer.model, inputs)
    expected = gradients(model, theirs)
    mine = ours(model, batch, aggregation, beta, on_policy)
    measured = gradients(model, mine)
    assert expected.abs().max() > 1e-3
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-6)
    torch.testing.assert_close(measured, expected, rtol=0, atol=1e-6)


def test_trl_by_default_multiplies_the_kl_term_by_the_ratio_and_then_differs_from_ours(trl_setup: Any) -> None:
    """Understood, not shared: with the correction the term of a token is ``rho * k3``; ours is ``k3``."""
    model, batch = tiny(), a_batch()
    trainer = trl_setup(model, loss_type="dapo", beta=0.1)
    trainer.args.use_bias_correction_kl = True
    trainer.current_gradient_accumulation_steps = 1
    scores = token_scores(model, batch).detach()
    inputs = {name: value for name, value in batch.items() if "noise" not in name} | {
        "old_per_token_logps": scores + batch["noise"],
        "ref_per_token_logps": scores + batch["reference_noise"],
    }
    corrected = trainer._compute_loss(trainer.model, inputs).item()
    plain = ours(model, batch, "token_mean", 0.1, on_policy=False).item()
    mask = batch["completion_mask"]
    ratio = (-batch["noise"]).exp()
    k3 = batch["reference_noise"].exp() - batch["reference_noise"] - 1
    by_hand = plain + 0.1 * (((ratio - 1) * k3 * mask).sum() / mask.sum()).item()
    assert abs(corrected - plain) > 1e-4
    assert corrected == pytest.approx(by_hand, abs=1e-6)


def test_trl_accumulated_over_microbatches_equals_our_whole_step(trl_setup: Any) -> None:
    """TRL's dapo loss of each half of a step, summed, against our two halves: one denominator for the step."""
    model, batch = tiny(), a_batch()
    trainer = trl_setup(model, loss_type="dapo", beta=0.0, gradient_accumulation_steps=2)
    trainer.current_gradient_accumulation_steps = 2
    trainer.model.train()
    halves = [slice(0, 3), slice(3, 6)]
    model.zero_grad(set_to_none=True)
    for half in halves:
        inputs = {n: v[half] if v.ndim else v for n, v in batch.items() if "noise" not in n}
        trainer._compute_loss(trainer.model, inputs).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    measured = gradients(model, ours(model, batch, "token_mean", 0.0, on_policy=True))
    torch.testing.assert_close(measured, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant_length"])
def test_the_loss_equals_a_float64_computation_token_by_token(aggregation: Aggregation) -> None:
    """Plain Python floats and loops, nothing shared with the implementation."""
    model, batch = tiny().double(), a_batch()
    scores = token_scores(model, batch)
    lengths = batch["completion_mask"].sum(1).tolist()
    total = 0.0
    for row, length in enumerate(lengths):
        sequence = 0.0
        for column in range(length):
            log_ratio = -float(batch["noise"][row, column])
            ratio, advantage = math.exp(log_ratio), float(batch["advantages"][row])
            surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)
            reference = float(batch["reference_noise"][row, column])
            sequence += -surrogate + 0.05 * (math.exp(reference) - reference - 1)
        scale = {
            "token_mean": sum(lengths),
            "sequence_mean": length * len(lengths),
            "constant_length": LONGEST * len(lengths),
        }[aggregation]
        total += sequence / scale
    batch["noise"], batch["reference_noise"] = batch["noise"].double(), batch["reference_noise"].double()
    measured = ours(model, batch, aggregation, 0.05, on_policy=False)
    assert scores.dtype == torch.float64
    assert measured.item() == pytest.approx(total, abs=1e-13)


@pytest.mark.parametrize(("temperature", "beta"), [(1.0, 0.0), (0.7, 0.0), (1.0, 0.1), (0.7, 0.1)])
@pytest.mark.parametrize(
    ("loss_type", "aggregation"), [("grpo", "sequence_mean"), ("dapo", "token_mean"), ("dr_grpo", "constant_length")]
)
def test_a_whole_update_has_the_gradient_of_trl(
    trl_setup: Any, loss_type: str, aggregation: Aggregation, temperature: float, beta: float
) -> None:
    """From turns to gradient by our own path (no padding, shared prompts, microbatches) against TRL's.

    In float64, so that the rounding of a step needs no room; the norms and positions of the library's model stay in
    float32, whence a tolerance in parts of the gradient. The reference is another model.
    """
    batch = {name: value.double() if value.is_floating_point() else value for name, value in a_batch().items()}
    model, reference = tiny().double(), tiny(seed=1).double()
    trainer = trl_setup(model, loss_type=loss_type, beta=beta, temperature=temperature)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    inputs = {name: value for name, value in batch.items() if "noise" not in name}
    if beta:
        with torch.no_grad():
            inputs["ref_per_token_logps"] = token_scores(reference, batch, temperature)
    expected = gradients(model, trainer._compute_loss(trainer.model, inputs))
    fresh = tiny().double()
    turns = [
        Turn(
            prompt[prompt_mask.bool()].numpy().astype("int32"),
            action[action_mask.bool()].numpy().astype("int32"),
            torch.zeros(int(action_mask.sum())).numpy(),
            "",
            Outcome.OK,
        )
        for prompt, prompt_mask, action, action_mask in zip(
            *(batch[name] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")), strict=True
        )
    ]
    settings = Grpo(
        run="parity",
        seed=0,
        init="",
        tasks="mastered",
        learning_rate=1.0,
        aggregation=aggregation,
        max_new_tokens=LONGEST,
        temperature=temperature,
        kl_beta=beta,
        microbatch_tokens=20,
        optimiser=Optimiser(gradient_clip=1e9),
    )
    before = torch.cat([parameter.detach().flatten() for parameter in fresh.parameters()])
    trainee = Trainee(fresh, torch.optim.SGD(fresh.parameters(), lr=1.0))
    update(trainee, reference if beta else None, turns, batch["advantages"].double(), settings)
    after = torch.cat([parameter.detach().flatten() for parameter in fresh.parameters()])
    assert torch.linalg.vector_norm(expected) > 0
    assert torch.linalg.vector_norm(before - after - expected) < 1e-6 * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize("cap", [1.2, 3.0])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_truncated_importance_weights_equal_trls_token_truncate(trl_setup: Any, beta: float, cap: float) -> None:
    """TRL multiplies the clipped term by ``exp(old - sampled)`` clamped at its cap, before it adds the KL term."""
    model, batch = tiny(), a_batch()
    trainer = trl_setup(model, loss_type="dapo", beta=beta)
    trainer.use_vllm, trainer.vllm_importance_sampling_correction = True, True
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    mask, scores = batch["completion_mask"].bool(), token_scores(model, batch).detach()
    sampled = scores + 0.5 * torch.randn(scores.shape, generator=torch.Generator().manual_seed(4))
    inputs = {name: value for name, value in batch.items() if "noise" not in name}
    inputs["old_per_token_logps"] = scores
    inputs["importance_sampling_ratio"] = torch.exp((scores - sampled) * mask).clamp(max=cap)
    if beta:
        inputs["ref_per_token_logps"] = scores + batch["reference_noise"]
    theirs = trainer._compute_loss(trainer.model, inputs)
    expected = gradients(model, theirs)
    own = token_scores(model, batch)
    importance = importance_weights(own, sampled, mask, cap)
    assert 0 < float((importance[mask] == cap).float().mean()) < 1
    weights = torch.tensor(sequence_weights(mask.sum(1).tolist(), "token_mean", LONGEST), dtype=torch.float64)
    mine = policy_loss(
        own, own.detach(), batch["advantages"], mask, weights, clip_low=0.2, clip_high=0.28, kl_beta=beta,
        reference_log_probabilities=inputs.get("ref_per_token_logps"), importance=importance,
    ).loss  # fmt: skip
    measured = gradients(model, mine)
    assert mine.item() == pytest.approx(theirs.item(), abs=1e-6)
    torch.testing.assert_close(measured, expected, rtol=0, atol=1e-6)
