"""How a GRPO run ends, what it leaves, and how it resumes after a kill at any moment."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
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

from headroom.config.jobs import GrpoJob, dump_job
from headroom.train.diagnostics import COLUMNS, steps_table
from headroom.train.grpo import PATIENCE, main
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee
from headroom.train.update import NOT_FINITE, update


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# How a run ends


class Sabotage:
    """Makes the gradient of one parameter NaN in chosen optimiser steps, counted from 0."""

    def __init__(self, policy: Any, bad: set[int]) -> None:
        self.calls, self.bad = 0, bad
        next(policy.model.parameters()).register_post_accumulate_grad_hook(self)

    def __call__(self, parameter: torch.Tensor) -> None:
        if self.calls in self.bad:
            assert parameter.grad is not None
            parameter.grad.view(-1)[0] = float("nan")
        self.calls += 1


def test_a_gradient_that_is_not_finite_is_counted_and_never_applied() -> None:
    policy = toy_policy()
    turns, spread = a_rollout(policy)
    before = weights(policy)
    Sabotage(policy, {0})
    settings = toy_job().grpo
    row, _ = update(Trainee(policy.model, adamw(settings.optimiser, 1e-3)), None, turns, spread, settings)
    assert (row["skipped"], row["skip_reason"], row["gradient_norm"]) == (True, NOT_FINITE, None)
    assert torch.equal(weights(policy), before)


def test_a_passing_nan_is_survived(tmp_path: Path) -> None:
    policy = toy_policy()
    Sabotage(policy, {1})
    _, run = run_toy(toy_job(steps=5), tmp_path, policy=policy)
    assert [row["skip_reason"] for row in run.rows].count(NOT_FINITE) == 1
    assert run.ending == "finished"
    assert torch.isfinite(weights(policy)).all()


def test_a_lasting_nan_ends_the_run_as_diverged_with_its_rows_and_finite_weights(tmp_path: Path) -> None:
    policy = toy_policy()
    Sabotage(policy, set(range(2, 100)))
    _, run = run_toy(toy_job(steps=20), tmp_path, policy=policy)
    assert run.ending == "diverged"
    assert [row["skip_reason"] for row in run.rows[-PATIENCE:]] == [NOT_FINITE] * PATIENCE
    assert len(run.rows) < 20
    assert torch.isfinite(weights(policy)).all()
    assert len(steps_table(run.rows)) == len(run.rows)


def test_a_policy_without_probabilities_ends_the_run_as_diverged(tmp_path: Path) -> None:
    policy = toy_policy()
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(float("nan"))
    _, run = run_toy(toy_job(), tmp_path, policy=policy)
    assert run.ending == "diverged"
    assert run.rows == []


@pytest.mark.parametrize("every", [1, 4, 50])
def test_a_run_that_diverged_ends_with_a_validation_of_its_last_weights(tmp_path: Path, every: int) -> None:
    policy = toy_policy()
    Sabotage(policy, set(range(2, 100)))
    _, run = run_toy(toy_job(steps=20, validation={"every": every, "pages": 4}), tmp_path, policy=policy)
    assert run.ending == "diverged"
    assert run.validations[-1]["step"] == len(run.rows) < 20
    assert run.validations[-1]["episodes"] == 4
    steps = [row["step"] for row in run.validations]
    assert steps == sorted(set(steps))


def test_a_run_whose_policy_lost_its_probabilities_ends_with_a_validation_that_plays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, update_ = toy_policy(), update

    def breaks(*arguments: Any) -> Any:
        found = update_(*arguments)
        with torch.no_grad():
            policy.model.model.norm.weight.fill_(float("nan"))
        return found

    monkeypatch.setattr("headroom.train.grpo.update", breaks)
    _, run = run_toy(toy_job(steps=20, validation={"every": 5, "pages": 4}), tmp_path, policy=policy)
    assert (run.ending, len(run.rows)) == ("diverged", 1)
    assert [(row["step"], row["episodes"]) for row in run.validations] == [(0, 4), (1, 0)]
    assert run.validations[-1]["success"] is None


# Resume


def test_ten_steps_equal_five_and_a_resume_of_five(tmp_path: Path) -> None:
    changes = {"kl_beta": 0.05, "updates_per_rollout": 2, "checkpoint_every": 5}
    whole, run = run_toy(toy_job(10, **changes), tmp_path / "whole")
    run_toy(toy_job(5, **changes), tmp_path / "split")
    resumed, rest = run_toy(toy_job(10, **changes), tmp_path / "split")
    assert torch.equal(weights(whole), weights(resumed))
    assert rest.rows == run.rows


def test_a_run_that_was_resumed_after_it_diverged_does_not_go_on(tmp_path: Path) -> None:
    policy = toy_policy()
    Sabotage(policy, set(range(100)))
    _, run = run_toy(toy_job(20, checkpoint_every=1), tmp_path, policy=policy)
    _, rest = run_toy(toy_job(20, checkpoint_every=1), tmp_path)
    assert rest.ending == "diverged"
    assert rest.rows == run.rows


def test_killed_at_random_moments_it_ends_with_the_bytes_of_an_unbroken_run(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("toy_grpo.py")), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(process.stdout.split()[-1]) >= 3, process.stderr
    for name in ("weights", "steps.parquet", "validation.parquet"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()


def test_equal_seeds_give_equal_runs_and_other_seeds_other_runs(tmp_path: Path) -> None:
    first, one = run_toy(toy_job(), tmp_path / "1")
    second, two = run_toy(toy_job(), tmp_path / "2")
    other, _ = run_toy(toy_job(seed=1), tmp_path / "3")
    assert torch.equal(weights(first), weights(second))
    assert one.rows == two.rows
    assert not torch.equal(weights(first), weights(other))


def test_global_random_state_is_neither_read_nor_changed(tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, _ = run_toy(toy_job(2), tmp_path / "1")
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second, _ = run_toy(toy_job(2), tmp_path / "2")
    assert torch.equal(weights(first), weights(second))


# The stage


class FakeBrowser(FakeButtonsWorld):
    """The fake world where the stage expects a browser."""

    def __init__(self, settings: Any) -> None:
        super().__init__()

    def counts(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize("bad", [set(), set(range(100))], ids=["finished", "diverged"])
def test_the_stage_leaves_a_checkpoint_tables_and_a_record_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    policy = toy_policy()
    Sabotage(policy, bad)
    monkeypatch.setattr("headroom.train.grpo.load_policy", lambda _: policy)
    monkeypatch.setattr("headroom.worlds.miniwob.world.MiniWob", FakeBrowser)
    monkeypatch.setattr("headroom.worlds.seeds.pool", lambda _: POOL)
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "agent.json").write_text('{"dialect": "web pages"}')
    (tmp_path / "init" / "weights").write_text("a stand-in; the loader is replaced")
    (tmp_path / "task_sets.json").write_text(json.dumps({"mastered": TASKS, "headroom": []}))
    (tmp_path / "job.json").write_text(dump_job(toy_job(5)))
    main(tmp_path / "job.json", tmp_path / "init", tmp_path / "task_sets.json", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["ending"] == ("diverged" if bad else "finished")
    steps = pd.read_parquet(tmp_path / "out" / "steps.parquet")
    assert record["notes"]["steps_skipped"] == steps["skipped"].sum()
    assert steps["skipped"].all() if bad else (steps["live_groups"][steps["skipped"]] == 0.0).all()
    assert set(json.loads((tmp_path / "out" / "manifest.json").read_text())) >= {"steps.parquet"}
    assert len(pd.read_parquet(tmp_path / "out" / "timing.parquet")) == (PATIENCE if bad else 5)
    assert (tmp_path / "out" / "checkpoint" / "model.safetensors").is_file()


def a_stage(folder: Path, job: GrpoJob) -> tuple[Path, Path, Path, Path]:
    """The files that the stage reads, and where it writes."""
    (folder / "init").mkdir()
    (folder / "init" / "agent.json").write_text('{"dialect": "web pages"}')
    (folder / "init" / "weights").write_text("a stand-in; the loader is replaced")
    (folder / "task_sets.json").write_text(json.dumps({"mastered": TASKS, "headroom": []}))
    (folder / "job.json").write_text(dump_job(job))
    return folder / "job.json", folder / "init", folder / "task_sets.json", folder / "out"


def test_the_stage_leaves_a_table_of_validations_only_where_there_were_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.train.grpo.load_policy", lambda _: toy_policy())
    monkeypatch.setattr("headroom.worlds.miniwob.world.MiniWob", FakeBrowser)
    for name, changes in (("with", {"validation": {"every": 2, "pages": 6}}), ("without", {})):
        (tmp_path / name).mkdir()
        main(*a_stage(tmp_path / name, toy_job(4, **changes)))
    table = pd.read_parquet(tmp_path / "with" / "out" / "validation.parquet")
    assert list(table["step"]) == [0, 2, 4]
    assert (table["episodes"] == 6).all()
    assert table[["prediction_score", "anchor_score", "confidence"]].isna().all(axis=None)  # a web page asks nothing
    assert "validation.parquet" in json.loads((tmp_path / "with" / "out" / "manifest.json").read_text())
    assert not (tmp_path / "without" / "out" / "validation.parquet").exists()
    same = [(tmp_path / name / "out" / "steps.parquet").read_bytes() for name in ("with", "without")]
    assert same[0] == same[1]
    assert list(pd.read_parquet(tmp_path / "with" / "out" / "steps.parquet")) == list(COLUMNS)


def test_a_checkpoint_of_another_world_or_too_many_validation_pages_stop_the_stage_before_its_world_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.worlds.open.open_world", lambda *_: pytest.fail("the world was opened"))
    (tmp_path / "other").mkdir()
    other = a_stage(tmp_path / "other", toy_job(4))
    (tmp_path / "other" / "init" / "agent.json").write_text('{"dialect": "text game"}')
    with pytest.raises(SystemExit, match=r"speaks the dialect 'text game', but world\.kind miniwob"):
        main(*other)
    (tmp_path / "other" / "init" / "agent.json").unlink()
    with pytest.raises(SystemExit, match=r"agent\.json is missing; the checkpoint is incomplete"):
        main(*other)
    (tmp_path / "many").mkdir()
    with pytest.raises(SystemExit, match=r"validation\.pages is 999"):
        main(*a_stage(tmp_path / "many", toy_job(4, validation={"every": 1, "pages": 999})))


def test_an_empty_task_set_fails_with_one_line_and_a_logged_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init").mkdir()
    (tmp_path / "task_sets.json").write_text(json.dumps({"mastered": [], "headroom": []}))
    (tmp_path / "job.json").write_text(dump_job(toy_job(5)))
    with pytest.raises(SystemExit, match="'mastered' is empty"):
        main(tmp_path / "job.json", tmp_path / "init", tmp_path / "task_sets.json", tmp_path / "out")
    (log,) = tmp_path.rglob("attempts.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["ending"] == "failed"


def test_a_number_that_was_not_measured_is_not_reported_as_zero() -> None:
    from headroom.train.diagnostics import larger

    assert math.isnan(larger(0.0, math.nan))
    assert math.isnan(larger(math.nan, 1.0))
    assert larger(0.5, 0.25) == 0.5
