"""GRPO on an agent's turns: collect, score, advantages, microbatches, loss, step.

A step plays ``pages_per_step`` pages, ``group_size`` samples of each. A turn (prompt -> action) is one training
sample; the return of its episode, compared with the other samples of the same page, is its advantage
(``headroom.train.advantage``); the loss is the clipped ratio with an optional KL term to the initial policy
(``headroom.train.loss``). A dense signal may be paid beside the outcome (``headroom.train.signal``), and the policy
may be watched on pages of its own (``headroom.train.validation``).

Sources: GRPO, arXiv 2402.03300; Dr. GRPO, 2503.20783; DAPO, 2503.14476; AdamW, 1711.05101. Deviations:

- no live group, no optimiser step: AdamW moves weights by its momentum and by its decay even where the gradient is
  zero. That holds with a KL term too. An auxiliary loss (``headroom.train.auxiliary``) is something to learn from where
  no group is live: such a step is taken, with all terms of the loss;
- the old log-probabilities are those of the first update's own forward pass, never the sampler's; the distance
  between the two is reported (``sampler_gap``). Where another engine samples (``headroom.policy.engine``), truncated
  importance weights correct for it, and a step begins by handing the weights over, which a canary checks;
- no dropout, no resampling of dead groups; one learning rate a step, for all updates of a rollout;
- a gradient that is not finite is never applied: it is counted, and ``PATIENCE`` such steps in a row end the run as
  ``diverged``, with the weights that it had;
- everything random is a function of (run seed, step, group, sample), so a resumed run equals an unbroken one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer

from headroom.agent.dialect import check_dialect
from headroom.agent.episode import Group
from headroom.config.jobs import GrpoJob, load_job
from headroom.config.models import Grpo
from headroom.files import write_parquet
from headroom.policy.engine import EngineError, open_engine
from headroom.policy.load import Dtype, Policy, load_policy, save_policy
from headroom.policy.repeatable import repeatable
from headroom.seeds import derive
from headroom.train import adapter as adapters
from headroom.train.advantage import advantages
from headroom.train.auxiliary import targets, words_to_draw
from headroom.train.dark_room import early_warning
from headroom.train.diagnostics import (
    Row,
    rollout_row,
    signal_row,
    snapshot,
    step_line,
    steps_table,
    timing_table,
    weight_change,
)  # fmt: skip
from headroom.train.groups import form_groups, group_starts, step_pages, task_set
from headroom.train.optimiser import adamw
from headroom.train.processes import ALONE, Processes
from headroom.train.processes import job as record_job
from headroom.train.processes import start as start_processes
from headroom.train.reward import Reward, reward, scored
from headroom.train.rollout import PhaseSeconds, Sampler, rollout
from headroom.train.schedule import learning_rate
from headroom.train.signal import dense_reward
from headroom.train.trainee import Trainee
from headroom.train.update import NO_LIVE_GROUP, NOT_FINITE, update
from headroom.train.validation import FILE, POOL, is_due, pages, silent, validate, validation_table
from headroom.worlds.base import World

PATIENCE = 3
"""Steps with something to learn, in a row, without a finite gradient: then a run has diverged."""


@dataclass
class Run:
    """What a run has come to: one row a finished step, one row of phase times a step, one row a validation, how it
    ended, and the tolerance that its engine's canary was held to, in nats (None without a canary)."""

    rows: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    validations: list[Row] = field(default_factory=list)
    ending: Literal["finished", "diverged"] = "finished"
    tolerance: float | None = None


