"""GRPO as a whole, on a fake world: what a step may and may not change, how a run ends, and how it resumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_grpo import (
    POOL,
    TASKS,
    FakeButtonsWorld,
    a_rollout,
    run_toy,
    toy_job,
    toy_policy,
    weights,
)  # fmt: skip

from headroom.agent.episode import Turn
from headroom.policy.sampler import TorchSampler
from headroom.train.batch import microbatches
from headroom.train.diagnostics import ASKED, COLUMNS, TIMES, steps_table, timing_table
from headroom.train.groups import step_pages
from headroom.train.grpo import collect, score
from headroom.train.optimiser import adamw
from headroom.train.rollout import PhaseSeconds
from headroom.train.trainee import Trainee
from headroom.train.update import NO_LIVE_GROUP, update
from headroom.worlds.base import Outcome


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def gradient(
    turns: list[Turn], advantage: torch.Tensor, policy: Any = None, reference: Any = None, **changes: Any
) -> torch.Tensor:
    """The gradient of one update, read off a step of plain gradient descent without clipping."""
    policy = policy or toy_policy()
    before = weights(policy)
    optimiser = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    settings = toy_job(optimiser={"gradient_clip": 1e9}, **changes).grpo
    row, _ = update(Trainee(policy.model, optimiser), reference, turns, advantage, settings)
    assert row["updates"] == 1
    return before - weights(policy)


# Learning


def test_it_learns_the_fake_world(tmp_path: Path) -> None:
    _, run = run_toy(toy_job(steps=60, pages_per_step=8, group_size=8), tmp_path)
    first, last = (np.mean([row["success"] for row in rows]) for rows in (run.rows[:5], run.rows[-5:]))
    assert first < 0.7
    assert last > 0.8
    assert run.ending == "finished"


@pytest.mark.parametrize("scope", ["trajectory", "pooled_step"])
@pytest.mark.parametrize("scale", ["none", "group_std", "batch_std"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant_length"])
def test_every_combination_of_factors_runs(tmp_path: Path, scope: str, scale: str, aggregation: str) -> None:
    job = toy_job(2, advantage_scope=scope, advantage_scale=scale, aggregation=aggregation, kl_beta=0.05)
    policy, run = run_toy(job, tmp_path)
    assert len(run.rows) == 2
    assert not torch.equal(weights(policy), weights(toy_policy()))


# What a step may not change


ONE_OR_SEVERAL = pytest.mark.parametrize("budget", [16384, 40], ids=["one microbatch", "several microbatches"])


@ONE_OR_SEVERAL
def test_a_learning_rate_of_zero_gives_a_ratio_of_exactly_one(tmp_path: Path, budget: int) -> None:
    changes = {"learning_rate": 0.0, "updates_per_rollout": 3, "kl_beta": 0.1, "microbatch_tokens": budget}
    policy, run = run_toy(toy_job(**changes), tmp_path)
    assert (len(microbatches(a_rollout(toy_policy())[0], budget)) > 1) == (budget == 40)
    for row in run.rows:
        assert row["ratio_mean"] == row["ratio_max"] == 1.0
        assert row["kl"] == row["approx_kl"] == row["clip_low_share"] == row["clip_high_share"] == 0.0
        assert row["weight_change"] == 0.0
    assert torch.equal(weights(policy), weights(toy_policy()))


def test_no_live_group_means_no_optimiser_step_in_spite_of_momentum_and_decay() -> None:
    policy, decay = toy_policy(), {"weight_decay": 0.1}
    turns, spread = a_rollout(policy)
    settings = toy_job(optimiser=decay).grpo
    optimiser = adamw(settings.optimiser, settings.learning_rate)(list(policy.model.parameters()))
    update(Trainee(policy.model, optimiser), None, turns, spread, settings)  # fills the momentum
    before, state = weights(policy), [int(s["step"]) for s in optimiser.state.values()]
    row, _ = update(Trainee(policy.model, optimiser), None, turns, torch.zeros_like(spread), settings)
    assert (row["skipped"], row["skip_reason"], row["updates"]) == (True, NO_LIVE_GROUP, 0)
    assert row["entropy"] > 0  # still measured
    assert torch.equal(weights(policy), before)
    assert [int(s["step"]) for s in optimiser.state.values()] == state


def test_a_run_in_which_nothing_ever_succeeds_ends_with_the_weights_it_began_with(tmp_path: Path) -> None:
    policy, run = run_toy(toy_job(kl_beta=0.1), tmp_path, world=FakeButtonsWorld(impossible=True))
    assert run.ending == "finished"
    assert all(row["all_fail_groups"] == 1.0 and row["live_groups"] == 0.0 for row in run.rows)
    assert torch.equal(weights(policy), weights(toy_policy()))


def test_a_penalty_makes_groups_live_in_which_everything_fails(tmp_path: Path) -> None:
    """The trap behind a sweep over a shaping weight: the parts of the reward tell it apart from a success."""
    _, run = run_toy(toy_job(reward_invalid_action=-0.1), tmp_path, world=FakeButtonsWorld(impossible=True))
    assert any(row["live_groups"] > 0 for row in run.rows)
    assert all(row["reward_success"] == 0.0 and row["success"] == 0.0 for row in run.rows)
    assert any(row["reward_penalty"] < 0 and row["reward_spread_failing"] > 0 for row in run.rows)


def test_two_updates_against_a_reference_are_the_same_in_one_microbatch_and_in_several() -> None:
    """Each microbatch meets its own old and reference scores in the second update, not its neighbour's."""
    reference = toy_policy().model.requires_grad_(False)
    turns, spread = a_rollout(toy_policy(seed=1))
    rows, moved = [], []
    for budget in (16384, 40):
        policy = toy_policy(seed=1)
        changes = {"updates_per_rollout": 2, "kl_beta": 0.1, "optimiser": {"gradient_clip": 1e9}}
        settings = toy_job(microbatch_tokens=budget, **changes).grpo
        optimiser = torch.optim.SGD(policy.model.parameters(), lr=0.3)
        rows.append(update(Trainee(policy.model, optimiser), reference, turns, spread, settings)[0])
        moved.append(weights(policy))
    one, several = rows
    assert len(microbatches(turns, 40)) > 1
    assert one["updates"] == several["updates"] == 2
    assert one["kl"] > 1e-3
    assert one["ratio_max"] > 1.01
    for name in ("ratio_mean", "ratio_max", "clip_low_share", "clip_high_share", "kl", "approx_kl", "entropy", "loss"):
        assert several[name] == pytest.approx(one[name], rel=1e-4, abs=1e-6), name
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant_length"])
@pytest.mark.parametrize("budget", [1, 40, 150])
def test_microbatches_do_not_change_the_gradient(aggregation: str, budget: int) -> None:
    turns, spread = a_rollout(toy_policy())
    whole = gradient(turns, spread, aggregation=aggregation)
    split = gradient(turns, spread, aggregation=aggregation, microbatch_tokens=budget)
    torch.testing.assert_close(split, whole, rtol=1e-4, atol=1e-6)


