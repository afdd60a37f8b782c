"""How many pages of the held-out pools a policy may have met in training, to the letter.

The pools are disjoint in their page seeds; a task with few contents can still show one page under many seeds. For
each task, the share of the selection, reading and evaluation pages, and of the validation pages where runs validate,
whose goal and first page text also occur among the pages of the demonstrations (``*_in_demonstrations``), among those
that the GRPO runs of the study play, all of them together (``*_in_grpo``), and in either (``*_met``). Where things
stand on the page does not count: of the tasks that differ in layout alone, every page counts as met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from headroom.config.jobs import Draw, OverlapJob, load_job
from headroom.files import write_csv
from headroom.measure.task_sets import labels, read_task_sets
from headroom.train.groups import step_pages
from headroom.worlds.base import World
from headroom.worlds.seeds import content_overlap, pool


def played_pages(
    runs: Iterable[Draw], task_sets: Mapping[str, Sequence[str]], seeds: Sequence[int]
) -> dict[str, set[int]]:
    """Task -> the page seeds that any of the runs plays."""
    found: dict[str, set[int]] = {}
    for run in runs:
        for step in range(run.steps):
            pages = step_pages(task_sets[run.tasks], seeds, seed=run.seed, step=step, count=run.pages_per_step)
            for task, seed in pages:
                found.setdefault(task, set()).add(seed)
    return found


def shares(
    world: World, task: str, demonstrated: Sequence[int], played: Iterable[int], held_out: Mapping[str, Sequence[int]]
) -> dict[str, float]:
    """Share of each held-out pool that is met; the world keeps what it showed, so a page is opened once."""
    trained = {
        "in_demonstrations": list(demonstrated),
        "in_grpo": sorted(played),
        "met": sorted({*demonstrated, *played}),
    }
    found: dict[str, float] = {}
    for how, pages in trained.items():
        none = dict.fromkeys(held_out, 0.0)
        met = content_overlap(world, [task], {"train": pages, **held_out})[task] if pages else none
        found |= {f"{name}_{how}": share for name, share in met.items()}
    return {f"{name}_{how}": found[f"{name}_{how}"] for name in held_out for how in trained}


def main(
    config: Annotated[Path, typer.Option(help="Resolved OverlapJob.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection: which run plays which tasks.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write overlap.csv: task, its set, pages trained on, then pages and shares met for each held-out pool."""
    from headroom.progress import Progress
    from headroom.provenance import record
    from headroom.worlds.open import open_world

    settings = load_job(config, OverlapJob)
    sets = read_task_sets(task_sets)
    held_out = {name: pool(name, count) for name, count in settings.held_out.items()}
    set_of = {task: name for name, tasks in labels(sets).items() for task in tasks}
    rows = []
    with (
        record.job(stage="measure.overlap", output=output, inputs={"task-sets": task_sets}, config=config) as job,
        open_world(settings.world, job.notes) as world,
        Progress("overlap", len(settings.demonstrations)) as progress,
    ):
        played = played_pages(settings.runs, sets, pool("train"))
        for done, (task, count) in enumerate(sorted(settings.demonstrations.items()), start=1):
            own = played.get(task, set())
            rows.append(
                {"task": task, "task_set": set_of.get(task, ""), "demonstrations": count, "grpo_pages": len(own)}
                | {f"{name}_pages": len(seeds) for name, seeds in held_out.items()}
                | shares(world, task, pool("train", count), own, held_out)
            )
            progress.update(done, task)
        write_csv(job.output / "overlap.csv", pd.DataFrame(rows))
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
