"""The dark room in two tables: every arm's endpoint from its validation, and its course.

``dark_room.csv`` has a row a run and, below them, a row an arm (``row``: run | arm). The *endpoint* is the mean success
of a run's last validations (``last`` of them, as in arXiv 2607.21273). All of them play the same pages, so they are no
independent draws: the interval of a run is Wilson's (1927) for the episodes of *one* validation ("wilson"); that of an
arm with several training seeds is Student's t over their endpoints ("seeds", :func:`intervals.seed_interval`), and of
an arm with one seed that of its run. Beside the endpoint stand, over the same validations, the prediction score, the
turns and their share of the horizon (1: every episode ran into it).

*Warning*: the first validation at which three things hold at once, of which entropy alone gives false alarms: the
entropy of the training steps since the validation before is at most ``ENTROPY_SHARE`` of that at the run's first
validation, the prediction score is at least ``PREDICTED``, and episodes fill at least ``PINNED`` of the horizon. Fixed
before any run. NaN: it never came, or a run predicts nothing.

``validation.csv`` has a row a run and validation: the numbers above as they went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from scipy import stats

from headroom.config.jobs import DarkRoomArm, DarkRoomJob, load_job
from headroom.files import write_csv
from headroom.measure.intervals import Interval, seed_interval

ENTROPY_SHARE = 0.5
PREDICTED = 0.9
PINNED = 0.95

CURVE = [
    "step",
    "episodes",
    "excluded",
    "success",
    "prediction_score",
    "turns",
    "length_share",
    "invalid_share",
    "entropy",
]
"""Columns of ``validation.csv`` behind run, arm and seed."""
MEANS = ["success", "prediction_score", "turns", "length_share", "invalid_share"]


def wilson(share: float, episodes: float, confidence: float) -> Interval:
    """Wilson's score interval of a share of so many episodes; NaN without one."""
    if not episodes > 0 or math.isnan(share):
        return Interval(math.nan, math.nan, "none")
    z = float(stats.norm.ppf((1 + confidence) / 2))
    scale = 1 + z**2 / episodes
    centre = (share + z**2 / (2 * episodes)) / scale
    half = z * math.sqrt(share * (1 - share) / episodes + z**2 / (4 * episodes**2)) / scale
    return Interval(max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share)), "wilson")


def curve(steps: pd.DataFrame, validation: pd.DataFrame, horizon: int) -> pd.DataFrame:
    """The validations of one run with :data:`CURVE`'s columns, sorted by step.

    ``entropy`` (nats a token) is the mean over the training steps since the validation before.
    """
    table = validation.sort_values("step", kind="stable").reset_index(drop=True)
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in ("success", "prediction_score", "turns")}
    table = table.assign(**numbers, length_share=numbers["turns"] / horizon)
    edges = [-math.inf, *table["step"].astype(float)]
    entropy = []
    for low, high in pairwise(edges):
        between = steps.loc[(steps["step"] > low) & (steps["step"] <= high), "entropy"]
        entropy.append(float(pd.to_numeric(between, errors="coerce").mean()) if len(between) else math.nan)
    return table.assign(entropy=entropy)[CURVE]


def warned(course: pd.DataFrame) -> float:
    """The step of the first warning of a run's :func:`curve`; NaN if there is none."""
    entropy = course["entropy"].to_numpy(dtype=np.float64)
    known = entropy[np.isfinite(entropy)]
    if not len(known):
        return math.nan
    hit = (
        (entropy <= ENTROPY_SHARE * known[0])
        & (course["prediction_score"].to_numpy(dtype=np.float64) >= PREDICTED)
        & (course["length_share"].to_numpy(dtype=np.float64) >= PINNED)
    )
    return float(course["step"].to_numpy()[hit.argmax()]) if hit.any() else math.nan


def endpoint(course: pd.DataFrame, last: int, confidence: float) -> dict[str, Any]:
    """The row of one run from its :func:`curve`; with fewer validations than ``last``, of those there are."""
    end = course.tail(last)
    scored = (end["episodes"] - end["excluded"]).mean()
    means = {name: float(end[name].mean()) for name in MEANS}
    bounds = wilson(means["success"], float(scored), confidence)
    return {
        "validations": len(end),
        "episodes": float(scored),
        "excluded": int(end["excluded"].sum()),
        **means,
        "success_low": bounds.low,
        "success_high": bounds.high,
        "interval_method": bounds.method,
        "warning_step": warned(course),
    }


