"""The positive control: the same recipe where there is headroom, and what the reading predicted.

Left: greedy success before and after, on the headroom tasks (runs trained there) and on the mastered tasks (runs
trained there with the same recipe). Right: for each task of either set, the headroom read before any training
against the gain in greedy success that training realised. Some headroom is *engineered*: hasty demonstrators left a
step out (headroom.train.demonstrations). Those tasks have a marker of their own, and the mean gain is also stated
without them. Others may be *filled*: they took a place for which too few candidates qualified
(headroom.measure.select).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.config.jobs import ContrastJob, DemonstrationsJob, load_job
from headroom.config.models import Statistics
from headroom.measure.intervals import task_interval
from headroom.measure.statistics import clusters
from headroom.present.command import figure_command
from headroom.present.style import BLUE, GREY, ORANGE, PAGE, empty, spans, zero_line
from headroom.present.tables import by_key, counted, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETS = {"mastered": (BLUE, "o"), "headroom": (ORANGE, "s")}


COLUMNS = [
    *("row", "task_set", "policy", "task", "seed", "engineered", "filled", "runs", "pairs", "tasks"),
    *("reference_success", "policy_success", "difference", "ci_low", "ci_high", "mcnemar_p", "equivalent"),
    *("minimum_detectable_effect", "predicted", "predicted_low", "predicted_high", "mixed_share"),
]


def data(
    contrasts: Path,
    task_contrasts: Path,
    reading: Path,
    runs: Path,
    tasks: Path,
    demonstrations: Path,
    statistics: Path,
) -> pd.DataFrame:
    """The rows of :func:`sets_and_tasks`, and one ``mean`` row for each kind of headroom task.

    A ``task`` row says whether the task's headroom is ``engineered`` and whether it ``filled`` a place. A ``mean`` row
    is the mean gain over the headroom tasks that are (not) engineered, with an interval over tasks.
    """
    table = sets_and_tasks(contrasts, task_contrasts, reading, runs)
    hasty = load_job(demonstrations, DemonstrationsJob).demonstrations.hasty
    rule = load_job(statistics, ContrastJob).statistics
    chosen = pd.read_csv(tasks)
    names = table["task"].where(table["row"] == "task")
    table["engineered"] = names.map(lambda name: hasty.get(name, 0.0) > 0.0, na_action="ignore")
    table["filled"] = names.map(dict(zip(chosen["task"], chosen["filled"], strict=True)))
    parts = [table.dropna(axis="columns", how="all"), *_means(table, rule)]
    return pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)


def _means(table: pd.DataFrame, rule: Statistics) -> list[pd.DataFrame]:
    own = table[(table["row"] == "task") & (table["task_set"] == "headroom")].dropna(subset=["difference"])
    rows = []
    for engineered, part in own.groupby(own["engineered"].map(true), sort=True):
        values = clusters(part["task"].tolist(), part["difference"].to_numpy(np.float64))
        bounds = task_interval(values, confidence=rule.confidence, draws=rule.bootstrap_draws, seed=rule.bootstrap_seed)
        row = {"row": "mean", "task_set": "headroom", "engineered": engineered, "tasks": len(part)}
        row |= {"runs": int(part["runs"].min()), "difference": values.mean, "ci_low": bounds.low}
        rows.append(pd.DataFrame([row | {"ci_high": bounds.high}]))
    return rows


def sets_and_tasks(contrasts: Path, task_contrasts: Path, reading: Path, runs: Path) -> pd.DataFrame:
    """Rows of two kinds: ``set`` (one a run: the paired contrast) and ``task`` (one a task: predicted, realised).

    The recipe is that of the headroom family; a run trained on the mastered set belongs here if it shares every
    setting but the task set. A task's realised gain is the mean over those runs, and ``ci_low``/``ci_high`` is the
    range over runs; ``predicted_low``/``predicted_high`` is the reading's interval.
    """
    table = pd.read_csv(contrasts)
    settings = pd.read_csv(runs, sep="\t", comment="#")
    recipe = ["init", "learning_rate", "schedule", "kl_beta", "clip_low", "clip_high", "group_size"]
    control = settings[settings["family"] == "headroom"]
    same = settings.merge(control[recipe].drop_duplicates(), on=recipe)
    kept = table[
        table["policy"].isin(same["run"]) & (table["mode"] == "greedy") & (table["task_set"] == table["tasks_trained"])
    ]
    by_run = kept[
        [
            *("policy", "task_set", "seed", "pairs", "tasks", "reference_success", "policy_success", "difference"),
            *("ci_low", "ci_high", "mcnemar_p", "equivalent", "minimum_detectable_effect"),
        ]
    ].assign(row="set")
    tasks = pd.read_csv(task_contrasts)
    tasks = tasks[(tasks["mode"] == "greedy")].merge(kept[["policy", "task_set"]], on=["policy", "task_set"])
    gains = (
        tasks.groupby(["task_set", "task"], sort=True)["difference"].agg(["mean", "min", "max", "count"]).reset_index()
    )
    gains.columns = pd.Index(["task_set", "task", "difference", "ci_low", "ci_high", "runs"])
    read = pd.read_csv(reading)
    read = read[read["level"] == "task"][["name", "headroom", "headroom_low", "headroom_high", "mixed_share"]]
    read.columns = pd.Index(["task", "predicted", "predicted_low", "predicted_high", "mixed_share"])
    by_task = gains.merge(read, on="task", how="left").assign(row="task")
    return pd.concat([by_run, by_task], ignore_index=True).reindex(columns=COLUMNS)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Gain by task set with paired intervals; predicted headroom against realised gain by task."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 3.1), width_ratios=(0.8, 1.0))
    by_run, by_task = table[table["row"] == "set"], table[table["row"] == "task"]
    _draw_sets(left, by_run)
    _draw_tasks(right, by_task)
    handles, labels = right.get_legend_handles_labels()
    if labels:  # above both panels: inside, it would hide points or cross the lines of no gain
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    counts = ", ".join(
        f"{counted(len(part), 'run')} on {counted(part['tasks'].iloc[0], f'{name} task')} "
        f"({counted(part['pairs'].iloc[0], 'page')})"
        for name, part in by_run.groupby("task_set", sort=False)
    )
    caption = (
        f"The same recipe on both task sets: {counts or 'no run at this scale'}. Left: change in greedy success "
        "against the supervised policy on the same pages, a point a training seed; bars: paired 95% intervals, "
        f"bootstrap over tasks. Right: {len(by_task)} tasks; across: sampled minus greedy success of the "
        "supervised policy on pages used for nothing else, with 95% intervals over pages; up: realised gain, mean over "
        f"training seeds, the bar is their range. {_engineered(table)}"
    )
    return figure, caption


def _engineered(table: pd.DataFrame) -> str:
    """What the caption says about tasks whose headroom was put there, and about the gain without them."""
    by_task = table[table["row"] == "task"]
    named = by_task[by_task["engineered"].map(true)]
    places = by_task[by_task["filled"].map(true)]
    text = (
        f"Open markers: headroom engineered by hasty demonstrators ({', '.join(named['task'])})."
        if len(named)
        else "No task here has engineered headroom."
    )
    means = by_key(table[table["row"] == "mean"].assign(kind=lambda own: own["engineered"].map(true)), "kind")
    for kind, words in (("False", "that are not engineered"), ("True", "that are")):
        if kind in means:
            row = means[kind]
            text += (
                f" Mean gain over the {counted(row['tasks'], 'headroom task')} {words}: {100 * row['difference']:+.1f} "
                f"points [{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}] (95% interval over tasks, mean of "
                f"{counted(row['runs'], 'run')})."
            )
    if len(places):
        text += f" Took a place for which too few tasks qualified: {', '.join(places['task'])}."
    return text


def _draw_sets(axes: Axes, by_run: pd.DataFrame) -> None:
    if by_run.empty:
        empty(axes, "no run of this recipe at this scale")
        return
    zero_line(axes)
    for place, (name, (colour, marker)) in enumerate(SETS.items()):
        part = by_run[by_run["task_set"] == name].sort_values("seed")
        offsets = np.linspace(-0.25, 0.25, len(part)) if len(part) > 1 else np.zeros(len(part))
        gain = 100 * part["difference"].to_numpy()
        error = np.clip(
            100 * np.stack([part["difference"] - part["ci_low"], part["ci_high"] - part["difference"]]), 0, None
        )
        axes.errorbar(place + offsets, gain, yerr=error, fmt=marker, color=colour, elinewidth=0.9, capsize=1.5)
    axes.set_xticks(range(len(SETS)), [f"{name}\ntasks" for name in SETS])
    axes.set_xlim(-0.5, len(SETS) - 0.5)
    axes.set_ylabel("greedy success minus SFT\n(percentage points)")
    axes.set_title("one recipe, two task sets")


def _draw_tasks(axes: Axes, by_task: pd.DataFrame) -> None:
    measured = by_task.dropna(subset=["predicted", "difference"])
    if measured.empty:
        empty(axes, "no task with both a reading and a run")
        return
    zero_line(axes)
    zero_line(axes, horizontal=False)
    engineered = measured["engineered"].map(true)
    for name, (colour, marker) in SETS.items():
        for made, face in ((False, colour), (True, "white")):
            part = measured[(measured["task_set"] == name) & (engineered == made)]
            if part.empty:
                continue
            across, up = 100 * part["predicted"], 100 * part["difference"]
            axes.errorbar(
                across, up, xerr=spans(across, 100 * part["predicted_low"], 100 * part["predicted_high"]),
                yerr=spans(up, 100 * part["ci_low"], 100 * part["ci_high"]), fmt=marker, color=colour,
                markerfacecolor=face, elinewidth=0.6, alpha=0.9, label=f"{name} tasks" + ", engineered" * made,
            )  # fmt: skip
    span = axes.get_xlim()
    axes.plot(span, span, color=GREY, linewidth=0.7, linestyle=":", label="gain = headroom")
    axes.set_xlabel("headroom read before training\n(sampled minus greedy, points)")
    axes.set_ylabel("realised gain (points)")
    axes.set_title("predicted against realised")


if __name__ == "__main__":
    figure_command("headroom_control", data, draw)
