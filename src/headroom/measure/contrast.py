"""Contrast every policy with the reference (the supervised policy) on the same episodes.

``contrasts.csv``: one row a policy x task set x mode. ``task_contrasts.csv``: the same by task. ``replication.csv``:
one row a setting that several training seeds share (headroom.measure.replication). ``init_contrasts.csv``: the runs
that start from another initialisation against that one, since against the reference they also carry the difference
between the two initialisations.

*Greedy*: the pair is one page, and every statistic applies. *Sampled*: sample i of one policy has nothing to do with
sample i of another beyond the random numbers, so a page's samples are averaged first, the pair is the page's two
means, and McNemar's test with its counts of gained and lost is left empty. If two policies have different numbers of
samples a page, the first samples that both have are compared. Beside it stand both policies' unbiased pass@k for
k = 1, 2, 4 ... up to the fewer samples, each from all samples that it has: ``reference_pass_at_k``,
``policy_pass_at_k``. A page counts for a k if both have k scored samples there, so the two are comparable.

Holm's correction runs over the policies of one family (the grid, for one) and task set, greedy. No row is without
its equivalence test and minimum detectable effect, so a null cannot be read off a wide interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from headroom.config.jobs import ContrastJob, load_job
from headroom.config.models import Statistics
from headroom.files import write_csv
from headroom.measure import episodes
from headroom.measure.intervals import page_interval, task_interval
from headroom.measure.passk import pass_at_k
from headroom.measure.replication import replicate
from headroom.measure.run_table import read_runs
from headroom.measure.statistics import clusters, equivalence, holm, mcnemar_exact, minimum_detectable_effect
from headroom.measure.task_sets import labels, read_task_sets

MODES: tuple[episodes.Mode, ...] = ("greedy", "sampled")
Key = tuple[str, str, episodes.Mode]  # policy, task set, mode


def page_pairs(
    reference: pd.DataFrame, policy: pd.DataFrame, tasks: Sequence[str], mode: episodes.Mode
) -> tuple[pd.DataFrame, int] | None:
    """Pair two policies on the pages of a task set: (task, seed, reference, policy, difference), and the exclusions.

    ``reference`` and ``policy`` are success (greedy) or mean success over samples, float64. None if the policy has
    no episodes there.

    Raises:
        ValueError: the two were not evaluated on the same episodes.
    """
    left = reference[(reference["mode"] == mode) & reference["task"].isin(tasks)]
    right = policy[(policy["mode"] == mode) & policy["task"].isin(tasks)]
    if right.empty:
        return None
    complete = left, right
    if mode == "sampled" and len(left):
        samples = min(left["sample"].max(), right["sample"].max())
        left, right = left[left["sample"] <= samples], right[right["sample"] <= samples]
    pairs, excluded = episodes.pair(left, right)
    pages = pairs.astype({"reference": "float64", "policy": "float64"})
    pages = pages.groupby(["task", "seed"], sort=True)[["reference", "policy"]].mean().reset_index()
    pages["difference"] = pages["policy"] - pages["reference"]
    if mode == "sampled":
        pages = pages.merge(_page_pass_at(*complete), on=["task", "seed"], how="left")
    return pages, excluded


def _page_pass_at(reference: pd.DataFrame, policy: pd.DataFrame) -> pd.DataFrame:
    """(task, seed) -> both policies' pass@k of that page; NaN for both where either has fewer than k samples."""
    sides = {}
    for side, frame in (("reference", reference), ("policy", policy)):
        counted = episodes.scored(frame)
        sides[side] = counted.groupby(["task", "seed"])["success"].agg(["count", "sum"])
        sides[side] = sides[side].astype("int64").add_suffix(f"_{side}")
    both = sides["reference"].join(sides["policy"], how="inner")
    fewest = both[["count_reference", "count_policy"]].min(axis=1)
    table, k = both[[]].copy(), 1
    while k <= fewest.max():
        for side in sides:
            counts = zip(both[f"count_{side}"], both[f"sum_{side}"], fewest, strict=True)
            table[f"{side}_pass_at_{k}"] = [pass_at_k(n, c, k) if least >= k else math.nan for n, c, least in counts]
        k *= 2
    return table.reset_index()