def test_the_order_of_turns_does_not_change_the_gradient() -> None:
    turns, spread = a_rollout(toy_policy())
    order = torch.randperm(len(turns), generator=torch.Generator().manual_seed(0))
    shuffled = gradient([turns[i] for i in order.tolist()], spread[order])
    torch.testing.assert_close(shuffled, gradient(turns, spread), rtol=1e-4, atol=1e-6)


def test_a_longer_turn_in_the_batch_does_not_change_the_gradient_of_the_others() -> None:
    """Padding: the same turns beside one of three times the length that has no advantage."""
    turns, spread = a_rollout(toy_policy())
    long = replace(turns[0], prompt_ids=np.tile(turns[0].prompt_ids, 3), action_ids=np.full(3, 7, dtype=np.int32),
                   log_probabilities=np.zeros(3, dtype=np.float32))  # fmt: skip
    alone = gradient(turns, spread, aggregation="sequence_mean")
    beside = gradient(
        [*turns, long], torch.cat([spread, torch.zeros(1, dtype=torch.float64)]), aggregation="sequence_mean"
    )
    torch.testing.assert_close(beside * (len(turns) + 1) / len(turns), alone, rtol=1e-4, atol=1e-6)


def test_logits_are_made_for_the_agents_own_tokens_only() -> None:
    """No logit of an environment token exists in the update, so none can enter the loss."""
    policy = toy_policy()
    turns, spread = a_rollout(policy)
    seen: list[int] = []
    policy.model.lm_head.register_forward_hook(lambda _m, _i, out: seen.append(out.shape[:-1].numel()))
    gradient(turns, spread, policy=policy)
    different = {(turn.prompt_ids.tobytes(), turn.action_ids.tobytes()): len(turn.action_ids) for turn in turns}
    assert sum(seen) == sum(different.values())


