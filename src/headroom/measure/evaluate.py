"""Evaluate one policy: greedy and sampled episodes on the evaluation seeds, the same pages for every policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from headroom.config.jobs import EvaluateJob, load_job
from headroom.files import write_parquet
from headroom.measure import episodes
from headroom.measure.play import Player, open_player
from headroom.measure.task_sets import read_task_sets, tasks_of


def evaluate(
    player: Player,
    *,
    policy: str,
    greedy_tasks: list[str],
    sampled_tasks: list[str],
    task_sets: dict[str, tuple[str, ...]],
    seeds: list[int],
    samples: int,
    temperature: float,
) -> pd.DataFrame:
    """Play all episodes of one policy; the table of ``episodes.parquet``."""
    parts = [
        episodes.table(player.greedy(greedy_tasks, seeds), policy=policy, mode="greedy", task_sets=task_sets),
        episodes.table(
            player.sampled(sampled_tasks, seeds, samples, temperature),
            policy=policy,
            mode="sampled",
            task_sets=task_sets,
        ),
    ]
    return episodes.ordered(pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True))


def summary(frame: pd.DataFrame) -> dict[str, object]:
    """Success by (task set, mode) and the number of excluded episodes, for the record."""
    counted = episodes.scored(frame)
    notes: dict[str, object] = {
        f"{task_set or 'all'} {mode} success": round(float(group["success"].mean()), 6)
        for (task_set, mode), group in counted.groupby(["task_set", "mode"])
    }
    return {**notes, "episodes": len(frame), "excluded episodes": len(frame) - len(counted)}


def main(
    config: Annotated[Path, typer.Option(help="Resolved EvaluateJob.")],
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint directory.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write episodes.parquet."""
    from headroom.provenance import record
    from headroom.worlds.seeds import pool

    settings = load_job(config, EvaluateJob)
    sets = read_task_sets(task_sets)
    evaluation = settings.evaluation
    with record.job(
        stage="measure.evaluate",
        output=output,
        inputs={"checkpoint": checkpoint, "task-sets": task_sets},
        config=config,
        seeds={"sampler": evaluation.seed},
    ) as job:
        with open_player(
            checkpoint,
            settings.world,
            seed=evaluation.seed,
            max_new_tokens=evaluation.max_new_tokens,
            label=settings.policy,
            notes=job.notes,
        ) as player:
            frame = evaluate(
                player,
                policy=settings.policy,
                greedy_tasks=tasks_of(sets, settings.greedy_on, task_sets),
                sampled_tasks=tasks_of(sets, settings.sampled_on, task_sets),
                task_sets=sets,
                seeds=list(pool("evaluation", evaluation.seeds)),
                samples=evaluation.samples,
                temperature=evaluation.temperature,
            )
        write_parquet(job.output / "episodes.parquet", frame)
        job.notes.update(summary(frame))
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
