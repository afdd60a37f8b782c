"""How far the weights moved against how much success was lost, and which parameters did the moving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.present.command import figure_command
from headroom.present.policies import CORRELATED, correlations_said, points_by_level
from headroom.present.style import LEVEL_MARKERS, LEVELS, PAGE, empty, group_name, zero_line
from headroom.present.tables import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = [
    *("row", "policy", "learning_rate_level", "init", "seed", "group", "parameters", "relative_movement"),
    *("share_of_squared_movement", "reference_success", "policy_success", "difference", "ci_low", "ci_high"),
    *("pairs", "tasks", "subset", "checkpoints", *CORRELATED),
]


def data(drift: Path, contrasts: Path, init_contrasts: Path, correlations: Path) -> pd.DataFrame:
    """Rows: ``policy`` (movement of the model, harm), ``group`` (movement of a group) and ``correlation``.

    Movement and harm are both against the policy that the run started from.
    """
    moved = pd.read_csv(drift)
    tables = [pd.read_csv(path) for path in (contrasts, init_contrasts)]
    runs = pd.concat([tables[0][tables[0]["init"] == "sft"], tables[1][tables[1]["init"] != "sft"]], ignore_index=True)
    runs = runs[(runs["mode"] == "greedy") & (runs["task_set"] == "mastered") & (runs["tasks_trained"] == "mastered")]
    kept = ["policy", "learning_rate_level", "init", "seed", "reference_success", "policy_success", "difference"]
    kept += ["ci_low", "ci_high", "pairs", "tasks"]
    runs = runs.reindex(columns=kept) if runs.empty else runs[kept]
    model = moved[moved["scope"] == "model"].merge(runs, on="policy").assign(row="policy", group="model")
    groups = moved[moved["scope"] == "group"].merge(runs[kept[:4]], on="policy").assign(row="group")
    related = pd.read_csv(correlations)
    related = related[(related["quantity"] == "relative_movement") & (related["site"] == "model")]
    related = related.assign(row="correlation", group="model")
    parts = [part.reindex(columns=COLUMNS) for part in (model, groups, related) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Left: movement and change of success of each run. Right: relative movement by parameter group and level."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, 2.9), width_ratios=(1.1, 1.0))
    points = table[table["row"] == "policy"].dropna(subset=["relative_movement", "difference"])
    _points(left, points)
    _groups(right, table[(table["row"] == "group") & (table["init"] == "sft")])
    names = {"all": "over all policies", "alive": "without collapsed ones"}
    related = table[(table["row"] == "correlation")].dropna(subset=["spearman"])
    pages = (
        f"{int(points['pairs'].iloc[0])} pages of {int(points['tasks'].iloc[0])} tasks" if len(points) else "no page"
    )
    caption = (
        f"Left: relative movement of all weights against the change of greedy success, {counted(len(points), 'run')}, "
        f"both against the policy a run started from, {pages}; bars: paired 95% intervals, bootstrap over tasks. "
        "Spearman's rho of movement with success, 95% bootstrap intervals over policies: "
        f"{correlations_said(related, names) or 'too few policies'}. Right: "
        "relative movement of each parameter group (norm of the change over the norm of the weights), a point a run "
        "from the supervised policy, the bar their median. How much a movement matters is what the grafts say, not "
        "its size."
    )
    return figure, caption


def _points(axes: Axes, points: pd.DataFrame) -> None:
    if points.empty:
        empty(axes, "no run with its movement and its contrast")
        return
    zero_line(axes)
    points_by_level(axes, points, "relative_movement", "difference", "y")
    axes.set_xlabel("relative movement of the weights")
    axes.set_ylabel("change of greedy success (points)")
    axes.set_title("movement of all weights against harm")


def _groups(axes: Axes, groups: pd.DataFrame) -> None:
    if groups.empty:
        empty(axes, "no movement by group")
        return
    names = list(dict.fromkeys(groups["group"]))
    levels = [level for level in LEVELS if (groups["learning_rate_level"] == level).any()]
    shifts = np.linspace(-0.3, 0.3, len(levels)) if len(levels) > 1 else [0.0]
    for shift, level in zip(shifts, levels, strict=True):
        own = groups[groups["learning_rate_level"] == level]
        places = own["group"].map(names.index).to_numpy(float) + shift
        axes.plot(
            places, own["relative_movement"], LEVEL_MARKERS[level], color=LEVELS[level], markersize=2.5, alpha=0.6
        )
        middle = own.groupby("group")["relative_movement"].median()
        for name, value in middle.items():
            place = names.index(str(name)) + shift
            axes.plot([place - 0.08, place + 0.08], [value, value], color=LEVELS[level], linewidth=1.8)
    axes.set_xticks(range(len(names)), [group_name(name) for name in names], rotation=20 if len(names) > 4 else 0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("relative movement")
    axes.set_title("movement by parameter group")


if __name__ == "__main__":
    figure_command("movement_against_harm", data, draw)