def contrast(pages: pd.DataFrame, mode: episodes.Mode, statistics: Statistics) -> dict[str, Any]:
    """The statistics of one row of ``contrasts.csv`` from its pairs (one row a page)."""
    if pages.empty:
        return {"pairs": 0, "tasks": 0, "equivalent": False}
    values = clusters(pages["task"].tolist(), pages["difference"].to_numpy(float))
    bounds = task_interval(
        values,
        confidence=statistics.confidence,
        draws=statistics.bootstrap_draws,
        seed=statistics.bootstrap_seed,
    )
    tost_p = equivalence(values, statistics.equivalence_margin)
    return {
        "pairs": values.pairs,
        "tasks": len(values.tasks),
        "reference_success": float(pages["reference"].mean()),
        "policy_success": float(pages["policy"].mean()),
        "difference": values.mean,
        "ci_low": bounds.low,
        "ci_high": bounds.high,
        "interval_method": bounds.method,
        **_discordant(pages, mode),
        "tost_p": tost_p,
        "equivalent": bool(tost_p <= 1.0 - statistics.confidence + 1e-12),
        "minimum_detectable_effect": minimum_detectable_effect(
            values, statistics.confidence, statistics.power, binary=mode == "greedy"
        ),
        **{str(column): float(pages[column].mean()) for column in pages if "_pass_at_" in str(column)},
    }


def _discordant(pages: pd.DataFrame, mode: episodes.Mode) -> dict[str, Any]:
    if mode == "sampled":
        return {"gained": None, "lost": None, "mcnemar_p": math.nan}
    gained, lost = int((pages["difference"] > 0).sum()), int((pages["difference"] < 0).sum())
    return {"gained": gained, "lost": lost, "mcnemar_p": mcnemar_exact(gained, lost)}


def by_task(pages: pd.DataFrame, mode: episodes.Mode, statistics: Statistics) -> list[dict[str, Any]]:
    """The rows of ``task_contrasts.csv``: each task's difference, with an interval over its pages."""
    rows = []
    for task, part in pages.groupby("task", sort=True):
        bounds = page_interval(
            part["difference"].to_numpy(float),
            confidence=statistics.confidence,
            draws=statistics.bootstrap_draws,
            seed=statistics.bootstrap_seed,
        )
        rows.append(
            {
                "task": task,
                "pairs": len(part),
                "reference_success": float(part["reference"].mean()),
                "policy_success": float(part["policy"].mean()),
                "difference": float(part["difference"].mean()),
                "ci_low": bounds.low,
                "ci_high": bounds.high,
                "interval_method": bounds.method,
                **_discordant(part, mode),
            }
        )
    return rows


def contrasts(
    reference: pd.DataFrame,
    policies: Mapping[str, pd.DataFrame],
    runs: pd.DataFrame,
    task_sets: Mapping[str, Sequence[str]],
    statistics: Statistics,
) -> dict[str, pd.DataFrame]:
    """All tables, by file name. A policy that is not in ``runs`` (an initialisation) has empty run columns.

    Raises:
        ValueError: a policy was not evaluated on the reference's episodes; the message names both.
    """
    pages, excluded = pair_all(reference, policies, runs, task_sets)
    own_pages: dict[Key, pd.DataFrame] = {}
    own_excluded: dict[Key, int] = {}
    for init in sorted(set(runs["init"]) & set(policies)):
        started = {run: policies[run] for run in runs.index[runs["init"] == init] if run in policies}
        more, counts = pair_all(policies[init], started, runs, task_sets)
        own_pages |= more
        own_excluded |= counts
    task_rows = [
        {"policy": policy, "task_set": task_set, "mode": mode, **row}
        for (policy, task_set, mode), part in pages.items()
        for row in by_task(part, mode, statistics)
    ]
    return {
        "contrasts.csv": tabulate(pages, excluded, runs, statistics),
        "init_contrasts.csv": tabulate(own_pages, own_excluded, runs, statistics),
        "task_contrasts.csv": pd.DataFrame(task_rows),
        "replication.csv": replicate(pages, runs, statistics),
    }