def test_the_end_token_is_trained_even_where_padding_has_its_id() -> None:
    policy = toy_policy(pad_id=1)
    prompt = policy.codec.encode_prompt("goal: ash").ids
    turns = [
        Turn(prompt, np.array([2, 1], dtype=np.int32), np.zeros(2, dtype=np.float32), "", Outcome.OK),
        Turn(prompt, np.array([3, 7, 7], dtype=np.int32), np.zeros(3, dtype=np.float32), "", Outcome.OK),
    ]
    both = torch.tensor([1.0, 0.0], dtype=torch.float64)
    with_pad_as_end = gradient(turns, both, policy=policy, aggregation="sequence_mean")
    with_other_pad = gradient(turns, both, aggregation="sequence_mean")
    torch.testing.assert_close(with_pad_as_end, with_other_pad)
    without_end = [replace(turns[0], action_ids=turns[0].action_ids[:1], log_probabilities=np.zeros(1, np.float32))]
    only_first = gradient([*without_end, turns[1]], both, aggregation="sequence_mean")
    assert not torch.allclose(with_pad_as_end, only_first, atol=1e-4)


def test_a_step_on_the_kl_term_alone_lowers_the_kl() -> None:
    reference = toy_policy().model.requires_grad_(False)
    moved = toy_policy(seed=1)
    turns, spread = a_rollout(moved, group_size=40)
    tiny = torch.full_like(spread, 1e-30)  # live, and as good as nothing
    settings = toy_job(kl_beta=1.0, optimiser={"gradient_clip": 1e9}).grpo
    optimiser = torch.optim.SGD(moved.model.parameters(), lr=1e-3)
    kl = [update(Trainee(moved.model, optimiser), reference, turns, tiny, settings)[0]["kl"] for _ in range(5)]
    assert kl == sorted(kl, reverse=True)
    assert kl[-1] < kl[0]


# Who is in the baseline


def test_infrastructure_failures_are_counted_and_enter_neither_baseline_nor_gradient(tmp_path: Path) -> None:
    job = toy_job(steps=1)
    pages = step_pages(TASKS, POOL, seed=0, step=0, count=4)
    world = FakeButtonsWorld(broken=pages[:1])
    _, run = run_toy(job, tmp_path / "a", world=world)
    (row,) = run.rows
    assert row["excluded_episodes"] == job.grpo.group_size
    sampler = TorchSampler(toy_policy().model, (1,))
    groups = collect(world, toy_policy(), sampler, job, TASKS, POOL, 0, PhaseSeconds())
    rewards = score(groups, job.grpo)
    assert [len(group) for group in rewards] == [0, 6, 6, 6]
    survivors = [episode for group in groups[1:] for episode in group.episodes]
    assert row["success"] == np.mean([episode.success for episode in survivors])
    assert row["action_tokens"] == sum(len(turn.action_ids) for episode in survivors for turn in episode.turns)


def test_a_step_in_which_every_episode_is_excluded_is_skipped_and_reported(tmp_path: Path) -> None:
    world = FakeButtonsWorld(broken=[(task, seed) for task in TASKS for seed in POOL])
    policy, run = run_toy(toy_job(steps=2), tmp_path, world=world)
    assert all(row["skipped"] and row["success"] is None and row["excluded_episodes"] == 24 for row in run.rows)
    assert torch.equal(weights(policy), weights(toy_policy()))
    assert steps_table(run.rows)["success"].isna().all()


def test_the_members_of_a_group_meet_one_page_and_do_not_all_act_alike() -> None:
    policy = toy_policy()
    sampler = TorchSampler(policy.model, (1,))
    groups = collect(FakeButtonsWorld(), policy, sampler, toy_job(group_size=16), TASKS, POOL, 0, PhaseSeconds())
    assert all(len({episode.turns[0].prompt_ids.tobytes() for episode in group.episodes}) == 1 for group in groups)
    assert all(len({episode.turns[0].action_text for episode in group.episodes}) > 1 for group in groups)