def train(
    policy: Policy,
    reference: Any,
    world: World,
    job: GrpoJob,
    tasks: Sequence[str],
    page_seeds: Sequence[int],
    *,
    scratch: Path,
    say: Callable[[str], None] = lambda _: None,
    processes: Processes = ALONE,
    adapter: Path | None = None,
    validation_seeds: Sequence[int] = (),
) -> Run:
    """Train ``policy.model`` in place.

    Args:
        policy: holds the initial weights.
        reference: the frozen initial model, or None when ``kl_beta`` is 0; under LoRA ``policy.model`` itself, whose
            base is the initial model.
        world: where the episodes are played.
        job: every setting.
        tasks: the task set of the run.
        page_seeds: pages for training.
        scratch: folder of resume states; a run killed at any moment goes on from the newest.
        say: told one line a step.
        processes: this one among those of the job; all return the same rows.
        adapter: folder that receives a LoRA adapter on its own; ``policy.model`` ends up merged.
        validation_seeds: pages for validation, where the job has any.

    Raises:
        ValueError: there are fewer pages for validation than the job asks for.
    """
    settings, model = job.grpo, policy.model.eval()
    engine = open_engine(policy, settings, adapters)
    make = adamw(settings.optimiser, settings.learning_rate)
    trainee = Trainee(model, make, settings.trainer, processes, seed=settings.seed)
    initial = snapshot(trainee)
    validated = pages(tasks, validation_seeds, settings.validation.pages) if settings.validation.every else []
    run, done = Run(), 0
    if state := trainee.resume(scratch):
        done, run.rows, run.times = state[0], state[1]["rows"], state[1]["times"]
        run.validations = state[1].get("validations", [])
        say(f"resumed after step {done}")

    def validated_at(step: int) -> bool:
        return bool(run.validations) and run.validations[-1]["step"] == step

    while done < settings.steps and not diverged(run.rows):
        started, phases = time.perf_counter(), PhaseSeconds()
        try:
            with trainee.whole():
                began = time.perf_counter()
                gap = engine.sync(model)
                synced = time.perf_counter() - began
                if is_due(job, done):
                    began = time.perf_counter()
                    run.validations.append(validate(world, policy, engine, job, validated, done, processes))
                    started += time.perf_counter() - began  # no part of the step
                groups = collect(world, policy, engine, job, tasks, page_seeds, done, phases, processes)
        except FloatingPointError as error:  # the policy gives no probabilities any more
            say(f"diverged at step {done + 1}: {error}")
            run.ending = "diverged"
            if validated and not validated_at(done):
                run.validations.append(silent(done))
            break
        rewards = score(groups, settings, done)
        estimates = advantages(
            rewards, scope=settings.advantage_scope, scale=settings.advantage_scale,
            epsilon=settings.advantage_epsilon, channel=settings.signal.channel,
        )  # fmt: skip
        played = [episode for group in groups for episode in group.episodes if scored(episode)]
        turns = [turn for episode in played for turn in episode.turns]
        advantage = torch.from_numpy(np.concatenate([np.zeros(0), *(a for group in estimates for a in group)]))
        rate = learning_rate(
            done,
            peak=settings.learning_rate,
            schedule=settings.schedule,
            warmup_steps=settings.warmup_steps,
            total_steps=settings.steps,
        )
        for parameters in trainee.optimiser.param_groups:
            parameters["lr"] = rate
        aims = targets(played, policy.codec, settings.auxiliary, seed=settings.seed, step=done)
        updated, seconds = update(trainee, reference, turns, advantage, settings, aims)
        rolled = rollout_row(groups, rewards, estimates, settings.advantage_scope)
        rolled |= signal_row(groups, rewards, estimates, settings)
        row = {"step": done, "learning_rate": rate, **rolled, **updated, "canary_gap": gap}
        row["weight_change"] = weight_change(trainee, initial, processes)
        run.rows.append(row | {"early_warning": early_warning([*run.rows, row])})
        seconds |= {"seconds_world": phases.world, "seconds_sync": synced, "seconds_generate": phases.generate}
        run.times.append({"step": done, **seconds, "seconds_step": time.perf_counter() - started})
        done += 1
        say(step_line(run.rows[-1], run.times, settings.steps))
        if done % settings.checkpoint_every == 0:
            extra = {"rows": run.rows, "times": run.times}
            trainee.save(scratch, done, extra | ({"validations": run.validations} if validated else {}))

    if diverged(run.rows):
        run.ending = "diverged"
    if validated and not validated_at(done) and (run.ending == "diverged" or is_due(job, done)):
        with trainee.whole():
            engine.sync(model)
            run.validations.append(validate(world, policy, engine, job, validated, done, processes))
    run.tolerance = engine.tolerance
    trainee.finish(adapter)
    return run


def collect(
    world: World,
    policy: Policy,
    sampler: Sampler,
    job: GrpoJob,
    tasks: Sequence[str],
    page_seeds: Sequence[int],
    step: int,
    phases: PhaseSeconds,
    processes: Processes = ALONE,
) -> list[Group]:
    """Play the pages of a step, each process its share; ``phases`` receives the seconds of world and sampler."""
    settings = job.grpo
    pages = step_pages(tasks, page_seeds, seed=settings.seed, step=step, count=settings.pages_per_step)

    def play() -> list[Group]:
        mine = processes.mine(pages)
        episodes = rollout(
            world,
            policy,
            sampler,
            group_starts(mine, settings.group_size),
            horizon=job.world.horizon,
            temperature=settings.temperature,
            seed=derive("grpo", settings.seed, step),
            success_above=job.world.success_above,
            max_new_tokens=settings.max_new_tokens,
            phases=phases,
            overlap=settings.overlap,
            keep_facts=settings.auxiliary.kind != "none",
        )
        return form_groups(mine, settings.group_size, episodes)

    return processes.together(play)


