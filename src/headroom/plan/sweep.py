"""How the cost of a whole study grows along one axis at a time: runs, group size, turns, model, GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from headroom.config.models import Row, Study
from headroom.config.resolve import SUPERVISED, Resolved, resolve
from headroom.plan.cost import GPUS
from headroom.plan.estimate import Estimate, estimate, extremes
from headroom.plan.work import PROFILES, Profile

RUNS = (9, 34, 100, 300, 1000)
GROUPS = (4, 8, 16, 32)
TURNS = (1.5, 3.0, 6.0, 10.0)
DEVICES = (8, 16, 32, 64, 128)
MODELS = ("paper-qwen3-1.7b", "paper-qwen3-4b", "paper-qwen3-8b")
GPU = "a100-80gb"
FEW, MANY = 16, 4096
"""GPUs of the plans whose axis is another; as many as one likes."""


def growth(project: Path, scale: str) -> pd.DataFrame:
    """GPU-hours and wall hours of a study, each with its interval, along every axis.

    Columns: axis, value, gpu_hours, gpu_hours_low, gpu_hours_high, wall_hours, wall_hours_low, wall_hours_high.
    """
    return pd.DataFrame([_row(axis, value, plan) for axis, value, plan in _plans(project, scale)])


def _row(axis: str, value: float, plan: Estimate) -> dict[str, float | str]:
    low, high = extremes(plan)
    wall = plan.timetable.wall if plan.timetable is not None else float("nan")
    return {
        "axis": axis,
        "value": value,
        "gpu_hours": plan.gpu_hours,
        "gpu_hours_low": low[0],
        "gpu_hours_high": high[0],
        "wall_hours": wall / 3600,
        "wall_hours_low": low[1] / 3600,
        "wall_hours_high": high[1] / 3600,
    }


def _plans(project: Path, scale: str) -> Iterator[tuple[str, float, Estimate]]:
    own = resolve({"scale": scale}, project)
    profile = PROFILES["pretrained"]

    def plan(of: Resolved, name: str, gpus: int = FEW, episode: Profile = profile) -> Estimate:
        return estimate(project, name, gpu=GPUS[GPU], gpus=gpus, profile=episode, measured=False, resolved=of)

    for number in RUNS:
        yield "runs", number, plan(with_runs(own, number), scale)
    for size in GROUPS:
        runs = tuple(run.model_copy(update={"group_size": size}) for run in own.runs)
        yield "group size", size, plan(replace(own, runs=runs), scale)
    for turns in TURNS:
        yield "turns an episode", turns, plan(own, scale, episode=replace(profile, turns=turns))
    for other in MODELS:
        found = plan(with_model(own, resolve({"scale": other}, project)), scale)
        yield "billion parameters", found.shape.parameters / 1e9, found
    for gpus in DEVICES:
        yield "GPUs", gpus, plan(own, scale, gpus)


def with_model(own: Resolved, other: Resolved) -> Resolved:
    """A study with the model of another, on as many GPUs a job of training as that one gives it."""
    study, given = own.study, other.study
    names = ("trainer", "vllm", "microbatch_tokens")
    grpo: dict[str, object] = {**study.grpo, **{name: given.grpo[name] for name in names if name in given.grpo}}
    trainer = given.sft[SUPERVISED].trainer
    changed = {
        "model": given.model,
        "sft": {name: sft.model_copy(update={"trainer": trainer}) for name, sft in study.sft.items()},
        "grpo": grpo,
        "resources": {**study.resources, **{rule: given.resources[rule] for rule in ("sft", "grpo")}},
    }
    return replace(own, study=study.model_copy(update=changed))


def with_runs(own: Resolved, number: int) -> Resolved:
    """A study of so many runs: the first ones of its table, then more seeds of them, in turn. None is taken apart but
    those of its own table."""
    given = own.runs
    more = [
        given[n % len(given)].model_copy(update={"run": f"more_{n}-{n % 1000:03}", "seed": 1000 + n})
        for n in range(max(0, number - len(given)))
    ]
    runs: tuple[Row, ...] = (*given[:number], *more)
    names = {run.run for run in runs}
    ranked = tuple(name for name in own.mechanism.ranked if name in names or name in own.inits)
    study: Study = own.study
    families = set(study.mechanism.rank_families)
    ranked += tuple(run.run for run in more if run.family in families)
    grafted = {name: regime for name, regime in own.mechanism.grafted.items() if name in names}
    return replace(own, runs=runs, mechanism=replace(own.mechanism, ranked=ranked, grafted=grafted))
