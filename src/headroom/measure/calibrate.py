"""Which learning rates span no-op to collapse at a scale, measured on the selection pages.

A grid over learning rates says something only if its levels lie on both sides of the gate, and where the gate lies
depends on the model. This stage trains the study's own recipe at each rate and seed on the mastered set and plays the
same greedy episodes before and after. It is run once, by hand, when a scale is made; its result is copied into
``learning_rates`` of the scale's file. It reads selection pages only: choosing the levels on the evaluation pages
would choose the result.

The rule, on the mean over seeds of the difference in greedy success, fixed before the numbers are seen:

- ``low``: the largest rate up to which no rate lost more than ``HARMLESS``;
- ``lowest``: the smallest rate that was tried;
- ``high``: the smallest rate above ``low`` after which less than ``COLLAPSED`` of the initial success is left;
- ``middle``: the rate between ``low`` and ``high`` whose loss is nearest to half the initial success.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from headroom.config.jobs import GrpoJob, load_job
from headroom.files import write_csv, write_json
from headroom.measure import episodes
from headroom.measure.task_sets import read_task_sets, tasks_of

if TYPE_CHECKING:
    from headroom.train.grpo import Run
    from headroom.worlds.base import World

HARMLESS = 0.03
COLLAPSED = 0.10
LAST_STEPS = 5
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def propose(table: pd.DataFrame) -> dict[str, float | None]:
    """The level names and their rates, by the rule of the module; None where no rate that was tried fits.

    ``table`` has ``learning_rate``, ``before`` and ``after``, one row a run.
    """
    by_rate = table.groupby("learning_rate")[["before", "after"]].mean().sort_index()
    before, loss = by_rate["before"].iloc[0], by_rate["before"] - by_rate["after"]
    harmless = (loss <= HARMLESS).cummin()
    low = float(harmless[harmless].index[-1]) if harmless.any() else None
    above = by_rate.loc[by_rate.index > (low or 0.0)]
    gone = above.index[above["after"] < COLLAPSED * before]
    high = float(gone[0]) if len(gone) else None
    between = above.index[above.index < (high or float("inf"))]
    middle = float((loss[between] - before / 2).abs().idxmin()) if len(between) else None
    return {"lowest": float(by_rate.index[0]), "low": low, "middle": middle, "high": high}


def run_row(run: Run, before: pd.DataFrame, after: pd.DataFrame) -> dict[str, float | int | str]:
    """One run's numbers: greedy success on the same pages before and after, and how training looked at its end."""
    pairs = before.merge(after, on=episodes.KEY, suffixes=("_before", "_after"), validate="one_to_one")
    won, had = pairs["success_after"], pairs["success_before"]
    last = pd.DataFrame(run.rows[-LAST_STEPS:])
    return {
        "pages": len(pairs),
        "before": float(had.mean()),
        "after": float(won.mean()),
        "difference": float(won.mean() - had.mean()),
        "gained": int((won & ~had).sum()),
        "lost": int((had & ~won).sum()),
        "ending": run.ending,
        "steps": len(run.rows),
        **{
            f"last_{name}": float(last[name].astype("float64").mean()) if len(last) else float("nan")
            for name in ("success", "invalid_share", "live_groups", "entropy", "weight_change")
        },
    }


