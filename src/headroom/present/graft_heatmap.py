"""Grafts in both directions with their random controls: what each parameter group brings along, and what it repairs.

Left, sufficiency: a group of the trained policy in the supervised one; the colour is the change against the
supervised policy. Right, necessity: a group of the supervised policy in the trained one; the change against the
trained policy. Below a group that has controls stands the mean of random edits of equal size and norm.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import GREY, PAGE, SMALLEST, empty, group_name
from headroom.present.tables import counted, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

ENDS = {"sufficiency": "sft", "necessity": "rl"}
TITLES = {
    "sufficiency": "trained group in the supervised policy\n(does it bring the damage along?)",
    "necessity": "supervised group in the trained policy\n(does it repair the damage?)",
}
COLUMNS = [
    *("regime", "policy", "direction", "groups", "kind", "draws", "pages", "tasks", "success", "change", "ci_low"),
    *("ci_high", "share", "share_ci_low", "share_ci_high", "difference_to_control", "control_ci_low"),
    *("control_ci_high", "sft_success", "rl_success", "broken_tasks", "broken_success", "minimum_detectable_effect"),
    *("tost_p", "control_minimum_detectable_effect", "interaction", "interaction_ci_low", "interaction_ci_high"),
]


def data(grafts: Path) -> pd.DataFrame:
    """One row a run, direction and union of groups; ``change`` is against the policy that received the graft.

    ``kind`` is group, pair or control; a control's row is the mean of its draws, its interval the draws' range.
    """
    table = pd.read_csv(grafts)
    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    ends = table[table["kind"] == "endpoint"].pivot(index="policy", columns="graft", values="success")
    parts = []
    for direction, end in ENDS.items():
        own = table[(table["direction"] == direction) & (table["kind"] != "endpoint")].copy()
        own["change"] = own[f"difference_to_{end}"]
        own["draws"] = 1
        for test in ("ci_low", "ci_high", "tost_p", "minimum_detectable_effect"):
            own[test] = own[f"{end}_{test}"]
        controls = own[own["kind"] == "control"]
        means = []
        for _, draws in controls.groupby(["policy", "groups"], sort=False):
            row = draws.iloc[0].copy()
            averaged = ["success", "change", "broken_success", "minimum_detectable_effect"]
            row[averaged] = draws[averaged].mean()
            row["tost_p"] = np.nan
            row["ci_low"], row["ci_high"] = draws["change"].min(), draws["change"].max()
            row["draws"], row["share"], row["share_ci_low"], row["share_ci_high"] = len(draws), np.nan, np.nan, np.nan
            means.append(row)
        parts += [own[own["kind"] != "control"], pd.DataFrame(means, columns=own.columns)]
    rows = pd.concat([part for part in parts if len(part)], ignore_index=True)
    rows["sft_success"], rows["rl_success"] = rows["policy"].map(ends["sft"]), rows["policy"].map(ends["rl"])
    return rows[COLUMNS]


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """A heat map a direction: groups down, runs across, change of success in points; bold beats its controls."""
    import matplotlib.pyplot as plt

    keys = list(dict.fromkeys(zip(table["groups"], table["kind"] == "control", strict=True)))
    keys.sort(key=lambda key: _order(table, *key))
    figure, panels = plt.subplots(1, 2, figsize=(PAGE, 1.9 + 0.22 * max(len(keys), 4)), sharey=True)
    if table.empty:
        for axes in panels:
            empty(axes, "no run was grafted at this scale")
        return figure, "No run was grafted at this scale."
    runs = list(dict.fromkeys(zip(table["regime"], table["policy"], strict=True)))
    regimes = list(dict.fromkeys(table["regime"]))
    runs.sort(key=lambda run: regimes.index(run[0]))  # a regime stands over its runs: they are neighbours
    bound = max(float(np.nanmax(np.abs(table["change"]))), 0.05)
    for axes, direction in zip(panels, ENDS, strict=True):
        image = _panel(axes, table[table["direction"] == direction], keys, runs, 100 * bound)
        axes.set_title(TITLES[direction])
    labels = [("random, size of " if control else "") + group_name(groups) for groups, control in keys]
    panels[0].set_yticks(range(len(keys)), labels)
    for label, (_, control) in zip(panels[0].get_yticklabels(), keys, strict=True):
        label.set_color(GREY if control else "black")
    bar = figure.colorbar(image, ax=panels, shrink=0.7, aspect=28, pad=0.01)
    bar.set_label("change of success (points)")
    return figure, _caption(table, runs)


def _order(table: pd.DataFrame, groups: str, control: bool) -> tuple[int, int]:
    """Place of a row: groups as the plan has them, each followed by its control."""
    first = list(dict.fromkeys(table.loc[table["kind"] != "control", "groups"]))
    return (first.index(groups) if groups in first else len(first), int(control))


def _panel(
    axes: Axes, table: pd.DataFrame, keys: list[tuple[str, bool]], runs: list[tuple[str, str]], bound: float
) -> AxesImage:
    values = np.full((len(keys), len(runs)), np.nan)
    for row in records(table):
        place = (keys.index((row.groups, row.kind == "control")), runs.index((row.regime, row.policy)))
        values[place] = 100 * row.change
        beats = row.kind != "control" and (row.control_ci_low > 0 or row.control_ci_high < 0)
        sure = row.kind != "control" and (row.ci_low > 0 or row.ci_high < 0)
        dark = abs(values[place]) > 0.6 * bound
        axes.text(
            place[1], place[0], f"{values[place]:+.0f}" + ("*" if sure else ""), ha="center", va="center", fontsize=6.5,
            weight="bold" if beats else "normal", style="italic" if row.kind == "control" else "normal",
            color="white" if dark else "black",
        )  # fmt: skip
    image = axes.imshow(values, cmap="PuOr", vmin=-bound, vmax=bound, aspect="auto")
    axes.set_xticks(
        range(len(runs)), [run for _, run in runs], fontsize=SMALLEST, rotation=35, ha="right", rotation_mode="anchor"
    )
    axes.tick_params(length=0)
    _regimes(axes, [regime for regime, _ in runs])
    for line in range(1, len(keys)):
        if not keys[line][1]:  # a control stays together with its group
            axes.axhline(line - 0.5, color="white", linewidth=2.0)
    return image


def _regimes(axes: Axes, regimes: list[str]) -> None:
    """Each regime once, centred over its runs, and a line between two of them."""
    names = list(dict.fromkeys(regimes))
    above = axes.secondary_xaxis("top")
    above.set_xticks([float(np.mean([i for i, own in enumerate(regimes) if own == name])) for name in names], names)
    above.tick_params(length=0, pad=1)
    for name in names[1:]:
        axes.axvline(regimes.index(name) - 0.5, color=GREY, linewidth=0.7)


def _caption(table: pd.DataFrame, runs: list[tuple[str, str]]) -> str:
    first = table.iloc[0]
    ends = table.drop_duplicates("policy")
    said = "; ".join(
        f"{row.regime} {row.policy}: {100 * row.sft_success:.0f}% before, {100 * row.rl_success:.0f}% after"
        for row in records(ends)
    )
    draws = int(table.loc[table["kind"] == "control", "draws"].max()) if (table["kind"] == "control").any() else 0
    return (
        f"Change of greedy success in points when one parameter group is moved, {counted(len(runs), 'run')}, "
        f"{int(first.pages)} pages of {int(first.tasks)} tasks each, the same for every graft ({said}). Star: the "
        "paired 95% interval (bootstrap over tasks) excludes no change. Bold: the interval of the difference "
        "to random edits of the "
        f"same parameter count and norm (mean of {counted(draws, 'draw')}, italic) excludes zero. Groups without such "
        "a row have no control. Depth bands (early, late) overlap the components. "
        + _detectable(table)
        + _interactions(table)
    )


def _detectable(table: pd.DataFrame) -> str:
    """How large a change each entry could have shown: what an entry without a star may hide."""
    own = table[table["kind"] != "control"]
    unstarred = own[(own["ci_low"] <= 0) & (own["ci_high"] >= 0)]
    said = _range(own["minimum_detectable_effect"])
    return (
        f"Minimum detectable effect of an entry: {said} points; the {len(unstarred)} of {len(own)} without a star may "
        "hide smaller changes. "
    )


def _interactions(table: pd.DataFrame) -> str:
    """The interaction of each declared pair, run by run and direction by direction."""
    pairs = table[table["interaction"].notna()]
    if pairs.empty:
        return "No pair has an interaction."
    terms = [
        f"{group_name(row.groups, ' x ')} in {row.policy}, {row.direction}: {100 * row.interaction:+.0f} "
        f"[{100 * row.interaction_ci_low:+.0f}, {100 * row.interaction_ci_high:+.0f}]"
        for row in records(pairs)
    ]
    return (
        "Interaction of a pair (its effect minus the sum of its groups' effects, points, 95% interval): "
        + "; ".join(terms)
        + "."
    )


def _range(values: pd.Series) -> str:
    low, high = (f"{100 * value:.0f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    figure_command("graft_heatmap", data, draw)
