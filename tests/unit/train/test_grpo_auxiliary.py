"""GRPO with an auxiliary loss on a toy game: its gradient by hand, what may not change it, and where it steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_game import POOL, TASKS, FakeGame, game_job, game_policy, run_game
from toy_grpo import weights

from headroom.agent.episode import Turn
from headroom.config.models import Auxiliary, Lora, Trainer
from headroom.policy.load import Policy
from headroom.policy.sampler import TorchSampler
from headroom.train.auxiliary import COLUMNS as AUXILIARY
from headroom.train.auxiliary import Targets, targets
from headroom.train.batch import microbatches
from headroom.train.diagnostics import ASKED, COLUMNS, steps_table
from headroom.train.grpo import collect
from headroom.train.rollout import PhaseSeconds
from headroom.train.trainee import Trainee
from headroom.train.update import NO_LIVE_GROUP, update

KINDS = ("prediction", "shuffled", "random_words")
LORA = Lora(rank=2, alpha=4, target_modules=("q_proj", "v_proj", "down_proj"))
TOLERANCE = 1e-6
"""In float64: the library's norms are float32 all the same."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def a_step(kind: str = "prediction") -> tuple[list[Turn], Targets]:
    """The turns of one step and their targets."""
    policy, job = game_policy(), game_job(auxiliary={"kind": kind})
    sampler = TorchSampler(policy.model, policy.codec.end_ids)
    groups = collect(FakeGame(), policy, sampler, job, TASKS, POOL, 0, PhaseSeconds())
    played = [episode for group in groups for episode in group.episodes]
    found = targets(played, policy.codec, Auxiliary(kind=kind), seed=0, step=0)  # type: ignore[arg-type]
    assert found is not None
    return [turn for episode in played for turn in episode.turns], found


def moved(
    turns: list[Turn], found: Targets | None, *, live: bool, trainer: Trainer | None = None, **changes: Any
) -> tuple[torch.Tensor, Policy, dict[str, Any]]:
    """What one step of plain gradient descent moves, in float64 unless a trainer is given."""
    policy = game_policy()
    if trainer is None:
        policy.model.double()
    trainee = Trainee(policy.model, lambda masters: torch.optim.SGD(masters, lr=1.0), trainer or Trainer())
    before = torch.cat([master.detach().flatten().clone() for master in trainee.parameters()])
    advantage = torch.linspace(-1, 1, len(turns), dtype=torch.float64) * live
    settings = game_job(optimiser={"gradient_clip": 1e9}, **changes).grpo
    row, _ = update(trainee, None, turns, advantage, settings, found)
    return before - torch.cat([master.detach().flatten() for master in trainee.parameters()]), policy, row


def by_hand(found: Targets, folder: Path) -> tuple[float, torch.Tensor]:
    """Loss and gradient from full logits of the library's model, one target at a time, in float64."""
    from transformers import AutoModelForCausalLM

    policy = game_policy()
    policy.model.save_pretrained(str(folder))
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float64)
    nats, tokens = torch.zeros((), dtype=torch.float64), 0
    for target in found.items:
        ids = torch.tensor([*target.prompt_ids, *target.action_ids]).long()
        logits = model(ids[None]).logits[0]
        for place in np.flatnonzero(target.trained):
            here = len(target.prompt_ids) + int(place)
            nats = nats + torch.nn.functional.cross_entropy(logits[here - 1], ids[here])
            tokens += 1
    loss = nats / tokens
    loss.backward()
    named = dict(model.named_parameters())
    return loss.item(), torch.cat([named[name].grad.flatten() for name, _ in policy.model.named_parameters()])


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_librarys_model_by_hand(kind: str, tmp_path: Path) -> None:
    turns, found = a_step(kind)
    assert found.items
    assert found.tokens == sum(int(target.trained.sum()) for target in found.items)
    loss, gradient = by_hand(found, tmp_path)
    change, _, row = moved(turns, found, live=False, auxiliary={"kind": kind, "weight": 0.7})
    assert row["auxiliary_loss"] == pytest.approx(loss, rel=TOLERANCE)
    assert row["auxiliary_tokens"] == found.tokens
    assert gradient.abs().max() > 1e-2
    torch.testing.assert_close(change, 0.7 * gradient, rtol=0, atol=TOLERANCE)


def test_it_is_added_to_the_gradient_of_grpo(tmp_path: Path) -> None:
    turns, found = a_step()
    alone, _, without = moved(turns, None, live=True)
    both, _, row = moved(turns, found, live=True, auxiliary={"kind": "prediction", "weight": 0.3})
    torch.testing.assert_close(both - alone, 0.3 * by_hand(found, tmp_path)[1], rtol=0, atol=TOLERANCE)
    assert row["loss"] == without["loss"], "its own column, not a part of this one"
    assert not AUXILIARY.keys() & without.keys()