def score(groups: Sequence[Group], settings: Grpo, step: int = 0) -> list[list[Reward]]:
    """The rewards of the scored episodes of each group at ``step`` of the run, which decides the weight of a signal.

    An infrastructure failure has none and enters no baseline.
    """
    return [
        [
            reward(
                episode,
                success=settings.reward_success,
                failure=settings.reward_failure,
                invalid_action=settings.reward_invalid_action,
                prediction=dense_reward(episode, settings.signal, seed=settings.seed, step=step, steps=settings.steps),
            )
            for episode in group.episodes
            if scored(episode)
        ]
        for group in groups
    ]


def _reference(policy: Policy, init: Path, settings: Grpo) -> Any:
    """What the KL term is measured to: nothing, the base under an adapter, or the initial model once more, frozen."""
    if settings.kl_beta == 0:
        return None
    if settings.trainer.lora is not None:
        return policy.model
    dtype: Dtype = "float32" if settings.trainer.precision == "float32" else "bfloat16"
    return load_policy(init, dtype).model.requires_grad_(False)


def diverged(rows: Sequence[Row]) -> bool:
    """Whether the last ``PATIENCE`` steps with something to learn all failed to give a finite gradient."""
    live = [row["skip_reason"] for row in rows if row["skip_reason"] != NO_LIVE_GROUP]
    return len(live) >= PATIENCE and set(live[-PATIENCE:]) == {NOT_FINITE}


def main(
    config: Annotated[Path, typer.Option(help="Resolved settings: a GrpoJob as JSON.")],
    init: Annotated[Path, typer.Option(help="Checkpoint folder that the run starts from.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the select stage.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Train one run of the grid and write checkpoint/, steps.parquet and timing.parquet."""
    from headroom.worlds.open import open_world
    from headroom.worlds.seeds import pool

    repeatable()
    job = load_job(config, GrpoJob)
    inputs = {"init": init, "task_sets": task_sets}
    framing: dict[str, Any] = {"inputs": inputs, "config": config, "seeds": {"grpo": job.grpo.seed}}
    with (
        start_processes(job.grpo.trainer.processes) as processes,
        record_job(processes, "train.grpo", output, **framing) as running,
    ):
        tasks = task_set(task_sets, job.grpo.tasks)
        try:
            check_dialect(init, job.world.kind)
            if job.grpo.validation.every:
                pages(tasks, pool(POOL), job.grpo.validation.pages)
            policy = load_policy(init)
            if job.grpo.auxiliary.kind == "random_words":
                words_to_draw(policy.codec)
            reference = _reference(policy, init, job.grpo)
        except ValueError as error:
            raise SystemExit(str(error)) from error
        with open_world(job.world, running.notes) as world:
            try:
                run = train(
                    policy, reference, world, job, tasks, pool("train"), scratch=running.scratch(),
                    say=lambda line: print(f"{job.grpo.run}  {line}", flush=True) if processes.first else None,
                    processes=processes, adapter=running.output / "adapter", validation_seeds=pool(POOL),
                )  # fmt: skip
            except EngineError as error:
                raise SystemExit(str(error)) from error
        if not processes.first:
            return
        try:
            save_policy(policy.model, policy.codec, running.output / "checkpoint")
        except ValueError as error:  # what it carries along from the initial checkpoint is gone
            raise SystemExit(str(error)) from error
        write_parquet(running.output / "steps.parquet", steps_table(run.rows))
        write_parquet(running.output / "timing.parquet", timing_table(run.times))
        if job.grpo.validation.every:
            write_parquet(running.output / FILE, validation_table(run.validations))
        running.ending = run.ending
        running.notes |= {
            "steps": len(run.rows),
            "steps_skipped": sum(row["skipped"] for row in run.rows),
            "excluded_episodes": sum(row["excluded_episodes"] for row in run.rows),
        }
        if run.tolerance is not None:
            gaps = [row["canary_gap"] for row in run.rows]
            running.notes |= {"canary_tolerance": run.tolerance, "canary_gap_max": max(gaps, default=None)}


if __name__ == "__main__":
    typer.run(main)
