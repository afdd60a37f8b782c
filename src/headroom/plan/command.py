"""``headroom plan``: the estimate as text, or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headroom.plan import memory
from headroom.plan.cost import ASSUMED_RANGE, GPUS, Gpu
from headroom.plan.estimate import GB, Estimate, by_rule, extremes, interval

UNITS = {"": 1.0, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def size(text: str, option: str) -> float:
    """``80GB`` -> bytes; decimal units.

    Raises:
        ValueError: not a size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([MGT]B)\s*", text, re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"{option} {text!r}: is no size; write it as 80GB, 500MB or 2TB")
    return float(found[1]) * UNITS[found[2].upper()]


def amount(value: float) -> str:
    """Bytes in the unit that fits: ``0 MB``, ``12 MB``, ``3.4 GB``, ``1.20 TB``."""
    unit, name, places = next(
        (entry for entry in ((1e12, "TB", 2), (1e9, "GB", 1)) if value >= entry[0]), (1e6, "MB", 0)
    )
    if unit == 1e6 and 0 < value < 10e6:
        places = 1
    return f"{value / unit:.{places}f} {name}"


def device(name: str, gpu_memory: str) -> Gpu:
    """A known GPU, with another memory where one is given.

    Raises:
        ValueError: it is not known.
    """
    if name not in GPUS:
        raise ValueError(f"--gpu {name!r}: is not known; known are {', '.join(GPUS)}")
    known = GPUS[name]
    return replace(known, memory=size(gpu_memory, "--gpu-memory")) if gpu_memory else known


def lines(plan: Estimate, gpu: Gpu) -> Iterator[str]:
    """The report."""
    shape, profile = plan.shape, plan.profile
    seeing = f", {shape.vision / 1e9:.2f} of them for images" if shape.vision else ""
    yield f"scale       {plan.scale}"
    million, unit = (1e9, "billion") if shape.parameters > 1e9 else (1e6, "million")
    yield f"model       {shape.name}: {shape.parameters / million:.3g} {unit} parameters{seeing} (meta device)"
    yield (
        f"episode     {profile.turns:g} turns, {profile.prompt_tokens:g} tokens a prompt, {profile.action_tokens:g} an "
        "action (--turns, --prompt-tokens, --action-tokens)"
    )
    for name, rates in plan.rates.items():
        yield f"speed       {name}: {rates.source}; 95% within {rates.low:.2g} to {rates.high:.2g} times"
    if any(job.resources.gpu for job in plan.jobs):
        yield f"            (the range of a GPU's speed is assumed: {ASSUMED_RANGE[0]:g} to {ASSUMED_RANGE[1]:g} times)"
    for note in plan.notes:
        yield f"measured    {note}"
    yield ""
    yield f"{'rule':15}{'jobs':>5}{'GPUs':>6}{'longest, minutes':>28}{'GPU-hours':>11}{'disk':>9}{'host':>9}"
    for rule, jobs in by_rule(plan.jobs).items():
        longest = max(jobs, key=lambda job: job.seconds)
        low, high = interval(plan, longest)
        minutes = f"{longest.seconds / 60:.1f} ({low / 60:.1f} to {high / 60:.1f})"
        hours = sum(job.seconds * job.resources.gpu for job in jobs) / 3600
        disk, host = amount(sum(job.kept for job in jobs)), amount(max(job.host for job in jobs))
        yield f"{rule:15}{len(jobs):5}{longest.resources.gpu:6}{minutes:>28}{hours:11.1f}{disk:>9}{host:>9}"
    yield ""
    yield from _memory(plan, gpu)
    yield ""
    yield f"disk        {amount(plan.kept)} of checkpoints, and up to {amount(plan.scratch)} of resume states"
    if plan.timetable is None:
        return
    (low_hours, low_wall, low_chain), (high_hours, high_wall, high_chain) = extremes(plan)
    if plan.gpu_hours:
        yield f"GPU-hours   {plan.gpu_hours:.0f} ({low_hours:.0f} to {high_hours:.0f})"
    where = f"on {plan.gpus} GPUs ({gpu.name})" if plan.cores is None else f"on {plan.cores} cores"
    wall, chain = plan.timetable.wall, plan.timetable.critical
    yield f"wall time   {_time(wall)} ({_time(low_wall)} to {_time(high_wall)}) {where}"
    yield f"            {_time(chain)} ({_time(low_chain)} to {_time(high_chain)}) however many there are:"
    yield f"            {' > '.join(plan.timetable.chain)}"


