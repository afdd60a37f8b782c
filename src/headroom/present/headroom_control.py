"""The positive control: the same recipe where there is headroom, and what the reading predicted.

Left: greedy success before and after, on the headroom tasks (runs trained there) and on the mastered tasks (runs
trained there with the same recipe). Right: for each task of either set, the headroom read before any training
against the gain in greedy success that training realised.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import BLUE, GREY, ORANGE, PAGE, empty, zero_line
from headroom.present.tables import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETS = {"mastered": (BLUE, "o"), "headroom": (ORANGE, "s")}


def data(contrasts: Path, task_contrasts: Path, reading: Path, runs: Path) -> pd.DataFrame:
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
    order = [
        "row",
        "task_set",
        "policy",
        "task",
        "seed",
        "runs",
        "pairs",
        "tasks",
        "reference_success",
        "policy_success",
    ]
    order += ["difference", "ci_low", "ci_high", "mcnemar_p", "equivalent", "minimum_detectable_effect"]
    order += ["predicted", "predicted_low", "predicted_high", "mixed_share"]
    return pd.concat([by_run, by_task], ignore_index=True).reindex(columns=order)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Gain by task set with paired intervals; predicted headroom against realised gain by task."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.9), width_ratios=(0.8, 1.0))
    by_run, by_task = table[table["row"] == "set"], table[table["row"] == "task"]
    _draw_sets(left, by_run)
    _draw_tasks(right, by_task)
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
        "training seeds, the bar is their range."
    )
    return figure, caption


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
    for name, (colour, marker) in SETS.items():
        part = measured[measured["task_set"] == name]
        across, up = 100 * part["predicted"].to_numpy(), 100 * part["difference"].to_numpy()
        wide = 100 * np.stack([part["predicted"] - part["predicted_low"], part["predicted_high"] - part["predicted"]])
        tall = 100 * np.stack([part["difference"] - part["ci_low"], part["ci_high"] - part["difference"]])
        axes.errorbar(
            across, up, xerr=np.clip(wide, 0, None), yerr=np.clip(tall, 0, None),
            fmt=marker, color=colour, elinewidth=0.6, alpha=0.9, label=f"{name} tasks",
        )  # fmt: skip
    span = axes.get_xlim()
    axes.plot(span, span, color=GREY, linewidth=0.7, linestyle=":", label="gain = headroom")
    axes.set_xlabel("headroom read before training\n(sampled minus greedy, points)")
    axes.set_ylabel("realised gain (points)")
    axes.legend(loc="best")
    axes.set_title("predicted against realised")


if __name__ == "__main__":
    figure_command("headroom_control", data, draw)