@pytest.mark.parametrize("budget", [1, 40, 100])
def test_microbatches_do_not_change_the_gradient(budget: int) -> None:
    turns, found = a_step("shuffled")
    assert len(microbatches(found.items, budget)) > 1
    on = {"kind": "shuffled", "weight": 2.0}
    whole, _, first = moved(turns, found, live=True, auxiliary=on)
    split, _, second = moved(turns, found, live=True, auxiliary=on, microbatch_tokens=budget)
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)
    assert first["auxiliary_loss"] == pytest.approx(second["auxiliary_loss"], rel=1e-12)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_recomputed_blocks_give_the_same_step_to_the_bit(lora: Lora | None) -> None:
    turns, found = a_step()
    on = {"kind": "prediction", "weight": 1.0}
    kept, _, _ = moved(turns, found, live=True, auxiliary=on, trainer=Trainer(lora=lora))
    again, _, _ = moved(turns, found, live=True, auxiliary=on, trainer=Trainer(lora=lora, gradient_checkpointing=True))
    without, _, _ = moved(turns, None, live=True, trainer=Trainer(lora=lora))
    assert torch.equal(kept, again)
    assert not torch.allclose(kept, without, atol=1e-4)


def test_in_bfloat16_with_masters_the_step_is_near_that_of_float32() -> None:
    turns, found = a_step()
    on = {"kind": "prediction", "weight": 1.0}
    plain, _, _ = moved(turns, found, live=False, auxiliary=on, trainer=Trainer())
    low, _, _ = moved(turns, found, live=False, auxiliary=on, trainer=Trainer(precision="bfloat16_masters"))
    assert 0 < float((low - plain).norm() / plain.norm()) < 0.05


def test_a_step_without_a_live_group_is_taken_where_there_is_a_target_and_only_there() -> None:
    turns, found = a_step()
    on = {"kind": "prediction"}
    change, _, row = moved(turns, found, live=False, auxiliary=on, updates_per_rollout=2)
    assert (row["updates"], row["skipped"], row["skip_reason"]) == (2, False, "")
    assert change.abs().max() > 0
    still, _, row = moved(turns, Targets(skipped_turns=len(turns)), live=False, auxiliary=on)
    assert (row["updates"], row["skipped"], row["skip_reason"]) == (0, True, NO_LIVE_GROUP)
    assert (row["auxiliary_loss"], row["auxiliary_skipped_turns"]) == (None, len(turns))
    assert not still.any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_trains_where_everything_fails_and_resumes_to_the_byte(tmp_path: Path, kind: str) -> None:
    changes: dict[str, Any] = {
        "auxiliary": {"kind": kind}, "updates_per_rollout": 2, "reward_invalid_action": 0.0, "entropy_bonus": 0.001,
    }  # fmt: skip
    whole, run = run_game(game_job(**changes), tmp_path / "whole", impossible=True)
    cut = tmp_path / "cut"
    run_game(game_job(**changes), cut, impossible=True)
    (cut / "step-00000003.safetensors").unlink()  # as if it was killed in its last step
    resumed, rest = run_game(game_job(**changes), cut, impossible=True)
    assert torch.equal(weights(whole), weights(resumed))
    assert not torch.equal(weights(whole), weights(game_policy()))
    assert rest.rows == run.rows
    assert all(row["live_groups"] == 0.0 and row["updates"] == 2 for row in run.rows)
    assert set(run.rows[0]) == {*COLUMNS, *ASKED, *AUXILIARY}
    table = steps_table(run.rows)
    assert {name: str(table[name].dtype) for name in AUXILIARY} == AUXILIARY
    assert (table["auxiliary_loss"] > 0).all()
    assert (table["auxiliary_tokens"] > 0).all()


def test_a_run_without_it_has_the_columns_and_the_weights_that_it_had(tmp_path: Path) -> None:
    policy, run = run_game(game_job(), tmp_path / "default")
    other, _ = run_game(game_job(auxiliary={"kind": "none", "weight": 9.0}), tmp_path / "none")
    assert list(steps_table(run.rows).columns) == [*COLUMNS, *ASKED]
    assert torch.equal(weights(policy), weights(other))


def test_the_placebos_differ_from_the_truth_and_from_each_other(tmp_path: Path) -> None:
    ends = [
        weights(run_game(game_job(auxiliary={"kind": kind}), tmp_path / kind)[0]) for kind in (*KINDS, "none")
    ]  # fmt: skip
    assert all(not torch.equal(a, b) for n, a in enumerate(ends) for b in ends[:n])


def test_the_truth_is_learned_and_a_shuffled_block_less(tmp_path: Path) -> None:
    last = {}
    for kind in ("prediction", "shuffled"):
        job = game_job(30, auxiliary={"kind": kind, "weight": 1.0}, learning_rate=1e-3, checkpoint_every=30)
        rows = run_game(job, tmp_path / kind)[1].rows
        last[kind] = float(np.mean([row["auxiliary_loss"] for row in rows[-5:]]))
        assert last[kind] < rows[0]["auxiliary_loss"]
    assert last["prediction"] < 0.5 * last["shuffled"]
