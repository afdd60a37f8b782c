"""The replication: settings that several training seeds share, each seed by itself and their mean.

Three intervals of the mean stand beside one another because they answer three questions (``measure.replication``):
other seeds on these tasks, other seeds and other tasks, and both resampled at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.config.jobs import ContrastJob, load_job
from headroom.measure.run_table import CELL
from headroom.present.command import figure_command
from headroom.present.style import GREY, LEVEL_MARKERS, LEVELS, PAGE, empty, margin_band, spans, zero_line
from headroom.present.tables import records, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INTERVALS = {
    "seed": ("other seeds, these tasks (t)", "seed_low", "seed_high"),
    "both": ("other seeds and tasks (two-way t)", "ci_low", "ci_high"),
    "bootstrap": ("other seeds and tasks (bootstrap)", "bootstrap_low", "bootstrap_high"),
}


def data(contrasts: Path, replication: Path, statistics: Path) -> pd.DataFrame:
    """Rows of two kinds, greedy, on the set that the runs were trained on: ``mean`` (a cell), ``seed`` (a run)."""
    cells = pd.read_csv(replication)
    cells = cells[(cells["mode"] == "greedy") & (cells["task_set"] == cells["tasks_trained"])]
    cells = cells.sort_values(["tasks_trained", "learning_rate"], ascending=[False, True]).reset_index(drop=True)
    cells = cells.assign(row="mean", cell=np.arange(len(cells)))
    runs = pd.read_csv(contrasts)
    runs = runs[(runs["mode"] == "greedy") & (runs["task_set"] == runs["tasks_trained"])]
    if cells.empty:  # no setting was trained twice: there is nothing to repeat
        return pd.DataFrame(columns=["row", "cell", *CELL, "equivalence_margin"])
    by_seed = runs.merge(cells[[*CELL, "cell"]], on=CELL).assign(row="seed")
    kept = ["policy", "seed", "pairs", "tasks", "difference", "ci_low", "ci_high"]
    by_seed = by_seed[["row", "cell", *CELL, *kept]].sort_values(["cell", "seed"])
    means = cells[["row", "cell", *CELL, *(column for column in cells.columns if column not in ["row", "cell", *CELL])]]
    table = pd.concat([means, by_seed], ignore_index=True) if len(by_seed) else means
    return table.assign(equivalence_margin=load_job(statistics, ContrastJob).statistics.equivalence_margin)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """A column a setting: open points are training seeds, the filled one their mean with three intervals."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(PAGE * 0.8, 3.0))
    means = table[table["row"] == "mean"]
    if means.empty:
        empty(axes, "no setting with two training seeds at this scale")
        return figure, "No setting was trained with more than one seed at this scale."
    margin = 100 * float(table["equivalence_margin"].iloc[0])
    margin_band(axes, margin)
    zero_line(axes)
    for row in records(means):
        _cell(axes, row.cell, table[(table["row"] == "seed") & (table["cell"] == row.cell)], row._asdict())
    styles = {"seed": "-", "both": "-", "bootstrap": ":"}
    for name, (label, _, _) in INTERVALS.items():
        axes.plot([], [], styles[name], color="black", linewidth=2.6 if name == "seed" else 1.0, label=label)
    axes.plot([], [], "o", color="black", markerfacecolor="white", markersize=3, label="one training seed")
    axes.set_xticks(means["cell"], [_label(row) for _, row in means.iterrows()])
    axes.set_xlim(-0.6, len(means) - 0.4)
    axes.set_ylabel("greedy success minus SFT\n(percentage points)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    said = "; ".join(_sentence(row) for _, row in means.iterrows())
    caption = (
        f"Settings with at least two training seeds: {said}. Mean over seeds and tasks, with three 95% intervals; the "
        "equivalence test and the minimum detectable effect rest on the two-way one. Open points: one trained policy "
        f"each. Grey band: declared equivalent to none (within {margin:g} points)."
    )
    return figure, caption


def _cell(axes: Axes, place: int, seeds: pd.DataFrame, mean: dict[str, float]) -> None:
    level = str(mean["learning_rate_level"])
    colour, marker = LEVELS.get(level, GREY), LEVEL_MARKERS.get(level, "o")
    offsets = np.linspace(-0.36, -0.12, len(seeds))
    axes.plot(place + offsets, 100 * seeds["difference"], marker, color=colour, markerfacecolor="white", markersize=3.5)
    for name, shift in (("seed", 0.06), ("both", 0.18), ("bootstrap", 0.30)):
        _, low, high = INTERVALS[name]
        arms = spans([100 * mean["difference"]], [100 * mean[low]], [100 * mean[high]])
        drawn = axes.errorbar(
            place + shift, 100 * mean["difference"], yerr=arms, fmt=marker, color=colour, markersize=4.0,
            elinewidth=2.6 if name == "seed" else 1.0, capsize=0 if name == "seed" else 2,
        )  # fmt: skip
        if name == "bootstrap":
            drawn[2][0].set_linestyle(":")


def _label(row: pd.Series) -> str:
    return f"{row['learning_rate_level']} ({row['learning_rate']:g})\n{row['tasks_trained']}, {row['seeds']:.0f} seeds"


def _sentence(row: pd.Series) -> str:
    tested = "equivalent to none" if true(row["equivalent"]) else "not equivalent to none"
    return (
        f"{row['learning_rate_level']} on {row['tasks_trained']} tasks {100 * row['difference']:+.1f} points "
        f"[{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}], {row['seeds']:.0f} seeds, {row['tasks']:.0f} tasks, "
        f"{row['pairs']:.0f} pairs, {tested}, MDE {100 * row['minimum_detectable_effect']:.1f}"
    )


if __name__ == "__main__":
    figure_command("replication", data, draw)
