"""How policies fail, by regime: every failed greedy episode under exactly one kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import BLUE, GREEN, GREY, ORANGE, PAGE, PURPLE, RED, REGIMES, empty, spans
from headroom.present.tables import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "invalid": (RED, "xxx"),
    "loop": (ORANGE, "///"),
    "out of turns": (PURPLE, "..."),
    "premature stop": (GREEN, "\\\\\\"),
    "wrong target": (BLUE, ""),
}
"""Kind -> colour and hatch: the hatch repeats what the colour says."""


def data(failures: Path) -> pd.DataFrame:
    """Failures on the mastered tasks by regime (all its runs together), every kind and every kind of invalid action.

    The headroom regime was trained on the headroom tasks and is shown there; its supervised reference stands beside.
    """
    table = pd.read_csv(failures)
    if table.empty:
        return table
    joint = table.groupby(["regime", "task_set"])["policy"].transform(lambda names: "all" in set(names))
    table = table[(table["policy"] == "all") | ~joint]
    wanted = (table["task_set"] == "mastered") & (table["regime"] != "headroom")
    wanted |= (table["task_set"] == "headroom") & table["regime"].isin(["supervised", "headroom"])
    places = {name: place for place, name in enumerate(REGIMES)}
    kept = table[wanted].assign(place=table["regime"].map(places))
    kept = kept.sort_values(["task_set", "place"], ascending=[False, True], kind="stable").drop(columns="place")
    return kept.reset_index(drop=True)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Left: rate of each kind over all episodes, stacked. Right: share of invalid episodes among the failures."""
    import matplotlib.pyplot as plt

    rows = list(dict.fromkeys(zip(table["regime"], table["task_set"], strict=True))) if len(table) else []
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(PAGE, 1.3 + 0.28 * max(len(rows), 3)), sharey=True, width_ratios=(1.5, 1.0)
    )
    if not rows:
        empty(left, "no failure was classified at this scale")
        right.set_axis_off()
        return figure, "No failure was classified at this scale."
    main = table[table["invalid_kind"].isna() | (table["invalid_kind"] == "")]
    _rates(left, main, rows)
    _invalid(right, main, rows)
    left.set_yticks(range(len(rows)), [f"{regime},\n{tasks} tasks" for regime, tasks in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(KINDS))
    counts = "; ".join(
        f"{regime} on {tasks} tasks {int(own['failures'].iloc[0])} of {int(own['episodes'].iloc[0])}"
        for (regime, tasks), own in ((key, _of(main, key)) for key in rows)
    )
    detail = table[table["invalid_kind"].notna() & (table["invalid_kind"] != "") & (table["count"] > 0)]
    invalid = "; ".join(
        f"{regime}: " + ", ".join(f"{row.invalid_kind} {row.count}" for row in records(own))
        for regime, own in detail[detail["task_set"] == "mastered"].groupby("regime", sort=False)
    )
    caption = (
        f"Failed greedy episodes by kind ({counts}). Left: rate over all episodes, stacked. Right: share of invalid "
        "episodes (at least half of the turns did not reach the page) among the failures, with the 95% interval from "
        "resampling tasks; a regime's runs are taken together. "
        + (f"Kinds of invalid episodes on the mastered tasks: {invalid}." if invalid else "")
    )
    return figure, caption.strip()


def _of(table: pd.DataFrame, key: tuple[str, str]) -> pd.DataFrame:
    return table[(table["regime"] == key[0]) & (table["task_set"] == key[1])]


def _rates(axes: Axes, table: pd.DataFrame, rows: list[tuple[str, str]]) -> None:
    for kind, (colour, hatch) in KINDS.items():
        before, width = [], []
        for key in rows:
            own = _of(table, key).set_index("kind")["rate"]
            earlier = list(KINDS)[: list(KINDS).index(kind)]
            before.append(100 * own.reindex(earlier).fillna(0).sum())
            width.append(100 * own.get(kind, 0.0))
        axes.barh(
            range(len(rows)), width, left=before, height=0.7, color=colour, hatch=hatch, edgecolor="white",
            linewidth=0.4, label=kind,
        )  # fmt: skip
    axes.set_xlim(0, 100)
    axes.set_xlabel("failed episodes (% of all)")


def _invalid(axes: Axes, table: pd.DataFrame, rows: list[tuple[str, str]]) -> None:
    for place, key in enumerate(rows):
        own = _of(table, key)
        own = own[own["kind"] == "invalid"]
        if own.empty or own["share_of_failures"].isna().all():
            axes.text(50, place, "no failure", ha="center", va="center", fontsize=6, color=GREY)
            continue
        value, low, high = (
            100 * own[column] for column in ("share_of_failures", "share_ci_low", "share_ci_high")
        )  # fmt: skip
        axes.errorbar(
            value, [place], xerr=spans(value, low, high), fmt="o", color=REGIMES.get(key[0], GREY), markersize=4,
            elinewidth=0.9, capsize=2,
        )  # fmt: skip
    axes.set_xlim(-3, 103)
    axes.set_xlabel("invalid, % of failures")


if __name__ == "__main__":
    figure_command("failure_kinds", data, draw)
