"""The gate: difference in greedy success to the supervised policy by learning rate, on the mastered tasks.

One point a run of the grid and its replication; the interval is the paired one of ``contrasts.csv``, and the band
holds the differences that the study declared equivalent to none before it ran.
The mean over the training seeds that share a setting is not drawn here (see the figure ``replication``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headroom.config.jobs import ContrastJob, load_job
from headroom.present.command import figure_command
from headroom.present.style import MARKERS, PAGE, PALETTE, empty, margin_band, spans, zero_line
from headroom.present.tables import counted, records, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = [
    "policy",
    "family",
    "init",
    "learning_rate_level",
    "learning_rate",
    "kl_beta",
    "clip_low",
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


def data(contrasts: Path, statistics: Path, overlap: Path) -> pd.DataFrame:
    """The grid's, the replication's and the collapse family's runs, one row a run, and what holds for all of them.

    That is the equivalence margin, how many evaluation pages of the mastered tasks repeat a page of the training
    (``pages_met``), and in which tasks.
    """
    table = pd.read_csv(contrasts)
    kept = table[
        (table["mode"] == "greedy")
        & (table["task_set"] == "mastered")
        & (table["tasks_trained"] == "mastered")
        & table["family"].isin(["grid", "replication", "collapse"])
        & (table["init"] == "sft")
    ]
    margin = load_job(statistics, ContrastJob).statistics.equivalence_margin
    kept = kept[COLUMNS].sort_values(["learning_rate", "kl_beta", "seed", "policy"]).reset_index(drop=True)
    pages = pd.read_csv(overlap)
    pages = pages[pages["task_set"] == "mastered"]
    met = (pages["evaluation_met"] * pages["evaluation_pages"]).round().astype("int64")
    named = [f"{task} {count}" for task, count in zip(pages["task"], met, strict=True) if count]
    return kept.assign(equivalence_margin=margin, pages_met=met.sum(), met_in=", ".join(named))


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Success difference by learning rate, in percentage points; colour and marker are the KL weight."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(PAGE * 0.75, 3.0))
    if table.empty:
        empty(axes, "no run of the grid at this scale")
        return figure, "No run of the grid was made at this scale."
    margin = 100 * float(table["equivalence_margin"].iloc[0])
    margin_band(axes, margin)
    zero_line(axes)
    rates = sorted(table["learning_rate"].unique())
    betas = sorted(table["kl_beta"].unique())
    for place, rate in enumerate(rates):
        runs = table[table["learning_rate"] == rate].reset_index(drop=True)
        offsets = np.linspace(-0.33, 0.33, len(runs)) if len(runs) > 1 else np.zeros(1)
        for run, offset in zip(records(runs), offsets, strict=True):
            _point(axes, place + offset, run, betas.index(run.kl_beta))
    _legend(axes, table, betas)
    names = [table.loc[table["learning_rate"] == rate, "learning_rate_level"].iloc[0] for rate in rates]
    axes.set_xticks(range(len(rates)), [f"{rate:g}\n{name}" for rate, name in zip(rates, names, strict=True)])
    axes.set_xlim(-0.5, len(rates) - 0.5)
    axes.set_xlabel("learning rate (constant)")
    axes.set_ylabel("greedy success minus SFT\n(percentage points)")
    axes.set_title("GRPO on mastered tasks: the learning-rate gate")
    first = table.iloc[0]
    caption = (
        f"Greedy success of {counted(len(table), 'GRPO run')} minus that of the supervised policy they start from "
        f"({100 * first.reference_success:.1f}%), on the same {int(first.pairs)} pages of {int(first.tasks)} mastered "
        "tasks. Bars: paired 95% intervals, bootstrap over tasks (clusters), for one trained policy each. Grey band: "
        f"the equivalence margin, {margin:g} points to either side, declared beforehand; {_nulls(table)} Runs beside "
        "one another share a learning rate and differ in KL weight, clipping or seed. No page seed is trained "
        f"and evaluated on; {_met(first)}."
    )
    return figure, caption


def _met(row: Any) -> str:
    """How many evaluation pages are known from training, since there success can be memory."""
    if not row.pages_met:
        return "nor does an evaluation page repeat the goal and text of a page trained on"
    return f"still, {int(row.pages_met)} evaluation pages repeat the goal and text of a page trained on ({row.met_in})"


def _nulls(table: pd.DataFrame) -> str:
    """What the runs without a credible difference show: equivalence, or only what could have been detected."""
    open_runs = table[(table["ci_low"] <= 0) & (table["ci_high"] >= 0)]
    equivalent = open_runs["equivalent"].map(true).sum()
    effects = 100 * table["minimum_detectable_effect"].dropna()
    detectable = f"{effects.min():.1f} to {effects.max():.1f}" if len(effects) else "not defined"
    return (
        f"of the {counted(len(open_runs), 'run')} whose interval includes no difference, {equivalent} passed the "
        f"equivalence test. Minimum detectable effect: {detectable} points, by run."
    )


def _point(axes: Axes, place: float, run: Any, style: int) -> None:
    arms = spans([100 * run.difference], [100 * run.ci_low], [100 * run.ci_high])
    symmetric = run.clip_low == run.clip_high
    axes.errorbar(
        place, 100 * run.difference, yerr=arms, fmt=MARKERS[style], color=PALETTE[style], elinewidth=0.9, capsize=1.5,
        markerfacecolor=PALETTE[style] if run.seed == 0 else "white", markerfacecoloralt="white",
        fillstyle="left" if symmetric else "full",
    )  # fmt: skip


def _legend(axes: Axes, table: pd.DataFrame, betas: list[float]) -> None:
    for style, beta in enumerate(betas):
        axes.plot([], [], MARKERS[style], color=PALETTE[style], label=f"KL weight {beta:g}")
    if (table["seed"] != 0).any():
        axes.plot([], [], "o", color="black", markerfacecolor="white", label="open: another training seed")
    if (table["clip_low"] == table["clip_high"]).any():
        label = "half: symmetric clipping"
        axes.plot([], [], "o", color="black", fillstyle="left", markerfacecoloralt="white", label=label)
    axes.legend(loc="best")


if __name__ == "__main__":
    figure_command("gate", data, draw)
