"""One study at one scale on one kind of GPU: seconds, GPU-hours, bytes, and what of it does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.config.models import AlfWorldSettings, HiddenRuleSettings, PretrainedModel, TinyModel, WorldSettings
from headroom.config.resolve import ConfigError, Resolved, grpo_of, resolve
from headroom.plan import cost, memory
from headroom.plan.architecture import Shape, shape_of
from headroom.plan.cost import Fit, Gpu, Rates, Whole
from headroom.plan.jobs import Job, Schedule, jobs_of, schedule
from headroom.plan.work import Profile, profile_of
from headroom.policy.files import ARCHITECTURES

TABLE = "benchmarks/cost.csv"
RUNS = "benchmarks/cost_runs.csv"
WORLD, TEXT_WORLD = "benchmarks/world_speed.json", "benchmarks/alfworld_speed.json"
RULE_WORLD = "benchmarks/hidden_rule_speed.json"
WRITE_BYTES = 1e9
"""Assumed: bytes of a checkpoint written a second, to a shared file system."""
PROCESSOR_FLOPS = 2e10
"""Assumed: float64 operations a second and thread, of ranks and spectra."""
TB, GB = 1e12, 1e9


@dataclass
class Estimate:
    """What a study costs. Intervals hold 95% for the form of the cost and the assumed range of a GPU's rates."""

    scale: str
    shape: Shape
    profile: Profile
    rates: dict[str, Rates]
    jobs: list[Job]
    gpus: int
    cores: int | None
    timetable: Schedule | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def gpu_hours(self) -> float:
        """Over all jobs."""
        return sum(job.seconds * job.resources.gpu for job in self.jobs) / 3600

    @property
    def kept(self) -> float:
        """Bytes that stay."""
        return sum(job.kept for job in self.jobs)

    @property
    def scratch(self) -> float:
        """Bytes of resume states at a time, at most: those of as many training jobs as run side by side."""
        return max((job.scratch * self.beside(job) for job in self.jobs), default=0.0)

    def beside(self, job: Job) -> int:
        """How many jobs of this rule may run at a time."""
        alike = sum(other.rule == job.rule for other in self.jobs)
        return min(alike, self.gpus // job.resources.gpu) if job.resources.gpu else alike


def fits(project: Path) -> dict[str, Fit]:
    """The fit of every phase on the committed measurements.

    Raises:
        ConfigError: the table is missing.
    """
    try:
        table = pd.read_csv(project / TABLE)
    except OSError as error:
        raise ConfigError(f"{TABLE}: cannot be read ({error.strerror}); type: python benchmarks/cost.py") from error
    return {phase: cost.fit(table, phase) for phase in cost.PHASES}


def whole_jobs(project: Path) -> Whole:
    """The fit of whole jobs on the committed records of runs.

    Raises:
        ConfigError: the table is missing.
    """
    try:
        return cost.whole(pd.read_csv(project / RUNS))
    except OSError as error:
        raise ConfigError(f"{RUNS}: cannot be read ({error.strerror}); restore it with git checkout {RUNS}") from error


def world_seconds(project: Path, world: WorldSettings | None = None) -> float:
    """Processor seconds of a step or a reset of a world (default: of a page), as measured.

    Of a text game there is no browser: its step, and its load shared out over an episode to the horizon, as if each
    episode loaded its own. What a model takes is fitted on MiniWoB++ at scale tiny, whatever the world.
    """
    name = TEXT_WORLD if isinstance(world, AlfWorldSettings) else WORLD
    name = RULE_WORLD if isinstance(world, HiddenRuleSettings) else name
    try:
        found = json.loads((project / name).read_bytes())
        if isinstance(world, HiddenRuleSettings):
            return float(found["ours_milliseconds_per_step"]) / 1000
        if not isinstance(world, AlfWorldSettings):
            return float(found["ours_cpu_milliseconds_per_step_or_reset"]) / 1000
        size = "full" if world.games == "released" else "default"
        load = float(found[f"{size}_ours_milliseconds_per_load"]) / (world.horizon + 1)
        return (float(found[f"{size}_ours_lockstep_milliseconds_per_step"]) + load) / 1000
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{name}: cannot be read ({error}); type: python {name.replace('.json', '.py')}") from error


def estimate(
    project: Path,
    scale: str,
    *,
    gpu: Gpu,
    gpus: int,
    cores: int = 2,
    disk: float | None = None,
    profile: Profile | None = None,
    measured: bool = True,
    resolved: Resolved | None = None,
) -> Estimate:
    """Plan a scale.

    Args:
        project: the folder with the Snakefile.
        scale: a name in workflow/scales/.
        gpu: the device by its data sheet, its memory as given on the command line.
        gpus: how many there are.
        cores: of one machine, for a study without GPUs; on a cluster, jobs without a GPU never wait.
        disk: bytes there are, or None: not checked.
        profile: of an episode; default: by the kinds of model and world.
        measured: whether finished runs of this scale correct the rates.
        resolved: the study, where it is not the scale's own.

    Raises:
        ConfigError: a setting or a file is wrong.
    """
    resolved = resolved or resolve({"scale": scale}, project)
    model = resolved.study.model
    shape = shape_of(model, project)
    profile = profile or profile_of(resolved.study)
    jobs, found = jobs_of(resolved, scale, shape, profile), fits(project)
    page = world_seconds(project, resolved.study.world)
    low, full = (cost.assumed(gpu, found, low_precision=low) for low in (True, False))
    tiny = whole_jobs(project) if isinstance(model, TinyModel) else None
    rates = {"processor": cost.processor(found, tiny)}
    if any(job.resources.gpu for job in jobs):
        rates |= {"bfloat16": low, "float32": full}
    for job in jobs:
        job.seconds = job_seconds(job, rates, page, tiny)
    alone = not any(job.resources.gpu for job in jobs)
    plan = Estimate(scale, shape, profile, rates, jobs, gpus, cores if alone else None)
    if measured:
        _correct(plan, project / "results" / scale)
    _check(plan, gpu, disk, resolved)
    return plan


def rates_of(job: Job, rates: dict[str, Rates]) -> Rates:
    """Those of the device and the precision that a job works in."""
    if not job.resources.gpu:
        return rates["processor"]
    low = job.trainer is not None and job.trainer.precision == "bfloat16_masters"
    return rates["bfloat16" if low else "float32"]


def job_seconds(job: Job, rates: dict[str, Rates], page: float, tiny: Whole | None = None) -> float:
    """Predicted wall seconds: start, model, pages, checkpoints, and algebra on processors.

    Of a released model nothing is known of how often the turns of a group are equal: as if never, an upper bound.
    """
    own = rates_of(job, rates)
    if job.trainer is None:
        weight_bytes = job.moments.get("rollout", {}).get("weights", 0.0)
    else:
        weight_bytes = (2 if own is rates.get("bfloat16") else 4) * _parameters(job)
    model = cost.seconds(job.work, own, weight_bytes=weight_bytes, processes=job.processes)
    world = job.work.world_steps * page / job.processes
    # Only jobs that play several samples a page share turns; SFT and demonstrations cost what is counted.
    shared = tiny is not None and job.work.generate_flops > 0
    played = tiny.seconds(model, world) if tiny is not None and shared else job.fixed_seconds + model + world
    return played + job.work.written / WRITE_BYTES + job.processor / (PROCESSOR_FLOPS * job.resources.threads)


def _parameters(job: Job) -> float:
    return job.moments["load"]["float32 weights"] / 4


def _correct(plan: Estimate, results: Path) -> None:
    """Scale the times of a stage by what its finished jobs took, and take the interval from them."""
    measured: dict[str, list[float]] = {}
    by_name = {f"{job.rule}/{job.name.rpartition(' ')[2]}": job for job in plan.jobs}
    by_name |= {job.rule: job for job in plan.jobs if " " not in job.name}
    for row in cost.recorded(results):
        job = by_name.get(str(row["job"]))
        if job is not None and job.seconds:
            measured.setdefault(job.rule, []).append(float(row["wall_seconds"]) / job.seconds)
    for rule, ratios in sorted(measured.items()):
        factor = float(np.median(ratios))
        for job in plan.jobs:
            if job.rule == rule:
                job.seconds *= factor
        spread = (
            f", 95% of new ones within a factor {cost.interval(np.array(ratios))[1] / factor:.2g}"
            if len(ratios) > 2
            else ""
        )
        plan.notes.append(
            f"{rule}: {len(ratios)} finished jobs of this scale took {factor:.2g} times the prediction{spread}"
        )


def interval(plan: Estimate, job: Job) -> tuple[float, float]:
    """Between how many seconds a job ends; one that only reads and writes tables is taken as it is."""
    if not (job.moments or job.work.world_steps or job.processor):
        return job.seconds, job.seconds
    own = rates_of(job, plan.rates)
    return own.low * job.seconds, own.high * job.seconds


def extremes(plan: Estimate) -> list[tuple[float, float, float]]:
    """GPU-hours, wall seconds and seconds of the longest chain with all jobs at the lower, then the upper end."""
    found = []
    for end in (0, 1):
        jobs = [replace(job, seconds=interval(plan, job)[end]) for job in plan.jobs]
        times = schedule(jobs, plan.gpus, plan.cores)
        found.append((sum(job.seconds * job.resources.gpu for job in jobs) / 3600, times.wall, times.critical))
    return found


def _check(plan: Estimate, gpu: Gpu, disk: float | None, resolved: Resolved) -> None:
    problems = plan.problems
    model = resolved.study.model
    if isinstance(model, PretrainedModel) and plan.shape.kind not in ARCHITECTURES:
        problems.append(
            f"model.name_or_path: {model.name_or_path} is of model_type {plan.shape.kind!r}, which headroom.policy "
            f"cannot run (known: {', '.join(ARCHITECTURES)}); its jobs would stop when they load it"
        )
    seen: set[tuple[str, str]] = set()
    for job in plan.jobs:
        for kind, fault in _faults(job, plan, gpu):
            if (job.rule, kind) not in seen:  # once a rule: its jobs are alike
                seen.add((job.rule, kind))
                problems.append(fault)
    problems += _asked_memory(plan)
    problems += _engine(plan, resolved)
    if disk is not None and plan.kept + plan.scratch > disk:
        problems.append(
            f"disk: needs {(plan.kept + plan.scratch) / TB:.2f} TB, there are {disk / TB:.2f}; "
            "give another --disk, or name fewer runs"
        )
    if all(job.resources.gpu <= plan.gpus for job in plan.jobs):
        plan.timetable = schedule(plan.jobs, plan.gpus, plan.cores)


def _faults(job: Job, plan: Estimate, gpu: Gpu) -> Iterator[tuple[str, str]]:
    """What of a job's needs its rule's resources or the device do not give: (kind, one line)."""
    asked, key = job.resources, f"resources.{job.rule}"
    moment, wide = memory.peak(job.moments) if job.moments else ("", 0.0)
    if asked.gpu and wide > gpu.memory:
        remedy = "--gpu or --gpu-memory of a larger one"
        if job.trainer is not None:
            remedy = "more trainer.processes, fewer tokens a microbatch, or trainer.lora"
        yield (
            "device",
            (f"{job.name}: needs {wide / GB:.0f} GB of each GPU ({moment}), it has {gpu.memory / GB:.0f}; {remedy}"),
        )
    if asked.gpu_mem_mb * 1e6 > gpu.memory:
        yield "asked", f"{key}.gpu_mem_mb: asks for {asked.gpu_mem_mb} MB, each GPU has {gpu.memory / 1e6:.0f}"
    if asked.gpu > plan.gpus:
        yield "gpus", f"{key}.gpu: asks for {asked.gpu} GPUs, {plan.gpus} are there; give --gpus"
    if asked.gpu and job.host > asked.mem_mb * 1e6:
        yield "host", f"{key}.mem_mb: asks for {asked.mem_mb}, {job.name} needs {math.ceil(job.host / 1e6)}"
    if job.trainer is not None and job.scratch + job.kept > asked.disk_mb * 1e6:
        needed = math.ceil((job.scratch + job.kept) / 1e6)
        yield "disk", f"{key}.disk_mb: asks for {asked.disk_mb}, {job.name} needs {needed} (resume states, checkpoint)"
    if job.seconds > asked.runtime * 60:
        low, high = (f"{value / 60:.0f}" for value in interval(plan, job))
        about = f"about {job.seconds / 60:.0f} ({low} to {high})"
        yield "runtime", f"{key}.runtime: allows {asked.runtime} min, {job.name} takes {about}"


def _asked_memory(plan: Estimate) -> Iterator[str]:
    """Rules whose jobs could be sent to a GPU that is too small for them: a job checks only what its rule asks for."""
    for rule, jobs in by_rule(plan.jobs).items():
        job = max(jobs, key=lambda one: memory.peak(one.moments)[1] if one.moments else 0.0)
        moment, wide = memory.peak(job.moments) if job.moments else ("", 0.0)
        asked = job.resources
        if asked.gpu and wide > asked.gpu_mem_mb * 1e6:
            yield (
                f"resources.{rule}.gpu_mem_mb: asks for {asked.gpu_mem_mb}, {job.name} needs {math.ceil(wide / 1e6)} "
                f"({moment}); ask for that much"
            )


def _engine(plan: Estimate, resolved: Resolved) -> Iterator[str]:
    """A cache of keys and values that does not hold one prompt of the longest size: the engine would not start."""
    if not resolved.by_vllm:
        return
    grpo = grpo_of(resolved.runs[0], resolved.study, plan.scale)
    width = 2 if grpo.trainer.precision == "bfloat16_masters" else 4
    needed = width * plan.shape.key_value_numbers * grpo.vllm.longest
    if needed > grpo.vllm.cache_mb * 2**20:
        yield (
            f"grpo.vllm.cache_mb: is {grpo.vllm.cache_mb}, one prompt of grpo.vllm.longest {grpo.vllm.longest} tokens "
            f"needs {math.ceil(needed / 2**20)}; raise the one or lower the other"
        )


def by_rule(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Rule -> its jobs, in order."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.rule, []).append(job)
    return found
