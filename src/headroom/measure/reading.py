"""The headroom reading: what a checkpoint's own samples say about GRPO, before any training.

Three quantities of a policy on pages that nothing else uses, each with an interval, named apart:

- **headroom** = mean success of samples at T=1 minus greedy success. GRPO raises the probability of what the policy
  already samples; where samples succeed more often than the greedy action, that is skill which greedy decoding lacks.
- **pass@k minus greedy**: at least one of k samples succeeds. It is larger by construction and says what *could* be
  found, not what a policy update will keep.
- **mixed-group share**: groups of samples of one page that hold a success and a failure. All others have a centred
  advantage of 0 and teach nothing.

Intervals are over tasks for a set and over pages for a task (headroom.measure.intervals). A page with an excluded
(infrastructure) episode is left out with a count.

The expectation, fixed beforehand, with the equivalence margin of the study as "a gain that matters":
*expect no gain* if the interval of the mixed-group share, or that of the headroom, ends below the margin; *expect
gain* if the latter begins above 0; *undecided* otherwise (it spans both). It speaks of greedy success on these tasks
at a learning rate that does no harm; it cannot see harm, and headroom is not always harvested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer

from headroom.config.jobs import ReadingJob, load_job
from headroom.config.models import Evaluation, MiniWobSettings, Statistics, WorldSettings
from headroom.files import write_csv, write_parquet, write_text
from headroom.measure import episodes
from headroom.measure.intervals import Interval, page_interval, task_interval
from headroom.measure.passk import mixed_share, pass_at_k
from headroom.measure.play import Player, open_player
from headroom.measure.reading_text import LIMITS, sentence
from headroom.measure.statistics import clusters
from headroom.measure.task_sets import EVERY, NAMES, labels, read_task_sets

Expectation = Literal["expect gain", "expect no gain", "undecided"]


@dataclass(frozen=True, slots=True)
class Reading:
    """``table``: one row a task and one a set (see :func:`tabulate`); ``sentences``: one a set, then the limits."""

    table: pd.DataFrame
    sentences: tuple[str, ...]
    episodes: pd.DataFrame


def pages(frame: pd.DataFrame, ks: Sequence[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Reduce an episode table to one row a page: task, task_set, seed, greedy, sampled, headroom, mixed, pass_at_k...

    Returns the table and the pages left out because one of their episodes is an infrastructure failure.

    Raises:
        ValueError: a page lacks its greedy episode or has another number of samples, or k exceeds the samples.
    """
    samples = int(frame.loc[frame["mode"] == "sampled", "sample"].max()) + 1
    sampled = frame["mode"] == "sampled"
    flags = frame.assign(
        is_greedy=~sampled,
        is_sample=sampled,
        greedy=frame["success"] & ~sampled,
        successes=frame["success"] & sampled,
        broken=~frame.index.isin(episodes.scored(frame).index),
    )
    sums = ["is_greedy", "is_sample", "greedy", "successes", "broken"]
    every = flags.groupby(["task", "task_set", "seed"], sort=True)[sums].sum().reset_index()
    wrong = every[(every["is_greedy"] != 1) | (every["is_sample"] != samples)]
    if len(wrong):
        first = wrong.iloc[0]
        raise ValueError(
            f"page ({first['task']}, {first['seed']}): {first['is_greedy']} greedy and {first['is_sample']} of "
            f"{samples} sampled episodes; play it again"
        )
    scored = every[every["broken"] == 0].reset_index(drop=True)
    table = scored[["task", "task_set", "seed"]].assign(
        greedy=scored["greedy"].astype(float), sampled=scored["successes"] / samples
    )
    table["headroom"] = table["sampled"] - table["greedy"]
    table["mixed"] = [mixed_share(samples, int(c), samples) for c in scored["successes"]]
    for k in ks:
        table[f"pass_at_{k}"] = [pass_at_k(samples, int(c), k) for c in scored["successes"]]
    return table, every.loc[every["broken"] > 0, ["task", "task_set", "seed"]]


def tabulate(frame: pd.DataFrame, *, evaluation: Evaluation, statistics: Statistics) -> pd.DataFrame:
    """The table of ``reading.csv``: sets first, then tasks.

    Columns: level (set | task), name, task_set, tasks, pages, excluded (pages), samples, greedy, sampled, headroom,
    headroom_low, headroom_high, interval_method, mixed_share, mixed_low, mixed_high, and for each k > 1 pass_at_k,
    pass_at_k_minus_greedy, ..._low, ..._high; expectation.
    """
    ks = [k for k in evaluation.pass_at if 1 < k <= evaluation.samples]
    table, dropped = pages(frame, ks)
    groups: list[tuple[str, str, str, pd.DataFrame, int]] = []
    for name in [n for n in (*NAMES, EVERY, "") if (frame["task_set"] == n).any()]:
        excluded = int((dropped["task_set"] == name).sum())
        groups.append(("set", name or "all", name, table[table["task_set"] == name], excluded))
    for task in sorted(frame["task"].unique()):
        part = table[table["task"] == task]
        of_set = str(frame.loc[frame["task"] == task, "task_set"].iloc[0])
        groups.append(("task", str(task), of_set, part, int((dropped["task"] == task).sum())))
    return pd.DataFrame(
        [
            {"level": level, "name": name, "task_set": of_set}
            | _row(part, excluded, ks=ks, by_page=level == "task", samples=evaluation.samples, statistics=statistics)
            for level, name, of_set, part, excluded in groups
        ]
    )