def calibrate(
    world: World,
    checkpoint: Path,
    job: GrpoJob,
    tasks: Sequence[str],
    rates: Sequence[float],
    seeds: Sequence[int],
    pages: Sequence[int],
    scratch: Path,
) -> pd.DataFrame:
    """Train each (rate, seed) from ``checkpoint`` and play ``tasks`` x ``pages`` greedily before and after."""
    from headroom.measure.play import PolicyPlayer
    from headroom.policy.load import Policy, load_policy
    from headroom.policy.sampler import TorchSampler
    from headroom.train.grpo import train
    from headroom.worlds.seeds import pool

    def play(policy: Policy, label: str) -> pd.DataFrame:
        sampler = TorchSampler(policy.model, policy.codec.end_ids)
        player = PolicyPlayer(
            world, policy, sampler, job.world, seed=0, max_new_tokens=job.grpo.max_new_tokens, label=label
        )
        frame = episodes.table(player.greedy(tasks, pages), policy="", mode="greedy")
        return episodes.scored(frame)[[*episodes.KEY, "success"]]

    before, rows, began = play(load_policy(checkpoint), "before"), [], time.monotonic()
    grid = [(rate, seed) for rate in rates for seed in seeds]
    for number, (rate, seed) in enumerate(grid, start=1):
        changed = job.grpo.model_dump() | {"learning_rate": rate, "seed": seed, "run": f"{rate:g}/{seed}"}
        changed["validation"] = {}  # the play before and after says what is asked here
        settings = GrpoJob.model_validate({"world": job.world.model_dump(), "grpo": changed})
        policy = load_policy(checkpoint)
        reference = load_policy(checkpoint).model.requires_grad_(False) if settings.grpo.kl_beta > 0 else None
        folder = scratch / f"{rate:g}-{seed}"
        run = train(policy, reference, world, settings, tasks, pool("train"), scratch=folder)
        row = run_row(run, before, play(policy, f"{rate:g}, seed {seed}"))
        rows.append({"learning_rate": rate, "seed": seed, **row})
        left = (time.monotonic() - began) / number * (len(grid) - number)
        print(
            f"run {number}/{len(grid)}  learning rate {rate:g}  seed {seed}  greedy {row['before']:.3f} -> "
            f"{row['after']:.3f}  {run.ending}  ETA {left:.0f} s",
            flush=True,
        )
    return pd.DataFrame(rows)


def main(
    config: Annotated[
        Path, typer.Option(help="Resolved GrpoJob whose recipe is used; its rate and seed are replaced.")
    ],
    checkpoint: Annotated[Path, typer.Option(help="Checkpoint folder that every run starts from.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the select stage.")],
    output: Annotated[Path, typer.Option(help="Folder for calibration.csv and levels.json.")],
    rate: Annotated[list[float] | None, typer.Option(help="A learning rate; repeat for more.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="A training seed; repeat for more.")] = None,
    pages: Annotated[int, typer.Option(help="Selection pages a task.")] = 25,
) -> None:
    """Measure greedy success before and after training at each rate, and name the levels of the grid."""
    from headroom.agent.dialect import check_dialect
    from headroom.policy.repeatable import repeatable
    from headroom.provenance import record
    from headroom.worlds.open import open_world
    from headroom.worlds.seeds import pool

    repeatable()
    job_settings = load_job(config, GrpoJob)
    rates, seeds = sorted(set(rate or RATES)), sorted(set(seed or (1000, 1001)))
    inputs = {"checkpoint": checkpoint, "task_sets": task_sets}
    named = {f"grpo.{number}": value for number, value in enumerate(seeds)}
    with record.job("measure.calibrate", output, inputs=inputs, config=config, seeds=named) as job:
        tasks = tasks_of(read_task_sets(task_sets), [job_settings.grpo.tasks], task_sets)
        try:
            check_dialect(checkpoint, job_settings.world.kind)
            with open_world(job_settings.world) as world:
                table = calibrate(
                    world, checkpoint, job_settings, tasks, rates, seeds, pool("selection", pages), job.scratch()
                )
        except ValueError as error:
            raise SystemExit(str(error)) from error
        levels = propose(table)
        write_csv(job.output / "calibration.csv", table)
        write_json(job.output / "levels.json", levels)
        job.notes |= {"rates": rates, "pages": pages, "levels": levels}
        for name, value in levels.items():
            print(f"{name}: {'no rate that was tried' if value is None else f'{value:g}'}")


if __name__ == "__main__":
    typer.run(main)
