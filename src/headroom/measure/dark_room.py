"""The dark room in four tables: every arm's endpoint from its validation, its course, and what its failing groups paid.

``dark_room.csv`` has a row a run and, below them, a row an arm (``row``: run | arm). The *endpoint* is the mean
success of a run's last validations (``last`` of them, as in arXiv 2607.21273); a policy that has no finite
probabilities any more plays nothing and counts as 0. All validations play the same pages, so they are no independent
draws: the interval of a run is Wilson's (1927) for the episodes of *one* validation ("wilson"); that of an arm with
several training seeds is Student's t over their endpoints ("seeds", :func:`intervals.seed_interval`), and of an arm
with one seed that of its run. Seeds that agree exactly leave Student's t no width: there it is Wilson's for one
validation of each. Beside the endpoint stand, over the same validations, the prediction score, the share of right
answers to the anchor question (``anchor_score``), the confidence that the agent says and the turns; and over the
training steps since the validation before them the share of episodes that ran to the turn limit (``horizon_share``).

``warning_step``: finished training steps when :func:`headroom.train.dark_room.early_warning` first held (entropy
fallen, predictions right, episodes at the turn limit, all at once). Empty: it never did, or the run predicts nothing.

``validation.csv`` has a row a run and validation: the numbers above as they went. ``signs.csv`` (a row a run) and
``failing_groups.csv`` (a row an all-fail group of a run with a signal) are :mod:`headroom.measure.failing_groups`'s.
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

from headroom.config.jobs import DarkRoomArm, DarkRoomJob, load_job
from headroom.files import write_csv
from headroom.measure.failing_groups import GROUPS, group_rows, signs
from headroom.measure.intervals import seed_interval
from headroom.measure.shares import agree, wilson
from headroom.train.dark_room import early_warning

SAID = ["prediction_score", "anchor_score", "confidence"]
CURVE = ["step", "episodes", "excluded", "success", *SAID, "turns", "invalid_share", "entropy", "horizon_share"]
"""Columns of ``validation.csv`` behind run, arm and seed."""
MEANS = ["success", *SAID, "turns", "invalid_share", "horizon_share"]
SIGNS = ["entropy", "prediction_score", "horizon_share"]
"""Columns of ``steps.parquet`` that the warning looks at."""


def curve(steps: pd.DataFrame, validation: pd.DataFrame) -> pd.DataFrame:
    """The validations of one run with :data:`CURVE`'s columns, sorted by step (finished training steps).

    ``entropy`` (nats a token) and ``horizon_share`` are means over the training steps since the validation before; NaN
    at the first one, which comes before any.
    """
    table = validation.sort_values("step", kind="stable").reset_index(drop=True)
    silent = (table["episodes"] == 0) & (table["excluded"] == 0)
    table["success"] = table["success"].astype("float64").mask(silent, 0.0)
    edges = [-math.inf, *table["step"].astype(float)]
    done = steps["step"] + 1  # a row's step counts those before it
    for name in ("entropy", "horizon_share"):
        values = steps[name].astype("float64")
        table[name] = [float(values[(done > low) & (done <= high)].mean()) for low, high in pairwise(edges)]
    return table[CURVE]


def warned(steps: pd.DataFrame) -> float:
    """The finished training steps at the first warning of a run; NaN if there was none."""
    signs = steps.sort_values("step", kind="stable")
    values = signs[SIGNS].astype(object).where(signs[SIGNS].notna(), None)
    rows: list[dict[str, Any]] = values.to_dict("records")  # type: ignore[assignment]
    numbers = signs["step"].tolist()
    return next((float(numbers[n] + 1) for n in range(len(rows)) if early_warning(rows[: n + 1])), math.nan)


def endpoint(course: pd.DataFrame, warning: float, last: int, confidence: float) -> dict[str, Any]:
    """The row of one run from its :func:`curve`; with fewer validations than ``last``, of those there are.

    The success of a run that ends without finite probabilities is 0: what it was before is no part of its end.
    """
    end = course.tail(last)
    scored = end.loc[end["episodes"] > 0, "episodes"].mean()
    means = {name: float(end[name].mean()) for name in MEANS}
    if len(end) and end["episodes"].iloc[-1] == 0 and end["excluded"].iloc[-1] == 0:
        means["success"] = 0.0
    bounds = wilson(means["success"], float(scored), confidence)
    return {
        "validations": len(end),
        "episodes": float(scored),
        "excluded": int(end["excluded"].sum()),
        **means,
        "success_low": bounds.low,
        "success_high": bounds.high,
        "interval_method": bounds.method,
        "warning_step": warning,
    }


def arm_row(runs: pd.DataFrame, confidence: float) -> dict[str, Any]:
    """The row of one arm from those of its runs."""
    ends = runs["success"].to_numpy(dtype=np.float64)
    scored = float(runs["episodes"].sum())
    bounds = wilson(float(ends.mean()), scored, confidence) if agree(ends) else seed_interval(ends, confidence)
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
    arms: Mapping[str, DarkRoomArm],
    courses: Mapping[str, pd.DataFrame],
    warnings: Mapping[str, float],
    confidence: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``dark_room.csv`` and ``validation.csv``, runs and arms in the order of the settings."""
    rows: list[dict[str, Any]] = []
    curves = []
    for run, what in arms.items():
        key: dict[str, Any] = {"run": run, "arm": what.arm, "seed": what.seed}
        found = endpoint(courses[run], warnings[run], what.last, confidence)
        rows.append({"row": "run", **key, "seeds": 1, **found, "warned": int(not math.isnan(found["warning_step"]))})
        curves.append(courses[run].assign(**key)[[*key, *CURVE]])
    table = pd.DataFrame(rows)
    together = [
        {"row": "arm", "run": "", "arm": arm, "seed": None, **arm_row(own, confidence)}
        for arm, own in table.groupby("arm", sort=False)
    ]
    every = pd.DataFrame([*rows, *together])[table.columns]
    return every.astype({"seed": "Int64"}), pd.concat(curves, ignore_index=True)


