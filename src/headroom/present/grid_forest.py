"""The grid as a forest plot: every cell with its paired interval and its minimum detectable effect.

A run that starts from another initialisation has two rows of numbers: its difference to the supervised policy, which
carries the difference between the two initialisations, and its difference to the policy it started from (open).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headroom.config.jobs import ContrastJob, load_job
from headroom.present.command import figure_command
from headroom.present.style import GREY, LEVEL_MARKERS, LEVELS, PAGE, SMALLEST, empty, margin_band, spans, zero_line
from headroom.present.tables import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = [
    "policy",
    "against",
    "init",
    "learning_rate_level",
    "learning_rate",
    "kl_beta",
    "clip_low",
    "clip_high",
    "seed",
    "pairs",
    "tasks",
    "reference_success",
    "policy_success",
    "difference",
    "ci_low",
    "ci_high",
    "gained",
    "lost",
    "mcnemar_p",
    "holm_p",
    "tost_p",
    "equivalent",
    "minimum_detectable_effect",
]


def data(contrasts: Path, init_contrasts: Path, statistics: Path) -> pd.DataFrame:
    """The cells of the grid in its order, greedy on the mastered tasks; ``against`` is sft, or the run's own start."""
    parts = []
    for path in (contrasts, init_contrasts):
        table = pd.read_csv(path)
        kept = table[(table["family"] == "grid") & (table["mode"] == "greedy") & (table["task_set"] == "mastered")]
        own = path == init_contrasts
        kept = kept[kept["init"] != "sft"] if own else kept
        kept = kept.assign(against=kept["init"] if own else "sft")
        parts.append(kept.reindex(columns=COLUMNS) if kept.empty else kept[COLUMNS])
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    margin = load_job(statistics, ContrastJob).statistics.equivalence_margin
    return table.sort_values(["policy", "against"], ascending=[True, False]).assign(equivalence_margin=margin)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """One line a cell: settings, interval, success, Holm's p, minimum detectable effect."""
    import matplotlib.pyplot as plt

    cells = list(dict.fromkeys(table["policy"]))
    figure, (axes, numbers) = plt.subplots(
        1, 2, figsize=(PAGE, 1.2 + 0.2 * max(len(cells), 3)), sharey=True, width_ratios=(2.2, 1.0)
    )
    numbers.set_axis_off()
    if table.empty:
        empty(axes, "no cell of the grid at this scale")
        return figure, "No cell of the grid was made at this scale."
    margin = 100 * float(table["equivalence_margin"].iloc[0])
    margin_band(axes, margin, horizontal=False)
    zero_line(axes, horizontal=False)
    for row in records(table):
        to_sft = row.against == "sft"
        place = cells.index(row.policy) + (0.0 if to_sft else 0.28)
        colour = LEVELS.get(row.learning_rate_level, GREY)
        axes.errorbar(
            100 * row.difference, place,
            xerr=spans([100 * row.difference], [100 * row.ci_low], [100 * row.ci_high]),
            fmt=LEVEL_MARKERS.get(row.learning_rate_level, "o"), color=colour, markersize=4.0,
            markerfacecolor=colour if to_sft else "white", elinewidth=0.9, capsize=1.5,
        )  # fmt: skip
    axes.set_yticks(range(len(cells)), [_label(table[table["policy"] == cell].iloc[0]) for cell in cells])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(cells) - 0.4, -1.3)
    axes.set_xlabel("difference of greedy success (percentage points)")
    _legend(figure, others=bool((table["against"] != "sft").any()))
    _numbers(numbers, table, cells)
    main = table[table["against"] == "sft"]
    first = table.iloc[0]
    caption = (
        f"The {len(cells)} cells of the control grid, greedy success on the same {int(first.pairs)} pages of "
        f"{int(first.tasks)} mastered tasks, minus the supervised policy's ({100 * first.reference_success:.1f}%). "
        "Bars: paired 95% intervals, bootstrap over tasks; open markers: against the initialisation that the run "
        f"started from. Grey band: declared equivalent to none (within {margin:g} points). "
        f"{int(main['equivalent'].sum())} cells pass the equivalence test (=), {int((main['ci_high'] < 0).sum())} lie "
        f"credibly below zero and {int((main['ci_low'] > 0).sum())} credibly above it. Holm p: exact McNemar, "
        "corrected over the grid. MDE: smallest difference that this cell would find with a power of 80%."
    )
    return figure, caption


def _label(row: pd.Series) -> str:
    clip = f"clip {row['clip_low']:g}/{row['clip_high']:g}"
    start = "" if row["init"] == "sft" else f", from {row['init']}"
    return f"{row['learning_rate_level']}, KL {row['kl_beta']:g}, {clip}, seed {row['seed']:g}{start}"


def _legend(figure: Figure, *, others: bool) -> None:
    """Above the axes, what a marker is against; the open one only where a run has another start."""
    from matplotlib.lines import Line2D

    faces = {"against SFT (as the numbers)": GREY}
    if others:
        faces["against the policy that the run started from"] = "white"
    handles = [
        Line2D([], [], marker="s", color=GREY, markerfacecolor=face, linewidth=0.9, label=label)
        for label, face in faces.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)


def _numbers(axes: Axes, table: pd.DataFrame, cells: list[str]) -> None:
    """Columns of text at the right: success, Holm's p, minimum detectable effect, equivalence."""
    columns = {0.11: "success", 0.41: "Holm p", 0.67: "MDE", 0.89: "TOST"}
    for across, title in columns.items():
        axes.text(across, -0.9, title, ha="center", va="center", fontsize=SMALLEST, weight="bold")
    for row in records(table[table["against"] == "sft"]):
        holm = "" if pd.isna(row.holm_p) else ("<.001" if row.holm_p < 0.001 else f"{row.holm_p:.2g}")
        texts = (
            f"{100 * row.policy_success:.1f}%",
            holm,
            f"{100 * row.minimum_detectable_effect:.1f}",
            "=" if row.equivalent else "",
        )
        for across, text in zip(columns, texts, strict=True):
            place = cells.index(row.policy)
            axes.text(across, place, text, ha="center", va="center", fontsize=SMALLEST)


if __name__ == "__main__":
    figure_command("grid_forest", data, draw)
