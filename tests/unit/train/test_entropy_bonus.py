"""The entropy bonus against hand-computed numbers and plain autograd on full logits, however a step is cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_grpo import gradient
from toy_grpo import a_rollout, toy_policy, weights

from headroom.policy.score import action_log_probabilities, entropy_of, log_softmax
from headroom.train.batch import make_batch, microbatches
from headroom.train.loss import policy_loss, sequence_weights

BONUS = 0.3


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_the_bonus_by_hand() -> None:
    entropy = torch.tensor([[0.5, 0.25], [1.0, 9.0]], dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros_like(entropy).detach()
    result = policy_loss(
        zeros, zeros, torch.tensor([0.0, 2.0]), torch.tensor([[True, True], [True, False]]),
        torch.tensor([0.5, 0.25], dtype=torch.float64),
        clip_low=0.2, clip_high=0.28, entropy_bonus=0.1, entropy=entropy,
    )  # fmt: skip
    # -A w of the second turn's token, less 0.1 x (0.5 x (0.5 + 0.25) + 0.25 x 1)
    assert result.loss.item() == pytest.approx(-0.5 - 0.1 * (0.375 + 0.25), abs=1e-15)
    result.loss.backward()
    expected = torch.tensor([[-0.05, -0.05], [-0.025, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(entropy.grad, expected, rtol=0, atol=1e-15)


def test_padding_may_hold_anything_and_a_bonus_needs_an_entropy() -> None:
    zeros, mask = torch.zeros(1, 2), torch.tensor([[True, False]])
    settings: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28, "entropy_bonus": 0.1}
    loss = policy_loss(
        zeros, zeros, torch.zeros(1), mask, torch.ones(1), entropy=torch.tensor([[1.0, math.nan]]), **settings
    ).loss
    assert loss.item() == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="entropy_bonus is positive"):
        policy_loss(zeros, zeros, torch.zeros(1), mask, torch.ones(1), **settings)


def _scores(entropy: Any, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = logits.clone().requires_grad_()
    value = entropy(log_softmax(inputs, 0.7))
    (value * torch.arange(1, len(value) + 1)).sum().backward()
    assert inputs.grad is not None
    return value.detach(), inputs.grad


def test_the_gradient_is_that_of_plain_autograd_and_finite_where_a_token_is_impossible() -> None:
    from headroom.policy.score import _Entropy

    logits = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    value, slope = _scores(_Entropy.apply, logits)
    plain, wanted = _scores(lambda log_p: -(log_p.exp() * log_p).sum(-1), logits)
    torch.testing.assert_close(value, plain, rtol=0, atol=1e-14)
    torch.testing.assert_close(slope, wanted, rtol=0, atol=1e-14)
    logits[0, 0], logits[1, 1] = -1e5, -math.inf
    value, slope = _scores(_Entropy.apply, logits)
    assert torch.isfinite(value).all()
    assert torch.isfinite(slope).all()
    assert slope[0, 0] == slope[1, 1] == 0.0


def test_there_is_a_graph_only_where_it_was_asked_for() -> None:
    policy = toy_policy()
    batch = make_batch(a_rollout(policy)[0])
    without = action_log_probabilities(policy.model, batch)
    with_graph = action_log_probabilities(policy.model, batch, entropy_gradient=True)
    assert not without.entropy.requires_grad
    assert with_graph.entropy.requires_grad
    assert torch.equal(without.entropy, with_graph.entropy.detach())
    assert torch.equal(without.log_probabilities, with_graph.log_probabilities)


@pytest.mark.parametrize("chunk", [2**25, 24], ids=["at once", "in chunks"])
def test_the_graph_of_the_entropy_keeps_no_more_logits(chunk: int) -> None:
    policy = toy_policy()
    batch = make_batch(a_rollout(policy)[0])

    def kept(entropy_gradient: bool) -> int:
        storages: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            scored = action_log_probabilities(
                policy.model, batch, logits_at_once=chunk, entropy_gradient=entropy_gradient
            )
        held = sum(storages.values())
        (scored.log_probabilities.sum() + scored.entropy.sum()).backward()
        return held

    # The positions of the entropies in the batch, int64 each; a tensor of logits has 9 numbers a token.
    assert kept(True) - kept(False) <= 2 * 8 * batch.target_mask.numel()


def by_hand(turns: Any, aggregation: str, temperature: float, folder: Path) -> torch.Tensor:
    """The gradient of the weighted entropy from full logits of the library's model, one turn at a time, in float64."""
    from transformers import AutoModelForCausalLM

    policy = toy_policy()
    policy.model.save_pretrained(str(folder))
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float64)
    weight = sequence_weights([len(turn.action_ids) for turn in turns], aggregation, 3)  # type: ignore[arg-type]
    total = torch.zeros((), dtype=torch.float64)
    for turn, share in zip(turns, weight, strict=True):
        ids = torch.tensor([*turn.prompt_ids, *turn.action_ids[:-1]])[None].long()
        logits = model(ids).logits[0, len(turn.prompt_ids) - 1 :]
        p = (logits / temperature).softmax(-1)
        total = total - share * (p * p.log()).sum()
    total.backward()
    found = dict(model.named_parameters())
    return torch.cat([found[name].grad.flatten() for name, _ in policy.model.named_parameters()]).float()


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant_length"])
def test_a_step_adds_the_gradient_of_the_weighted_mean_entropy(tmp_path: Path, aggregation: str) -> None:
    turns, spread = a_rollout(toy_policy(), temperature=1.3)
    changes = {"aggregation": aggregation, "temperature": 1.3}
    added = gradient(turns, spread, entropy_bonus=BONUS, **changes) - gradient(turns, spread, **changes)
    wanted = -BONUS * by_hand(turns, aggregation, 1.3, tmp_path)
    assert wanted.norm() > 1e-3
    torch.testing.assert_close(added, wanted, rtol=1e-3, atol=3e-6)


def test_how_a_step_is_cut_does_not_change_the_gradient() -> None:
    turns, spread = a_rollout(toy_policy())
    assert len(microbatches(turns, 20)) > 2
    one = gradient(turns, spread, entropy_bonus=BONUS)
    for changes in ({"microbatch_tokens": 20}, {"microbatch_tokens": 40}, {"trainer": {"logits_chunk": 2}}):
        torch.testing.assert_close(gradient(turns, spread, entropy_bonus=BONUS, **changes), one, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(one, gradient(turns, spread), atol=1e-4)


def test_a_step_along_the_bonus_raises_the_entropy() -> None:
    policy = toy_policy()
    turns, spread = a_rollout(policy)
    batch = make_batch(turns)
    before = action_log_probabilities(policy.model, batch).entropy.sum()
    moved = -(gradient(turns, spread, entropy_bonus=BONUS) - gradient(turns, spread))
    flat = weights(policy) + moved / moved.norm() * 0.05
    torch.nn.utils.vector_to_parameters(flat, policy.model.parameters())
    assert action_log_probabilities(policy.model, batch).entropy.sum() > before


def test_entropy_without_gradient_is_the_samplers() -> None:
    log_p = log_softmax(torch.zeros(2, 5), 1.0)
    torch.testing.assert_close(entropy_of(log_p), torch.full((2,), math.log(5)))