def pair_all(
    reference: pd.DataFrame,
    policies: Mapping[str, pd.DataFrame],
    runs: pd.DataFrame,
    task_sets: Mapping[str, Sequence[str]],
) -> tuple[dict[Key, pd.DataFrame], dict[Key, int]]:
    """The pairs and the number of excluded ones by (policy, task set, mode); initialisations first, then runs."""
    order = {run: place for place, run in enumerate(runs.index)}
    pages: dict[Key, pd.DataFrame] = {}
    excluded: dict[Key, int] = {}
    for name in sorted(policies, key=lambda policy: (order.get(policy, -1), policy)):
        for task_set in task_sets:
            for mode in MODES:
                try:
                    found = page_pairs(reference, policies[name], task_sets[task_set], mode)
                except ValueError as error:
                    raise ValueError(f"policy {name}, {task_set} {mode}: {error}") from error
                if found is not None:
                    pages[name, task_set, mode], excluded[name, task_set, mode] = found
    return pages, excluded


def tabulate(
    pages: Mapping[Key, pd.DataFrame], excluded: Mapping[Key, int], runs: pd.DataFrame, statistics: Statistics
) -> pd.DataFrame:
    """One row of settings and statistics for each (policy, task set, mode)."""
    rows = []
    for (name, task_set, mode), part in pages.items():
        settings = {column: runs.at[name, column] if name in runs.index else None for column in runs.columns}
        key = {"policy": name, **settings, "task_set": task_set, "mode": mode}
        rows.append(key | contrast(part, mode, statistics) | {"excluded": excluded[name, task_set, mode]})
    return _with_holm(pd.DataFrame(rows, columns=None if rows else ["policy", *runs.columns, "task_set", "mode"]))


def _with_holm(table: pd.DataFrame) -> pd.DataFrame:
    """Add ``holm_p`` after ``mcnemar_p``: within (family, task set), greedy, runs of the table only."""
    if table.empty:
        return table
    adjusted = pd.Series(math.nan, index=table.index)
    primary = table[(table["mode"] == "greedy") & table["family"].notna()]
    for _, family in primary.groupby(["family", "task_set"]):
        adjusted[family.index] = holm(family["mcnemar_p"].to_numpy(float))
    table.insert(table.columns.tolist().index("mcnemar_p") + 1, "holm_p", adjusted)
    counted = (name for name in ("gained", "lost", "group_size", "seed") if name in table)
    return table.astype(dict.fromkeys(counted, "Int64"))


def main(
    policies: Annotated[list[Path], typer.Argument(help="Evaluation directories of the policies, after --.")],
    config: Annotated[Path, typer.Option(help="Resolved ContrastJob.")],
    runs: Annotated[Path, typer.Option(help="The run table.")],
    reference: Annotated[Path, typer.Option(help="Evaluation directory of the supervised policy.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write contrasts.csv, init_contrasts.csv, replication.csv and task_contrasts.csv."""
    from headroom.provenance import record

    settings = load_job(config, ContrastJob)
    with record.job(
        stage="measure.contrast",
        output=output,
        inputs={"policies": policies, "runs": runs, "reference": reference, "task-sets": task_sets},
        config=config,
        seeds={"bootstrap": settings.statistics.bootstrap_seed},
    ) as job:
        tables: dict[str, pd.DataFrame] = {}
        for directory in policies:
            if directory.resolve() == reference.resolve():  # contrasting it with itself says nothing
                continue
            frame = episodes.read(directory)
            names = frame["policy"].unique().tolist()
            if len(names) != 1 or names[0] in tables:
                raise SystemExit(f"{directory}: holds the policies {names}; needs one, and each policy once")
            tables[names[0]] = frame
        result = contrasts(
            episodes.read(reference),
            tables,
            read_runs(runs, settings.learning_rates),
            labels(read_task_sets(task_sets)),
            settings.statistics,
        )
        for name, table in result.items():
            write_csv(job.output / name, table)
        job.notes["policies"] = len(tables)
        job.notes["excluded pairs"] = int(result["contrasts.csv"]["excluded"].sum())
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