def arm_row(runs: pd.DataFrame, confidence: float) -> dict[str, Any]:
    """The row of one arm from those of its runs."""
    bounds = seed_interval(runs["success"].to_numpy(dtype=np.float64), confidence)
    if len(runs) == 1:
        only = runs.iloc[0]
        bounds = Interval(only["success_low"], only["success_high"], only["interval_method"])
    return {
        "seeds": len(runs),
        "validations": int(runs["validations"].min()),
        "episodes": float(runs["episodes"].mean()),
        "excluded": int(runs["excluded"].sum()),
        **{name: float(runs[name].mean()) for name in MEANS},
        "success_low": max(bounds.low, 0.0) if not math.isnan(bounds.low) else math.nan,
        "success_high": min(bounds.high, 1.0) if not math.isnan(bounds.high) else math.nan,
        "interval_method": bounds.method,
        "warning_step": float(runs["warning_step"].min()),
        "warned": int(runs["warning_step"].notna().sum()),
    }


def tabulate(
    arms: Mapping[str, DarkRoomArm], courses: Mapping[str, pd.DataFrame], confidence: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``dark_room.csv`` and ``validation.csv``, runs and arms in the order of the settings."""
    rows: list[dict[str, Any]] = []
    curves = []
    for run, what in arms.items():
        key: dict[str, Any] = {"run": run, "arm": what.arm, "seed": what.seed}
        found = endpoint(courses[run], what.last, confidence)
        rows.append({"row": "run", **key, "seeds": 1, **found, "warned": int(not math.isnan(found["warning_step"]))})
        curves.append(courses[run].assign(**key)[[*key, *CURVE]])
    table = pd.DataFrame(rows)
    together = [
        {"row": "arm", "run": "", "arm": arm, "seed": None, **arm_row(own, confidence)}
        for arm, own in table.groupby("arm", sort=False)
    ]
    every = pd.DataFrame([*rows, *together])[table.columns]
    return every.astype({"seed": "Int64"}), pd.concat(curves, ignore_index=True)


def read_run(folder: Path, horizon: int) -> pd.DataFrame:
    """The :func:`curve` of a GRPO directory.

    Raises:
        SystemExit: a table is missing or lacks a column; the message names the file.
    """
    needed = {"steps.parquet": ["step", "entropy"], "validation.parquet": ["step", "episodes", "success", "turns"]}
    needed["validation.parquet"] += ["invalid_share", "prediction_score", "excluded"]
    tables = []
    for name, columns in needed.items():
        try:
            tables.append(pd.read_parquet(folder / name)[columns])
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{folder / name}: cannot be read ({error}); run the rule that makes it") from error
    return curve(tables[0], tables[1], horizon)


def main(
    runs: Annotated[list[Path], typer.Argument(help="GRPO directories of all arms, after --.")],
    config: Annotated[Path, typer.Option(help="Resolved DarkRoomJob.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write dark_room.csv and validation.csv."""
    from headroom.provenance import record

    settings = load_job(config, DarkRoomJob)
    with record.job(stage="measure.dark_room", output=output, inputs={"runs": runs}, config=config) as job:
        folders = {folder.name: folder for folder in runs}
        if missing := sorted(settings.arms.keys() - folders.keys()):
            raise SystemExit(f"no directory of {', '.join(missing)} among the runs; name it, too")
        courses = {run: read_run(folders[run], what.horizon) for run, what in settings.arms.items()}
        table, curves = tabulate(settings.arms, courses, settings.statistics.confidence)
        write_csv(job.output / "dark_room.csv", table)
        write_csv(job.output / "validation.csv", curves)
        of_arms = table[table["row"] == "arm"]
        job.notes.update(
            {
                f"{arm} success": round(float(value), 6)
                for arm, value in zip(of_arms["arm"], of_arms["success"], strict=True)
            }
        )
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
