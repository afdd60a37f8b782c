"""Late-layer effective rank against success, a point a policy: does rank go with capability?

Beside it, the correlation of every layer and token choice with success, so that the primary choice cannot hide that
another would have said something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headroom.present.command import figure_command
from headroom.present.policies import CORRELATED, correlations_said, points_by_level
from headroom.present.style import BLACK, GREY, ORANGE, PAGE, SMALLEST, empty, spans, zero_line
from headroom.present.tables import records, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 40
LINE = SMALLEST * 1.3 / 72.0
"""Height of a row of the right panel, inches."""
SUBSETS = {"all": (BLACK, "o", "all policies"), "alive": (ORANGE, "s", "without collapsed ones")}


def data(rank: Path, policy_success: Path, correlations: Path, runs: Path) -> pd.DataFrame:
    """Rows of two kinds: ``policy`` (primary rank, success) and ``correlation`` (a layer, token choice and subset)."""
    table = pd.read_csv(rank)
    settings = pd.read_csv(runs, sep="\t", comment="#")[["run", "learning_rate", "init", "seed"]]
    settings.columns = pd.Index(["policy", "learning_rate_level", "init", "seed"])
    points = table[table["primary"]].merge(settings, on="policy", how="left")
    points = points.merge(pd.read_csv(policy_success), on="policy", how="left").assign(row="policy")
    related = pd.read_csv(correlations)
    related = related[related["quantity"] == "effective_rank"].assign(row="correlation")
    order = ["row", "policy", "learning_rate_level", "init", "seed", "site", "layer", "tokens", "centred", "primary"]
    order += ["effective_rank", "ci_low", "ci_high", "success", "episodes", "subset", "checkpoints"]
    order += CORRELATED
    parts = [part.reindex(columns=order) for part in (points, related) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=order)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Left: primary rank and success of each policy. Right: Spearman's rho by layer and token choice."""
    import matplotlib.pyplot as plt

    points = table[table["row"] == "policy"].dropna(subset=["effective_rank", "success"])
    related = table[table["row"] == "correlation"].dropna(subset=["spearman"])
    shown = _shown(related)
    keys = sorted(
        set(zip(shown["layer"], shown["site"], shown["tokens"], shown["centred"], strict=True)),
        key=lambda key: (key[0], str(key[2]), str(key[3])),
    )
    height = max(2.9, 0.9 + LINE * len(keys))
    figure, (left, right) = plt.subplots(1, 2, figsize=(PAGE, height), width_ratios=(1.0, 1.1))
    _points(left, points)
    _related(right, shown, keys)
    primary = related[related["primary"].map(true)]
    said = correlations_said(primary, {subset: label for subset, (_, _, label) in SUBSETS.items()}, pearson=True)
    caption = (
        f"Left: effective rank of the last block (the choice fixed beforehand) against greedy success on the mastered "
        f"tasks, {len(points)} policies; bars: 95% bootstrap intervals over probe episodes. Correlation with "
        f"success, 95% bootstrap intervals over policies: {said or 'too few policies'}. Right: Spearman's rho with "
        "success by layer, for three token choices and both centrings, 95% bootstrap intervals over policies; the "
        "primary choice is filled. Policies share an initialisation and differ mostly in learning rate: this says what "
        "goes together, not what causes what."
    )
    return figure, caption


def _points(axes: Axes, points: pd.DataFrame) -> None:
    if points.empty:
        empty(axes, "no policy with a rank and a success")
        return
    points_by_level(axes, points, "effective_rank", "success", "x")
    axes.set_xlabel("effective rank, last block")
    axes.set_ylabel("greedy success (%)")


def _shown(related: pd.DataFrame) -> pd.DataFrame:
    """All correlations, but of a deep model those of the primary token choice alone, at every layer."""
    if len(related) <= 2 * MOST_ROWS:
        return related
    primary = related[related["primary"].map(true)].iloc[:1]
    same = (related["tokens"] == primary["tokens"].squeeze()) & (related["centred"] == primary["centred"].squeeze())
    return related[same] if len(primary) else related.iloc[: 2 * MOST_ROWS]


def _related(axes: Axes, related: pd.DataFrame, keys: Sequence[tuple[Any, ...]]) -> None:
    if related.empty:
        empty(axes, "too few policies for a correlation")
        return
    zero_line(axes, horizontal=False)
    for shift, (subset, (colour, marker, label)) in zip((-0.17, 0.17), SUBSETS.items(), strict=True):
        own = related[related["subset"] == subset]
        for row in records(own):
            place = keys.index((row.layer, row.site, row.tokens, row.centred)) + shift
            axes.errorbar(
                row.spearman, place, xerr=spans([row.spearman], [row.spearman_ci_low], [row.spearman_ci_high]),
                fmt=marker, color=colour, markersize=3, elinewidth=0.6, alpha=0.9,
                markerfacecolor=colour if true(row.primary) else "white",
            )  # fmt: skip
        axes.plot([], [], marker, color=colour, markersize=3, label=label)
    names = {"embedding": "embedding", "final_norm": "final norm"}
    labels = [
        f"{names.get(site, f'block {layer:.0f}')}, {tokens}{'' if str(centred) == 'True' else ', not centred'}"
        for layer, site, tokens, centred in keys
    ]
    axes.set_yticks(range(len(keys)), labels, fontsize=SMALLEST)
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("Spearman's rho with success")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    for border in np.flatnonzero(np.diff([key[0] for key in keys])):
        axes.axhline(float(border) + 0.5, color=GREY, linewidth=0.4)


if __name__ == "__main__":
    figure_command("rank_against_success", data, draw)
