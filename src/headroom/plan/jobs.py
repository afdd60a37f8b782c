"""The jobs of a study: what each needs, how long it takes, and when it runs if so many GPUs are there.

The stages and their order are those of the rules; one entry a job of train, measure and present that takes time.
List scheduling: whenever devices are free, the ready job with the longest way to the end starts (Graham 1969: at most
twice the optimum where every job takes one device). Jobs without a GPU wait for nothing, or, on one machine, for cores.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headroom.config.jobs import OverlapJob
from headroom.config.models import Grpo, Resources, Sft, Study, Trainer
from headroom.config.resolve import SUPERVISED, Resolved, grpo_of
from headroom.plan import memory, work
from headroom.plan.architecture import Shape
from headroom.plan.work import Profile, Work
from headroom.worlds.seeds import POOLS

START_SECONDS = 10.0
"""Assumed: Snakemake, imports and a browser."""
TABLE_SECONDS = 30.0
"""Assumed: a job that brings tables together."""
GRAFTS = 40
"""Of one run, about: groups, bands, pairs and their random controls, both ways."""
TABLES = ("contrast", "failures", "filmstrip", "dark_room", "mechanism")
"""Rules that bring tables together, those of one study among them."""
SFT_BATCH_TOKENS = 1.5
"""Assumed: the longest of a batch over its mean, as padding."""


@dataclass
class Job:
    """One job. ``work`` of the model and the world; ``processor`` operations in float64 on processors;
    ``moments`` component -> bytes of one device; ``scratch`` and ``kept`` bytes on disk."""

    name: str
    rule: str
    resources: Resources
    needs: tuple[str, ...] = ()
    work: Work = field(default_factory=Work)
    trainer: Trainer | None = None
    fixed_seconds: float = START_SECONDS
    processor: float = 0.0
    moments: dict[str, memory.Parts] = field(default_factory=dict)
    scratch: float = 0.0
    kept: float = 0.0
    host: float = 0.0
    seconds: float = 0.0

    @property
    def processes(self) -> int:
        """Over which the work is shared."""
        return 1 if self.trainer is None else self.trainer.processes


def jobs_of(resolved: Resolved, scale: str, shape: Shape, profile: Profile) -> list[Job]:
    """Every job of a study, in an order in which each stands after those it needs."""
    study, table = resolved.study, resolved.study.resources
    sets = _sizes(study)

    def asks(rule: str) -> Resources:
        return table.get(rule) or table.get("default") or Resources()

    def play(name: str, rule: str, episodes: int, needs: tuple[str, ...]) -> Job:
        rows = min(episodes, 128)
        load = memory.Load(0, 0, cached=round(rows * (profile.prompt_tokens + profile.action_tokens)), rows=rows)
        return Job(
            name, rule, asks(rule), needs, work.rollout(shape, profile, episodes, episodes, at_once=rows),
            moments=memory.playing(shape, load, gpu=asks(rule).gpu > 0), host=memory.host(shape, None),
        )  # fmt: skip

    pages = sum(
        study.demonstrations.episodes_override.get(task, study.demonstrations.episodes_per_task)
        for task in study.tasks.candidates
    )
    found = [
        Job(
            "demonstrations",
            "demonstrations",
            asks("demonstrations"),
            work=Work(world_steps=pages * (profile.turns + 1)),
        )
    ]
    found += [_sft(init, study.sft[init], shape, profile, asks("sft")) for init in resolved.inits]
    start = f"sft {SUPERVISED}"
    candidates = len(study.tasks.candidates)
    chosen = sets["mastered"] + sets["headroom"]
    if chosen:
        played = candidates * study.tasks.selection_seeds * (1 + study.tasks.samples)
        found.append(play("select", "select", played, (start,)))
    else:  # no set is chosen, so nothing is played
        found.append(Job("select", "select", asks("select"), (start,)))
    found.append(_overlap(resolved, scale, asks))
    every = ((chosen or candidates) * study.evaluation.seeds) * (1 + study.evaluation.samples)
    found.append(play("reading", "reading", every, (start, "select")))
    for run in resolved.runs:
        grpo = grpo_of(run, study, scale)
        found.append(_grpo(run.run, grpo, shape, profile, asks("grpo"), (f"sft {run.init}", "select")))
    families = {run.run: run.family for run in resolved.runs}
    for policy in resolved.policies:
        plan = study.evaluate.get(families.get(policy, policy))
        greedy, sampled = (("mastered",), ()) if plan is None else (plan.greedy, plan.sampled)
        samples = study.evaluation.samples if plan is None or plan.samples is None else plan.samples
        tasks = sum(sets[name] for name in greedy) + samples * sum(sets[name] for name in sampled)
        found.append(
            play(
                f"evaluate {policy}", "evaluate", tasks * study.evaluation.seeds, (_trained(policy, resolved), "select")
            )
        )
    found += _inside(resolved, shape, profile, asks, play)
    named = {Path(name).stem for name in resolved.files}
    tables = [name for name in TABLES if name in named]
    done = tuple(job.name for job in found if job.name != "overlap")  # which only a figure reads
    for name, rule, needs in (
        *((name, name, done) for name in tables),
        ("tables of the figures", "figure_data", (*done, "overlap", *tables)),
        ("figures and claims", "figure", ("tables of the figures",)),
    ):
        found.append(Job(name, rule, asks(rule).model_copy(update={"gpu": 0}), needs, fixed_seconds=TABLE_SECONDS))
    return found


def _overlap(resolved: Resolved, scale: str, asks: Callable[[str], Resources]) -> Job:
    """The first pages of all pools; a page of the train pool that several runs play is opened once."""
    job = OverlapJob.model_validate_json(resolved.files[f"results/{scale}/config/overlap.json"])
    drawn = sum(run.steps * run.pages_per_step for run in job.runs)
    trained = min(drawn + sum(job.demonstrations.values()), len(job.demonstrations) * POOLS["train"])
    pages = trained + len(job.demonstrations) * sum(job.held_out.values())
    asked = asks("demonstrations").model_copy(update={"gpu": 0})
    return Job("overlap", "overlap", asked, ("select",), Work(world_steps=pages))


def _sizes(study: Study) -> dict[str, int]:
    """Task set -> how many tasks."""
    return {"mastered": study.tasks.mastered, "headroom": study.tasks.headroom, "all": len(study.tasks.candidates)}


def _trained(policy: str, resolved: Resolved) -> str:
    return f"sft {policy}" if policy in resolved.inits else f"grpo {policy}"


def _sft(name: str, sft: Sft, shape: Shape, profile: Profile, asked: Resources) -> Job:
    trainer = sft.trainer
    recomputed = trainer.gradient_checkpointing
    share = math.ceil(sft.batch / trainer.processes)
    tokens = round(SFT_BATCH_TOKENS * share * (profile.prompt_tokens + profile.action_tokens))
    step = work.update(shape, profile, sft.batch, sft.batch, budget=10**9, recomputed=recomputed, reference=False)
    state = memory.state(shape, trainer)
    load, saves = memory.Load(tokens, round(share * profile.action_tokens)), sft.steps // sft.checkpoint_every
    return Job(
        f"sft {name}", "sft", asked, ("demonstrations",),
        step.times(sft.steps) + Work(written=saves * state + shape.checkpoint),
        trainer,
        moments=memory.training(shape, trainer, load, reference=False, gpu=asked.gpu > 0),
        scratch=_states(saves) * state, kept=shape.checkpoint, host=memory.host(shape, trainer),
    )  # fmt: skip


def _grpo(name: str, grpo: Grpo, shape: Shape, profile: Profile, asked: Resources, needs: tuple[str, ...]) -> Job:
    trainer = grpo.trainer
    episodes = grpo.pages_per_step * grpo.group_size
    turns = episodes * profile.turns
    reference = grpo.kl_beta > 0
    step = work.rollout(shape, profile, grpo.pages_per_step, episodes)
    step += work.update(
        shape, profile, grpo.pages_per_step, turns, budget=grpo.microbatch_tokens,
        recomputed=trainer.gradient_checkpointing, reference=reference,
    ).times(grpo.updates_per_rollout)  # fmt: skip
    if grpo.auxiliary.kind != "none":  # a target a turn, about as long as its answer
        step += work.update(
            shape, profile, grpo.pages_per_step, turns, budget=grpo.microbatch_tokens,
            recomputed=trainer.gradient_checkpointing, reference=False,
        ).times(grpo.updates_per_rollout)  # fmt: skip
    share = math.ceil(episodes / trainer.processes)
    tokens = share * profile.turns * (profile.prompt_tokens + profile.action_tokens)
    load = memory.Load(
        tokens=round(min(grpo.microbatch_tokens, tokens)),
        actions=round(
            min(share * profile.turns, grpo.microbatch_tokens / profile.prompt_tokens) * profile.action_tokens
        ),
        cached=round(share * (profile.prompt_tokens + grpo.max_new_tokens)),
        rows=share,
    )
    state = memory.state(shape, trainer)
    saves = grpo.steps // grpo.checkpoint_every
    return Job(
        f"grpo {name}", "grpo", asked, needs,
        step.times(grpo.steps) + _validation(grpo, shape, profile) + Work(written=saves * state + shape.checkpoint),
        trainer,
        moments=memory.training(
            shape, trainer, load, reference=reference, gpu=asked.gpu > 0,
            engine=grpo.vllm if grpo.engine == "vllm" else None,
        ),
        scratch=_states(saves) * state, kept=shape.checkpoint, host=memory.host(shape, trainer),
    )  # fmt: skip


def _validation(grpo: Grpo, shape: Shape, profile: Profile) -> Work:
    """Episodes on the validation's pages, one a page: before the first step, and every so many."""
    settings = grpo.validation
    if not settings.every:
        return Work()
    return work.rollout(shape, profile, settings.pages, settings.pages).times(1 + grpo.steps // settings.every)


def _states(saves: int) -> int:
    """Resume states on the disk at a time: the two that are kept, and the one being written."""
    return min(saves, 3)


def _inside(
    resolved: Resolved,
    shape: Shape,
    profile: Profile,
    asks: Callable[[str], Resources],
    play: Callable[[str, str, int, tuple[str, ...]], Job],
) -> list[Job]:
    """The probe, the ranks and the grafts."""
    study: Study = resolved.study
    probe = study.mechanism.probe
    tasks = sum(_sizes(study)[name] for name in probe.task_sets)
    turns = tasks * probe.seeds * min(probe.turns, profile.turns)
    found = [Job("probe", "probe", asks("probe"), ("reading",), Work(world_steps=turns + tasks * probe.seeds))]
    forward = 2 * (shape.blocks + shape.width * shape.vocabulary) * turns * profile.prompt_tokens
    algebra, blocks = 2 * forward + work.spectra(shape), 4.0 * 4 * shape.block  # two blocks of two policies
    found += [
        Job(
            f"rank {policy}", "rank", asks("rank"), (_trained(policy, resolved), "probe"),
            processor=algebra, host=blocks,
        )
        for policy in resolved.mechanism.ranked
    ]  # fmt: skip
    graft = study.mechanism.graft
    pages = sum(_sizes(study)[name] for name in graft.task_sets)
    found += [
        play(f"graft {run}", "graft", GRAFTS * pages * graft.seeds, (_trained(run, resolved), "select"))
        for run in resolved.mechanism.grafted
    ]
    return found


@dataclass(frozen=True)
class Schedule:
    """``wall`` seconds with so many GPUs, ``critical`` with as many as one likes; the longest chain of jobs."""

    wall: float
    critical: float
    chain: tuple[str, ...]
    starts: Mapping[str, float]


def schedule(jobs: Sequence[Job], gpus: int, cores: int | None = None) -> Schedule:
    """Run the jobs on ``gpus`` devices, and on ``cores`` where that many must do, by list scheduling.

    Raises:
        ValueError: a job needs more devices than there are, or something that does not exist.
    """
    by_name = {job.name: job for job in jobs}
    after: dict[str, list[str]] = {name: [] for name in by_name}
    for job in jobs:
        if job.resources.gpu > gpus:
            raise ValueError(f"{job.name}: asks for {job.resources.gpu} GPUs, {gpus} are there")
        for need in job.needs:
            if need not in after:
                raise ValueError(f"{job.name}: needs {need}, which is no job")
            after[need].append(job.name)
    way: dict[str, float] = {}
    for job in reversed(jobs):
        way[job.name] = job.seconds + max((way[name] for name in after[job.name]), default=0.0)
    waiting = {job.name: len(set(job.needs)) for job in jobs}
    ready = [(-way[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    running: list[tuple[float, str]] = []
    starts: dict[str, float] = {}
    free, idle, now = gpus, math.inf if cores is None else cores, 0.0
    while ready or running:
        held = []
        while ready:
            item = heapq.heappop(ready)
            asked = by_name[item[1]].resources
            if asked.gpu > free or min(asked.threads, cores or asked.threads) > idle:
                held.append(item)
                continue
            free, idle = free - asked.gpu, idle - min(asked.threads, cores or asked.threads)
            starts[item[1]] = now
            heapq.heappush(running, (now + by_name[item[1]].seconds, item[1]))
        ready = held
        heapq.heapify(ready)
        now, name = heapq.heappop(running)
        asked = by_name[name].resources
        free, idle = free + asked.gpu, idle + min(asked.threads, cores or asked.threads)
        for following in set(after[name]):
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(ready, (-way[following], following))
    chain = [max(way, key=lambda name: way[name])]
    while after[chain[-1]]:
        chain.append(max(after[chain[-1]], key=lambda name: way[name]))
    return Schedule(now, max(way.values()), tuple(chain), starts)
