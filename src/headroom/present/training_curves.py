"""Training curves with the diagnostics of a collapse: success, entropy, invalid actions, live groups, KL, length.

An early warning is entropy falling AND episodes pinned at the horizon (or invalid actions rising); entropy alone
gives false alarms, so the panels stand together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import LEVEL_LINES, LEVELS, PAGE, empty
from headroom.present.tables import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "success": "sampled success",
    "entropy": "entropy (nats a token)",
    "invalid_share": "invalid actions (share)",
    "turns_mean": "turns an episode",
    "live_groups": "live groups (share)",
    "kl": "KL to SFT (nats a token)",
    "gradient_norm": "gradient norm",
    "weight_change": "weight change",
}


def data(steps: list[Path], runs: Path) -> pd.DataFrame:
    """Every step of the runs on the mastered set from the supervised policy: run, level, step and the panels."""
    settings = pd.read_csv(runs, sep="\t", comment="#").set_index("run")
    parts = []
    for path in steps:
        run = path.parent.name
        row = settings.loc[run]
        if (
            row["tasks"] != "mastered"
            or row["init"] != "sft"
            or row["family"] not in ("grid", "replication", "collapse")
        ):
            continue
        frame = pd.read_parquet(path, columns=["step", *PANELS])
        frame.insert(0, "run", run)
        frame.insert(1, "learning_rate_level", row["learning_rate"])
        frame.insert(2, "kl_beta", row["kl_beta"])
        frame.insert(3, "seed", row["seed"])
        parts.append(frame)
    columns = ["run", "learning_rate_level", "kl_beta", "seed", "step", *PANELS]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """One panel a diagnostic, one thin line a run, the median of a learning rate thick."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 4, figsize=(PAGE, 3.6), sharex=True)
    levels = [level for level in LEVELS if (table["learning_rate_level"] == level).any()]
    for axes, (column, label) in zip(grid.flat, PANELS.items(), strict=True):
        if table[column].notna().sum() == 0:
            empty(axes, f"{label}: not measured")
            continue
        for level in levels:
            part = table[table["learning_rate_level"] == level]
            for _, run in part.groupby("run", sort=True):
                axes.plot(run["step"], run[column], color=LEVELS[level], linewidth=0.5, alpha=0.35)
            middle = part.groupby("step")[column].median()
            axes.plot(
                middle.index, middle, color=LEVELS[level], linestyle=LEVEL_LINES[level], linewidth=1.6, label=level
            )
        axes.set_title(label)
        if column in ("success", "invalid_share", "live_groups"):
            axes.set_ylim(-0.03, 1.03)
    for axes in grid[-1]:
        axes.set_xlabel("GRPO step")
    drawn = next((axes for axes in grid.flat if axes.get_legend_handles_labels()[0]), None)
    if drawn is not None:
        figure.legend(*drawn.get_legend_handles_labels(), title="learning rate", loc="outside upper center", ncols=4)
    runs = table["run"].nunique()
    caption = (
        f"Training of {counted(runs, 'GRPO run')} on the mastered tasks, from the supervised policy. Thin: a run; "
        "thick: the median over the runs of a learning rate (of every KL weight, clipping and seed). No "
        "interval is drawn: "
        "each thin line is one run, and a step holds only the pages of that step. Live groups hold a success "
        "and a failure; "
        "all others teach nothing. KL is measured where it has a weight. Weight change: norm of the movement over "
        "the norm of the initial weights. A warning of collapse is entropy falling and episodes running into the turn "
        "limit together; entropy alone gives false alarms."
    )
    return figure, caption


if __name__ == "__main__":
    figure_command("training_curves", data, draw)