def test_every_turn_is_trained_with_the_advantage_of_its_own_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def remember_groups(*arguments: Any) -> Any:
        seen["groups"] = collect(*arguments)
        return seen["groups"]

    def remember_update(*arguments: Any) -> Any:
        seen["turns"], seen["advantage"] = arguments[2], arguments[3].tolist()
        return update(*arguments)

    monkeypatch.setattr("headroom.train.grpo.collect", remember_groups)
    monkeypatch.setattr("headroom.train.grpo.update", remember_update)
    pages = step_pages(TASKS, POOL, seed=0, step=0, count=4)
    run_toy(toy_job(1), tmp_path, world=FakeButtonsWorld(broken=pages[1:2]))
    expected = []
    for group in seen["groups"]:
        won = [episode.success for episode in group.episodes]
        for episode in group.episodes if (group.task, group.seed) != pages[1] else ():
            expected += [(id(turn), episode.success - np.mean(won)) for turn in episode.turns]
    assert [id(turn) for turn in seen["turns"]] == [turn for turn, _ in expected]
    assert seen["advantage"] == pytest.approx([value for _, value in expected])
    assert len({round(value, 6) for value in seen["advantage"]}) > 2


def test_a_page_that_comes_again_is_not_sampled_alike_again() -> None:
    policy, job = toy_policy(), toy_job(pages_per_step=1, group_size=16)
    sampler = TorchSampler(policy.model, policy.codec.end_ids)
    actions = []
    for step in (0, 1):
        (group,) = collect(FakeButtonsWorld(), policy, sampler, job, TASKS[:1], POOL[:1], step, PhaseSeconds())
        actions.append([episode.turns[0].action_text for episode in group.episodes])
    assert actions[0] != actions[1]


# What is reported


def test_every_step_reports_every_column_and_the_tables_keep_their_types(tmp_path: Path) -> None:
    _, run = run_toy(toy_job(), tmp_path)
    steps, timing = steps_table(run.rows), timing_table(run.times)
    assert list(steps.columns) == list(COLUMNS)
    assert set(run.rows[0]) == {*COLUMNS, *ASKED}  # the table is without what no step measured
    assert {name: str(dtype) for name, dtype in steps.dtypes.items()} == COLUMNS
    assert list(timing.columns) == ["step", *TIMES]
    assert steps["kl"].isna().all()  # no reference, so no KL; a zero would be a claim
    shares = [name for name in COLUMNS if name.startswith("outcome_")]
    np.testing.assert_allclose(steps[shares].sum(axis=1), 1.0)
    np.testing.assert_allclose(steps["invalid_share"], 1.0 - steps["outcome_ok"])
    parts = steps[["reward_success", "reward_penalty", "reward_prediction"]].sum(axis=1)
    np.testing.assert_allclose(steps["reward_mean"], parts)


@ONE_OR_SEVERAL
def test_several_updates_a_rollout_leave_the_band_and_are_clipped(tmp_path: Path, budget: int) -> None:
    changes = {"updates_per_rollout": 4, "learning_rate": 0.05, "kl_beta": 0.05, "microbatch_tokens": budget}
    _, run = run_toy(toy_job(**changes), tmp_path)
    assert any(row["clip_low_share"] > 0 for row in run.rows)
    assert any(row["clip_high_share"] > 0 for row in run.rows)
    assert all(row["approx_kl"] > 0 and row["ratio_max"] > 1 for row in run.rows if not row["skipped"])
    assert all(row["updates"] == 4 for row in run.rows if not row["skipped"])


def test_the_kl_to_the_initial_policy_starts_at_zero_and_grows(tmp_path: Path) -> None:
    _, run = run_toy(toy_job(steps=6, kl_beta=0.01), tmp_path)
    assert run.rows[0]["kl"] == 0.0
    assert run.rows[-1]["kl"] > 0.0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_trainer_scores_under_the_softmax_that_sampled(tmp_path: Path, temperature: float) -> None:
    _, run = run_toy(toy_job(temperature=temperature), tmp_path)
    assert all(row["sampler_gap"] < 1e-5 for row in run.rows)
