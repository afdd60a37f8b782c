"""What the figures share that set what is inside policies against their success: points, and correlations in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from headroom.present.style import BLACK, LEVEL_MARKERS, LEVELS, spans
from headroom.present.tables import records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

CORRELATED = [f"{name}{end}" for name in ("pearson", "spearman") for end in ("", "_ci_low", "_ci_high")]
"""The columns of a row of ``correlations.csv`` that hold estimates."""

_NO_RL = "no RL"


def points_by_level(axes: Axes, points: pd.DataFrame, across: str, up: str, interval_of: Literal["x", "y"]) -> None:
    """A point a policy, coloured by learning-rate level; ``up`` is a success and drawn in percent.

    ``ci_low`` and ``ci_high`` are the interval of the one that ``interval_of`` names.
    """
    levels = points["learning_rate_level"].astype(object).fillna(_NO_RL)
    for level in [level for level in (_NO_RL, *LEVELS) if (levels == level).any()]:
        own = points[levels == level]
        x, y = own[across], 100 * own[up]
        if interval_of == "x":
            arms: dict[str, Any] = {"xerr": spans(x, own["ci_low"], own["ci_high"])}
        else:
            arms = {"yerr": spans(y, 100 * own["ci_low"], 100 * own["ci_high"])}
        axes.errorbar(
            x, y, **arms, fmt=LEVEL_MARKERS.get(level, "X"), color=LEVELS.get(level, BLACK), elinewidth=0.6,
            markersize=4, alpha=0.9, label=level,
        )  # fmt: skip
    axes.legend(title="learning rate", loc="best")


def correlations_said(related: pd.DataFrame, names: Mapping[str, str], *, pearson: bool = False) -> str:
    """Spearman's rho (and Pearson's r) of each subset with its interval, in words; empty if there is none."""
    parts = []
    for row in records(related):
        text = f"{names[row.subset]} rho {row.spearman:+.2f} [{row.spearman_ci_low:.2f}, {row.spearman_ci_high:.2f}]"
        if pearson:
            text += f", r {row.pearson:+.2f} [{row.pearson_ci_low:.2f}, {row.pearson_ci_high:.2f}]"
        parts.append(f"{text} ({row.checkpoints:.0f} policies)")
    return "; ".join(parts)