def _row(
    part: pd.DataFrame, excluded: int, *, ks: Sequence[int], by_page: bool, samples: int, statistics: Statistics
) -> dict[str, Any]:
    def interval(values: pd.Series[float], support: tuple[float, float]) -> Interval:
        if len(values) == 0:
            return Interval(math.nan, math.nan, "none")
        options: dict[str, Any] = {
            "confidence": statistics.confidence,
            "draws": statistics.bootstrap_draws,
            "seed": statistics.bootstrap_seed,
            "support": support,
        }
        if by_page:
            return page_interval(values.to_numpy(float), **options)
        return task_interval(clusters(part["task"].tolist(), values.to_numpy(float)), **options)

    headroom, mixed = interval(part["headroom"], (-1.0, 1.0)), interval(part["mixed"], (0.0, 1.0))
    row: dict[str, Any] = {
        "tasks": int(part["task"].nunique()),
        "pages": len(part),
        "excluded": excluded,
        "samples": samples,
        "greedy": part["greedy"].mean(),
        "sampled": part["sampled"].mean(),
        "headroom": part["headroom"].mean(),
        "headroom_low": headroom.low,
        "headroom_high": headroom.high,
        "interval_method": headroom.method,
        "mixed_share": part["mixed"].mean(),
        "mixed_low": mixed.low,
        "mixed_high": mixed.high,
    }
    for k in ks:
        gap = part[f"pass_at_{k}"] - part["greedy"]
        bounds = interval(gap, (-1.0, 1.0))
        row |= {
            f"pass_at_{k}": part[f"pass_at_{k}"].mean(),
            f"pass_at_{k}_minus_greedy": gap.mean(),
            f"pass_at_{k}_minus_greedy_low": bounds.low,
            f"pass_at_{k}_minus_greedy_high": bounds.high,
        }
    row["expectation"] = expectation(headroom, mixed, statistics.equivalence_margin)
    return row


def expectation(headroom: Interval, mixed: Interval, margin: float) -> Expectation:
    """The rule of the module's docstring. Without a scored page: undecided."""
    if mixed.high < margin or headroom.high < margin:
        return "expect no gain"
    return "expect gain" if headroom.low > 0.0 else "undecided"


def read_headroom(
    player: Player,
    *,
    policy: str,
    task_sets: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    evaluation: Evaluation,
    statistics: Statistics,
) -> Reading:
    """Play greedy and sampled episodes of all tasks in the sets, and reduce them to a reading."""
    tasks = [task for name in task_sets for task in task_sets[name]]
    frame = episodes.ordered(
        pd.concat(
            [
                episodes.table(player.greedy(tasks, seeds), policy=policy, mode="greedy", task_sets=task_sets),
                episodes.table(
                    player.sampled(tasks, seeds, evaluation.samples, evaluation.temperature),
                    policy=policy,
                    mode="sampled",
                    task_sets=task_sets,
                ),
            ],
            ignore_index=True,
        )
    )
    table = tabulate(frame, evaluation=evaluation, statistics=statistics)
    rows: list[dict[str, Any]] = table[table["level"] == "set"].to_dict("records")  # type: ignore[assignment]
    return Reading(table, (*(sentence(row, statistics) for row in rows), LIMITS), frame)


def run(
    checkpoint: Path,
    tasks: Sequence[str],
    world: WorldSettings | None = None,
    evaluation: Evaluation | None = None,
    statistics: Statistics | None = None,
) -> Reading:
    """The reading of any checkpoint directory on any tasks, on the reading seeds (``headroom reading``).

    Raises:
        ValueError: the checkpoint cannot be loaded, or a task is unknown or named twice.
    """
    if not tasks or len(set(tasks)) != len(tasks):
        raise ValueError(f"name at least one task, each once, not {', '.join(tasks) or 'none'}")
    settings = ReadingJob(
        world=world or MiniWobSettings(), evaluation=evaluation or Evaluation(), statistics=statistics or Statistics()
    )
    return _play(checkpoint, settings, policy=checkpoint.name, task_sets={"": tasks}, released=True)


def _play(
    checkpoint: Path,
    settings: ReadingJob,
    *,
    policy: str,
    task_sets: Mapping[str, Sequence[str]],
    notes: dict[str, Any] | None = None,
    released: bool = False,
) -> Reading:
    from headroom.worlds.seeds import pool

    evaluation = settings.evaluation
    with open_player(
        checkpoint,
        settings.world,
        seed=evaluation.seed,
        max_new_tokens=evaluation.max_new_tokens,
        label="reading",
        notes=notes,
        released=released,
    ) as player:
        return read_headroom(
            player,
            policy=policy,
            task_sets=task_sets,
            seeds=list(pool("reading", evaluation.seeds)),
            evaluation=evaluation,
            statistics=settings.statistics,
        )


def main(
    config: Annotated[Path, typer.Option(help="Resolved ReadingJob.")],
    checkpoint: Annotated[Path, typer.Option(help="The supervised checkpoint.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write episodes.parquet, reading.csv and reading.txt."""
    from headroom.provenance import record

    settings = load_job(config, ReadingJob)
    sets = read_task_sets(task_sets)
    with record.job(
        stage="measure.reading",
        output=output,
        inputs={"checkpoint": checkpoint, "task-sets": task_sets},
        config=config,
        seeds={"sampler": settings.evaluation.seed, "bootstrap": settings.statistics.bootstrap_seed},
    ) as job:
        reading = _play(checkpoint, settings, policy="sft", task_sets=labels(sets), notes=job.notes)
        write_parquet(job.output / "episodes.parquet", reading.episodes)
        write_csv(job.output / "reading.csv", reading.table)
        write_text(job.output / "reading.txt", "\n".join(reading.sentences) + "\n")
        of_sets = reading.table[reading.table["level"] == "set"]
        job.notes.update(zip(of_sets["name"], of_sets["expectation"], strict=True))
        job.notes["excluded pages"] = int(of_sets["excluded"].sum())
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