def read_run(folder: Path) -> tuple[pd.DataFrame, float]:
    """The :func:`curve` of a GRPO directory, and its first warning.

    Raises:
        SystemExit: a table is missing or lacks a column; the message names the file.
    """
    validated = ["step", "episodes", "success", "turns", "invalid_share", *SAID, "excluded"]
    tables = []
    for name, columns in (("steps.parquet", ["step", *SIGNS]), ("validation.parquet", validated)):
        try:
            tables.append(pd.read_parquet(folder / name)[columns])
        except (OSError, ValueError, KeyError) as error:
            raise SystemExit(f"{folder / name}: cannot be read ({error}); run the rule that makes it") from error
    steps, validation = tables
    return curve(steps, validation), warned(steps)


def main(
    runs: Annotated[list[Path], typer.Argument(help="GRPO directories of all arms, after --.")],
    config: Annotated[Path, typer.Option(help="Resolved DarkRoomJob.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write dark_room.csv, validation.csv, signs.csv and failing_groups.csv."""
    from headroom.provenance import record

    settings = load_job(config, DarkRoomJob)
    with record.job(stage="measure.dark_room", output=output, inputs={"runs": runs}, config=config) as job:
        folders = {folder.name: folder for folder in runs}
        if missing := sorted(settings.arms.keys() - folders.keys()):
            raise SystemExit(f"no directory of {', '.join(missing)} among the runs; name it, too")
        courses, warnings = {}, {}
        signed, groups = [], []
        for run, what in settings.arms.items():
            courses[run], warnings[run] = read_run(folders[run])
            steps = pd.read_parquet(folders[run] / "steps.parquet")
            key: dict[str, Any] = {"run": run, "arm": what.arm, "seed": what.seed}
            signed.append(key | signs(steps))
            groups.append(group_rows(steps).assign(**key))
        table, curves = tabulate(settings.arms, courses, warnings, settings.statistics.confidence)
        write_csv(job.output / "dark_room.csv", table)
        write_csv(job.output / "validation.csv", curves)
        write_csv(job.output / "signs.csv", pd.DataFrame(signed))
        write_csv(job.output / "failing_groups.csv", pd.concat(groups)[["run", "arm", "seed", *GROUPS]])
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