def _memory(plan: Estimate, gpu: Gpu) -> Iterator[str]:
    """The widest moment of the widest job of every rule that computes with the model."""
    for rule, jobs in by_rule(plan.jobs).items():
        wide = [job for job in jobs if job.moments]
        if not wide:
            continue
        job = max(wide, key=lambda one: memory.peak(one.moments)[1])
        moment, total = memory.peak(job.moments)
        parts = sorted(job.moments[moment].items(), key=lambda part: -part[1])
        unit, name = (GB, "GB") if total > 4 * GB else (1e6, "MB")
        of = f" of {gpu.memory / unit:.0f} {name}" if job.resources.gpu else ""
        place = "a GPU" if job.resources.gpu else "the processor"
        listed = ", ".join(f"{part} {value / unit:.1f}" for part, value in parts if value > unit / 20)
        yield f"memory      {rule}, widest at the {moment}: {total / unit:.1f} {name}{of} on {place}: {listed}"


def _time(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def as_json(plan: Estimate, gpu: Gpu) -> str:
    """Everything, in bytes and seconds."""
    jobs: list[dict[str, Any]] = []
    for job in plan.jobs:
        low, high = interval(plan, job)
        jobs.append(
            {
                "job": job.name,
                "rule": job.rule,
                "needs": list(job.needs),
                "gpus": job.resources.gpu,
                "seconds": job.seconds,
                "seconds_low": low,
                "seconds_high": high,
                "bytes_kept": job.kept,
                "bytes_scratch": job.scratch,
                "host_bytes": job.host,
                "device_bytes": job.moments,
                "work": asdict(job.work),
            }
        )
    found: dict[str, Any] = {
        "scale": plan.scale,
        "model": asdict(plan.shape),
        "gpu": asdict(gpu),
        "gpus": plan.gpus,
        "episode": asdict(plan.profile),
        "rates": {name: asdict(rates) for name, rates in plan.rates.items()},
        "gpu_hours": plan.gpu_hours,
        "bytes_kept": plan.kept,
        "bytes_scratch": plan.scratch,
        "jobs": jobs,
        "notes": plan.notes,
        "problems": plan.problems,
    }
    if plan.timetable is not None:
        lower, upper = extremes(plan)
        found |= {
            "gpu_hours_interval": [lower[0], upper[0]],
            "wall_seconds": plan.timetable.wall,
            "wall_seconds_interval": [lower[1], upper[1]],
            "critical_path_seconds": plan.timetable.critical,
            "critical_path": list(plan.timetable.chain),
        }
    return json.dumps(found, indent=2, sort_keys=True)


def run(
    project: Path,
    scale: str,
    *,
    gpu: str,
    gpu_memory: str,
    gpus: int,
    cores: int,
    disk: str,
    turns: float | None,
    prompt_tokens: float | None,
    action_tokens: float | None,
    machine: bool,
) -> tuple[str, list[str]]:
    """The text to print, and what does not fit.

    Raises:
        ValueError: an option, a setting or a file is wrong.
    """
    from headroom.config.resolve import resolve
    from headroom.plan.estimate import estimate
    from headroom.plan.work import profile_of

    chosen = device(gpu, gpu_memory)
    resolved = resolve({"scale": scale}, project)
    profile = profile_of(resolved.study)
    given = {"turns": turns, "prompt_tokens": prompt_tokens, "action_tokens": action_tokens}
    profile = replace(profile, **{key: value for key, value in given.items() if value is not None})
    plan = estimate(
        project, scale, gpu=chosen, gpus=gpus, cores=cores, disk=size(disk, "--disk") if disk else None,
        profile=profile, resolved=resolved,
    )  # fmt: skip
    return (as_json(plan, chosen) if machine else "\n".join(lines(plan, chosen))), plan.problems
