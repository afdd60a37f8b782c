"""How many pages of the held-out pools a policy may have met in training, to the letter.

The pools are disjoint in their page seeds; a task with few contents can still show one page under many seeds. For
each task, the share of the selection, reading and evaluation pages whose goal and first page text also occur among
the pages of the demonstrations. Where things stand on the page does not count: of the tasks that differ in layout
alone, every page counts as met.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from headroom.config.jobs import OverlapJob, load_job
from headroom.files import write_csv
from headroom.worlds.seeds import content_overlap, pool


def main(
    config: Annotated[Path, typer.Option(help="Resolved OverlapJob.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write overlap.csv: task, demonstrations (pages), then pages and share already met for each held-out pool."""
    from headroom.progress import Progress
    from headroom.provenance import record
    from headroom.worlds.miniwob.world import MiniWob

    settings = load_job(config, OverlapJob)
    held_out = {name: pool(name, count) for name, count in settings.held_out.items()}
    rows = []
    with (
        record.job(stage="measure.overlap", output=output, config=config) as job,
        MiniWob(settings.world) as world,
        Progress("overlap", len(settings.demonstrations)) as progress,
    ):
        for done, (task, count) in enumerate(sorted(settings.demonstrations.items()), start=1):
            shares = content_overlap(world, [task], {"train": pool("train", count), **held_out})[task]
            counts = {f"{name}_pages": len(seeds) for name, seeds in held_out.items()}
            rows.append({"task": task, "demonstrations": count, **counts, **{f"{n}_met": s for n, s in shares.items()}})
            progress.update(done, task)
        write_csv(job.output / "overlap.csv", pd.DataFrame(rows))
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
