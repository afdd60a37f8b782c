"""The gate: difference in greedy success to the supervised policy by learning rate, on the mastered tasks.

One point a run of the grid and its replication; the interval is the paired one of ``contrasts.csv``.
The mean over the training seeds that share a setting is not drawn here (see the figure ``replication``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import MARKERS, PAGE, PALETTE, zero_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = [
    "policy",
    "family",
    "init",
    "learning_rate_level",
    "learning_rate",
    "kl_beta",
    "clip_high",
    "group_size",
    "seed",
    "pairs",
    "tasks",
    "reference_success",
    "policy_success",
    "difference",
    "ci_low",
    "ci_high",
    "mcnemar_p",
    "holm_p",
    "equivalent",
    "minimum_detectable_effect",
]
"""What ``data`` keeps of ``contrasts.csv``: greedy, mastered, runs from the supervised policy on the mastered set."""


def data(contrasts: Path) -> pd.DataFrame:
    """The grid's and the replication's runs, one row a run."""
    table = pd.read_csv(contrasts)
    kept = table[
        (table["mode"] == "greedy")
        & (table["task_set"] == "mastered")
        & (table["tasks_trained"] == "mastered")
        & table["family"].isin(["grid", "replication", "collapse"])
        & (table["init"] == "sft")
    ]
    return kept[COLUMNS].sort_values(["learning_rate", "kl_beta", "seed", "policy"]).reset_index(drop=True)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Success difference by learning rate, in percentage points; colour and marker are the KL weight."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(PAGE * 0.75, 3.0))
    zero_line(axes)
    levels = sorted(table["learning_rate"].unique())
    betas = sorted(table["kl_beta"].unique())
    for place, rate in enumerate(levels):
        runs = table[table["learning_rate"] == rate].reset_index(drop=True)
        offsets = np.linspace(-0.33, 0.33, len(runs)) if len(runs) > 1 else np.zeros(1)
        for run, offset in zip(runs.itertuples(), offsets, strict=True):
            style = betas.index(run.kl_beta)
            low, high = 100 * (run.difference - run.ci_low), 100 * (run.ci_high - run.difference)
            axes.errorbar(
                place + offset,
                100 * run.difference,
                yerr=[[max(low, 0.0)], [max(high, 0.0)]],
                fmt=MARKERS[style],
                color=PALETTE[style],
                markerfacecolor=PALETTE[style] if run.seed == 0 else "white",
                elinewidth=0.9,
                capsize=1.5,
            )
    for style, beta in enumerate(betas):
        axes.plot([], [], MARKERS[style], color=PALETTE[style], label=f"KL weight {beta:g}")
    axes.plot([], [], "o", color="black", markerfacecolor="white", label="another training seed")
    axes.set_xticks(range(len(levels)), [f"{rate:g}" for rate in levels])
    axes.set_xlabel("learning rate (constant)")
    axes.set_ylabel("greedy success minus SFT\n(percentage points)")
    axes.legend(loc="lower left")
    axes.set_title("GRPO on mastered tasks: the learning-rate gate")
    if table.empty:
        return figure, "No run of the grid was made at this scale."
    first = table.iloc[0]
    caption = (
        f"Greedy success of {len(table)} GRPO runs minus that of the supervised policy they start from "
        f"({100 * first.reference_success:.1f}%), on the same {int(first.pairs)} pages of {int(first.tasks)} mastered "
        "tasks. "
        "Bars: paired 95% intervals, bootstrap over tasks (clusters), for one trained policy each; "
        "filled: training seed 0. Runs beside one another share a learning rate and differ in KL weight, clipping "
        "or seed."
    )
    return figure, caption


if __name__ == "__main__":
    figure_command("gate", data, draw)
