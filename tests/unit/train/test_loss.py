"""The loss against hand-computed numbers, and every way of splitting a step that must not change its gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headroom.train.loss import Aggregation, importance_weights, policy_loss, sequence_weights

AGGREGATIONS: tuple[Aggregation, ...] = ("token_mean", "sequence_mean", "constant_length")
CLIP: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28}


def one_token(ratio: float, advantage: float) -> tuple[float, float]:
    """(loss, its derivative in the log-probability) of one token of weight 1, in float64."""
    log_probability = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    result = policy_loss(
        log_probability,
        torch.tensor([[-1.0]], dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([[True]]),
        torch.tensor([1.0], dtype=torch.float64),
        **CLIP,
    )
    result.loss.backward()
    assert log_probability.grad is not None
    return result.loss.item(), log_probability.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on-policy: the derivative is -A
        (1.1, 2.0, -2.2, -2.2),  # inside the band: -rho A
        (1.5, 2.0, -2.56, 0.0),  # above, wanted up: held at 1.28, no gradient
        (1.5, -2.0, 3.0, 3.0),  # above, wanted down: not clipped
        (0.5, -2.0, 1.6, 0.0),  # below, wanted down: held at 0.8, no gradient
        (0.5, 2.0, -1.0, -1.0),  # below, wanted up: not clipped
        (1.25, 2.0, -2.5, -2.5),  # the upper side is wider than the lower one
        (1.1, 0.0, 0.0, 0.0),
    ],
)
def test_both_signs_and_both_clip_sides_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    measured = one_token(ratio, advantage)
    assert measured == pytest.approx((loss, gradient), abs=1e-12)


def test_the_clipped_side_is_reported_only_where_it_removed_a_gradient() -> None:
    ratios = torch.tensor([[1.5, 1.5, 0.5, 0.5, 1.0]], dtype=torch.float64)
    result = {
        sign: policy_loss(
            ratios.log(),
            torch.zeros_like(ratios),
            torch.tensor([sign]),
            torch.ones(1, 5, dtype=torch.bool),
            torch.tensor([1.0]),
            **CLIP,
        )
        for sign in (1.0, -1.0)
    }
    assert result[1.0].clipped_high.tolist() == [[True, True, False, False, False]]
    assert not result[1.0].clipped_low.any()
    assert result[-1.0].clipped_low.tolist() == [[False, False, True, True, False]]
    assert not result[-1.0].clipped_high.any()


def test_weights_by_hand() -> None:
    assert sequence_weights([1, 3], "token_mean", 10) == [0.25, 0.25]
    assert sequence_weights([1, 4], "sequence_mean", 10) == [0.5, 0.125]
    assert sequence_weights([1, 4], "constant_length", 10) == [0.05, 0.05]
    with pytest.raises(ValueError, match="at least one token"):
        sequence_weights([1, 0], "token_mean", 10)
    with pytest.raises(ValueError, match="unknown aggregation"):
        sequence_weights([1], "sum", 10)  # type: ignore[arg-type]


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_means_are_means_and_a_longer_action_weighs_more_only_where_it_should(lengths: list[int]) -> None:
    for aggregation in ("token_mean", "sequence_mean"):
        weights = sequence_weights(lengths, aggregation, 30)
        assert sum(w * n for w, n in zip(weights, lengths, strict=True)) == pytest.approx(1.0)
    per_sequence = [w * n for w, n in zip(sequence_weights(lengths, "sequence_mean", 30), lengths, strict=True)]
    assert per_sequence == pytest.approx([1 / len(lengths)] * len(lengths))


class Step:
    """A step of ragged sequences scored by a small bigram model, so that gradients reach shared parameters."""

    def __init__(self, seed: int = 0, sequences: int = 8) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(1, 7, (sequences,), generator=generator).tolist()
        self.ids = [torch.randint(0, 11, (n + 1,), generator=generator) for n in self.lengths]
        self.table = torch.randn(11, 11, generator=generator, dtype=torch.float64)
        self.advantages = torch.randn(sequences, generator=generator, dtype=torch.float64)
        self.old = [0.4 * torch.randn(n, generator=generator, dtype=torch.float64) for n in self.lengths]
        self.reference = [0.4 * torch.randn(n, generator=generator, dtype=torch.float64) for n in self.lengths]

    def gradient(
        self, batches: list[list[int]], aggregation: Aggregation, padding: int = 0, fill: float = 0.0, beta: float = 0.1
    ) -> tuple[float, Tensor]:
        table = self.table.clone().requires_grad_()
        weights = torch.tensor(sequence_weights(self.lengths, aggregation, 8), dtype=torch.float64)
        total = 0.0
        for rows in batches:
            width = max(self.lengths[i] for i in rows) + padding
            scores = table.log_softmax(-1)

            def padded(parts: list[Tensor], width: int = width) -> Tensor:
                return torch.stack(
                    [torch.nn.functional.pad(part, (0, width - len(part)), value=fill) for part in parts]
                )

            own = [scores[self.ids[i][:-1], self.ids[i][1:]] for i in rows]
            lengths = torch.tensor([self.lengths[i] for i in rows])
            result = policy_loss(
                padded(own),
                padded([o.detach() + self.old[i] for i, o in zip(rows, own, strict=True)]),
                self.advantages[rows],
                torch.arange(width) < lengths.unsqueeze(1),
                weights[rows],
                kl_beta=beta,
                reference_log_probabilities=padded(
                    [o.detach() + self.reference[i] for i, o in zip(rows, own, strict=True)]
                ),
                **CLIP,
            )
            result.loss.backward()
            total += result.loss.item()
        assert table.grad is not None
        return total, table.grad


every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)


@every_aggregation
@pytest.mark.parametrize("size", [1, 2, 4])
def test_microbatches_of_any_size_give_the_gradient_of_the_whole_step(aggregation: Aggregation, size: int) -> None:
    step = Step()
    whole = step.gradient([list(range(8))], aggregation)
    split = step.gradient([list(range(i, i + size)) for i in range(0, 8, size)], aggregation)
    assert split[0] == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(split[1], whole[1], rtol=1e-12, atol=1e-14)


@every_aggregation
def test_unequal_microbatches_in_any_order_give_the_same_gradient(aggregation: Aggregation) -> None:
    step = Step(seed=1)
    whole = step.gradient([list(range(8))], aggregation)
    split = step.gradient([[7, 2, 5], [0], [6, 1, 3, 4]], aggregation)
    assert split[0] == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(split[1], whole[1], rtol=1e-12, atol=1e-14)


@every_aggregation
@pytest.mark.parametrize("fill", [0.0, 7.0, -1e30, math.inf, math.nan])
def test_padding_of_any_width_and_content_changes_nothing(aggregation: Aggregation, fill: float) -> None:
    step = Step(seed=2)
    whole = step.gradient([list(range(8))], aggregation)
    padded = step.gradient([list(range(8))], aggregation, padding=5, fill=fill)
    assert padded[0] == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(padded[1], whole[1], rtol=1e-12, atol=1e-14)


def test_tokens_outside_the_mask_get_no_gradient() -> None:
    scores = torch.randn(2, 4, requires_grad=True, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, False, True, False], [False, True, True, False]])
    result = policy_loss(scores, scores.detach() - 0.1, torch.tensor([1.0, -1.0]), mask, torch.ones(2), **CLIP)
    result.loss.backward()
    assert scores.grad is not None
    assert ((scores.grad != 0) == mask).all()


@given(
    log_probability=st.floats(-20, 0, width=32),
    reference=st.floats(-20, 0, width=32),
)
@settings(max_examples=200, deadline=None)
def test_k3_is_never_negative_and_zero_only_where_the_policies_agree(log_probability: float, reference: float) -> None:
    result = policy_loss(
        torch.tensor([[log_probability]]),
        torch.tensor([[log_probability]]),
        torch.tensor([0.0]),
        torch.tensor([[True]]),
        torch.tensor([1.0]),
        kl_beta=1.0,
        reference_log_probabilities=torch.tensor([[reference]]),
        **CLIP,
    )
    assert result.kl.item() >= 0.0
    if log_probability == reference:
        assert result.kl.item() == 0.0
    if abs(log_probability - reference) > 1e-2:
        assert result.kl.item() > 0.0


def test_k3_by_hand() -> None:
    result = policy_loss(
        torch.tensor([[math.log(0.5)]], dtype=torch.float64),
        torch.tensor([[math.log(0.5)]], dtype=torch.float64),
        torch.tensor([0.0]),
        torch.tensor([[True]]),
        torch.tensor([1.0]),
        kl_beta=0.1,
        reference_log_probabilities=torch.tensor([[math.log(0.25)]], dtype=torch.float64),
        **CLIP,
    )
    assert result.kl.item() == pytest.approx(0.5 - math.log(0.5) - 1)
    assert result.loss.item() == pytest.approx(0.1 * (0.5 - math.log(0.5) - 1))


def test_k3_is_an_unbiased_estimate_of_the_divergence_of_the_policy_from_the_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    reference = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    rows = policy.unsqueeze(1)
    result = policy_loss(
        rows,
        rows,
        torch.zeros(6),
        torch.ones(6, 1, dtype=torch.bool),
        torch.ones(6),
        reference_log_probabilities=reference.unsqueeze(1),
        **CLIP,
    )
    expected = (policy.exp() * result.kl.squeeze(1)).sum()
    torch.testing.assert_close(expected, (policy.exp() * (policy - reference)).sum())


def test_a_step_on_the_kl_term_alone_lowers_the_kl() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 9, generator=generator, dtype=torch.float64).requires_grad_()
    reference = torch.randn(4, 9, generator=generator, dtype=torch.float64).log_softmax(-1)
    ids = torch.multinomial(logits.detach().softmax(-1), 400, replacement=True, generator=generator)

    def kl(values: Tensor) -> Tensor:
        scores = values.log_softmax(-1).gather(1, ids)
        return policy_loss(
            scores,
            scores,
            torch.zeros(4),
            torch.ones_like(ids, dtype=torch.bool),
            torch.full((4,), 1 / 1600),
            kl_beta=1.0,
            reference_log_probabilities=reference.gather(1, ids),
            **CLIP,
        ).loss

    def exact(values: Tensor) -> float:
        policy = values.log_softmax(-1)
        return float((policy.exp() * (policy - reference)).sum())

    before = kl(logits)
    before.backward()
    assert logits.grad is not None
    moved = (logits - 0.5 * logits.grad).detach()
    assert kl(moved) < before
    assert exact(moved) < exact(logits.detach())


def test_the_ratio_of_a_policy_to_itself_is_exactly_one() -> None:
    scores = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    result = policy_loss(
        scores, scores.clone(), torch.ones(3), torch.ones(3, 5, dtype=torch.bool), torch.ones(3), **CLIP
    )
    assert (result.ratio == 1.0).all()
    assert not result.clipped_low.any()
    assert not result.clipped_high.any()


def test_a_missing_reference_is_refused() -> None:
    scores = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="reference"):
        policy_loss(
            scores, scores, torch.ones(1), torch.ones(1, 1, dtype=torch.bool), torch.ones(1), kl_beta=0.1, **CLIP
        )


def test_a_reference_without_weight_is_reported_and_changes_no_gradient() -> None:
    scores = torch.full((1, 2), -1.0, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    plain = policy_loss(scores, scores, torch.ones(1), mask, torch.ones(1), **CLIP)
    reported = policy_loss(
        scores, scores, torch.ones(1), mask, torch.ones(1), reference_log_probabilities=scores - 1, **CLIP
    )
    assert reported.loss.item() == plain.loss.item()
    assert (reported.kl > 0).all()


# Another engine sampled


def test_importance_weights_are_the_truncated_ratio_by_hand() -> None:
    old = torch.tensor([[-1.0, -2.0, -3.0, -0.5]], dtype=torch.float64, requires_grad=True)
    sampled = torch.tensor([[-1.0, -1.5, -6.0, math.nan]], dtype=torch.float32)
    mask = torch.tensor([[True, True, True, False]])
    measured = importance_weights(old, sampled, mask, 2.0)
    assert not measured.requires_grad
    assert measured.tolist() == [pytest.approx([1.0, math.exp(-0.5), 2.0, 1.0])]


def test_an_importance_weight_scales_the_clipped_term_and_not_the_kl_term() -> None:
    generator = torch.Generator().manual_seed(0)
    own, old, reference = (torch.randn(3, 4, generator=generator, dtype=torch.float64) * 0.3 - 1 for _ in range(3))
    mask = torch.arange(4) < torch.tensor([[4], [2], [3]])
    importance = torch.rand(3, 4, generator=generator, dtype=torch.float64) * 2
    advantages = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    weights = torch.tensor(sequence_weights([4, 2, 3], "sequence_mean", 4), dtype=torch.float64)

    def loss(**more: Any) -> tuple[float, Tensor]:
        leaf = own.clone().requires_grad_()
        value = policy_loss(
            leaf, old, advantages, mask, weights, kl_beta=0.1, reference_log_probabilities=reference, **CLIP, **more
        ).loss
        value.backward()
        assert leaf.grad is not None
        return value.item(), leaf.grad

    expected = 0.0
    for row, column in mask.nonzero().tolist():
        ratio = math.exp(float(own[row, column] - old[row, column]))
        advantage, log_ratio = float(advantages[row]), float(reference[row, column] - own[row, column])
        surrogate = min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)
        term = -float(importance[row, column]) * surrogate + 0.1 * (math.exp(log_ratio) - log_ratio - 1)
        expected += float(weights[row]) * term
    assert loss(importance=importance)[0] == pytest.approx(expected, abs=1e-14)
    assert abs(loss()[0] - expected) > 1e-3
    ones, plain = loss(importance=torch.ones_like(own)), loss()
    assert ones[0] == plain[0]
    assert torch.equal(ones[1], plain[1])
