"""The plan of the dark room: long episodes without a browser, validation, and its own jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headroom.config.resolve import grpo_of, resolve
from headroom.plan.architecture import shape_of
from headroom.plan.cost import GPUS
from headroom.plan.estimate import estimate, world_seconds
from headroom.plan.jobs import jobs_of
from headroom.plan.sweep import with_model
from headroom.plan.work import profile_of

PROJECT = Path(__file__).parents[3]
SCALE = "paper-qwen3-4b"


def test_a_plan_has_the_jobs_of_the_study_and_none_of_the_other() -> None:
    resolved = resolve({"scale": SCALE}, PROJECT)
    found = {job.name: job for job in estimate(PROJECT, SCALE, gpu=GPUS["a100-80gb"], gpus=16).jobs}
    assert {f"grpo {run.run}" for run in resolved.runs} <= found.keys()
    assert "dark_room" in found
    assert "filmstrip" not in found
    assert not found["select"].work.world_steps, "no set is chosen, so nothing is played"
    assert "filmstrip" in {job.name for job in estimate(PROJECT, "paper", gpu=GPUS["a100-80gb"], gpus=16).jobs}


def test_an_episode_is_planned_to_its_horizon_and_a_step_of_the_engine_as_measured() -> None:
    study = resolve({"scale": SCALE}, PROJECT).study
    assert profile_of(study).turns == 50
    assert profile_of(resolve({"scale": "dark-room-tiny"}, PROJECT).study).turns == 16
    assert profile_of(resolve({"scale": "hidden-rule-tiny"}, PROJECT).study).turns == 12
    assert profile_of(resolve({"scale": "paper"}, PROJECT).study).turns == 3
    measured = json.loads((PROJECT / "benchmarks/alfworld_speed.json").read_bytes())
    load, step = (measured[f"full_ours_{name}"] for name in ("milliseconds_per_load", "lockstep_milliseconds_per_step"))
    assert world_seconds(PROJECT, study.world) == pytest.approx((step + load / 51) / 1000)
    small = resolve({"scale": "dark-room-tiny"}, PROJECT).study.world
    assert world_seconds(PROJECT, small) < world_seconds(PROJECT, study.world)
    rule = json.loads((PROJECT / "benchmarks/hidden_rule_speed.json").read_bytes())["ours_milliseconds_per_step"]
    assert world_seconds(PROJECT, resolve({"scale": "hidden-rule-tiny"}, PROJECT).study.world) == rule / 1000


def test_validation_costs_the_episodes_that_it_plays() -> None:
    resolved = resolve({"scale": SCALE}, PROJECT)
    shape = shape_of(resolved.study.model, PROJECT)
    profile = profile_of(resolved.study)

    def steps(**validation: int) -> float:
        grpo = {**resolved.study.grpo, "validation": {"every": 5, "pages": 32, **validation}}
        changed = replace(resolved, study=resolved.study.model_copy(update={"grpo": grpo}))
        (job,) = (job for job in jobs_of(changed, SCALE, shape, profile) if job.name == "grpo arm-01")
        return job.work.world_steps

    training = 150 * 32 * 51
    assert steps() == pytest.approx(training + 31 * 32 * 51)
    assert steps(pages=64) == pytest.approx(training + 31 * 64 * 51)
    assert grpo_of(resolved.runs[0], resolved.study, SCALE).steps == 150


def test_an_auxiliary_loss_costs_a_second_pass_over_the_turns_and_no_memory() -> None:
    resolved = resolve({"scale": SCALE}, PROJECT)
    found = jobs_of(resolved, SCALE, shape_of(resolved.study.model, PROJECT), profile_of(resolved.study))
    jobs = {job.name: job for job in found}
    plain, extra = jobs["grpo arm-01"], jobs["grpo arm-20"]
    grpo = resolved.study.grpo
    passes = 3 + grpo["trainer"]["gradient_checkpointing"]  # without those of the reference
    assert grpo["kl_beta"] > 0
    assert extra.work.update_flops == pytest.approx(plain.work.update_flops * (1 + passes / (passes + 1)))
    assert extra.moments == plain.moments
    assert extra.work.generate_flops == plain.work.generate_flops


@pytest.mark.parametrize(
    ("gpu", "gpus", "fits"), [("a100-80gb", 8, True), ("a100-40gb", 8, False), ("a100-80gb", 2, False)]
)
def test_a_plan_that_does_not_fit_says_so(gpu: str, gpus: int, fits: bool) -> None:
    found = estimate(PROJECT, SCALE, gpu=GPUS[gpu], gpus=gpus)
    assert (found.problems == []) == fits


def test_the_growth_of_the_gate_with_the_model_takes_the_dark_rooms_models_and_nothing_else_of_it() -> None:
    own, other = (resolve({"scale": name}, PROJECT) for name in ("paper", "paper-qwen3-8b"))
    found = with_model(own, other)
    assert found.runs == own.runs
    assert found.study.model == other.study.model
    assert found.study.world == own.study.world
    assert found.study.sft.keys() == own.study.sft.keys()
    assert found.study.resources["grpo"].gpu == 8
    assert grpo_of(found.runs[0], found.study, "paper").trainer.processes == 8
