"""How cost grows: the measured points, the fit with its 95% interval, and where it leads at paper scale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headroom.plan.cost import Fit

if TYPE_CHECKING:
    import pandas as pd

MEASURED = {
    "group": "group size",
    "turns": "turns an episode",
    "prompt": "tokens a prompt",
    "layers": "blocks",
    "width": "width of the model",
}
"""Column of the measured table -> its name."""


def along(table: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The rows in which nothing but this axis differs from the most common point, the centre."""
    import pandas as pd

    kept = pd.Series(True, index=table.index)
    for name in ("width", "layers", "group", "turns", "prompt", "action"):
        if name != axis:
            kept &= table[name] == table[name].mode()[0]
    return table[kept].sort_values([axis, "phase"])


def draw(table: pd.DataFrame, fits: Mapping[str, Fit], growth: pd.DataFrame, path: Path) -> None:
    """Write ``path`` (PDF) and a PNG beside it.

    Args:
        table: what was measured (benchmarks/cost.csv).
        fits: phase -> its fit.
        growth: of ``headroom.plan.sweep``.
        path: the PDF.
    """
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(context="paper", style="ticks", palette="colorblind", font_scale=0.85)
    figure, (above, below) = plt.subplots(2, len(MEASURED), figsize=(10, 5), layout="constrained")
    colours = dict(zip(fits, sns.color_palette("colorblind"), strict=False))
    for panel, (axis, title) in zip(above, MEASURED.items(), strict=True):
        rows = along(table, axis)
        sns.scatterplot(
            rows, x=axis, y="cpu_seconds", hue="phase", palette=colours, ax=panel, legend=panel is above[0], s=22
        )
        for phase, fit in fits.items():
            own = rows[rows["phase"] == phase]
            expected = [fit.seconds(f, c) for f, c in zip(own["flops"], own["calls"], strict=True)]
            panel.plot(own[axis], expected, color=colours[phase], linewidth=1)
            low, high = ([factor * value for value in expected] for factor in (fit.low, fit.high))
            panel.fill_between(own[axis], low, high, color=colours[phase], alpha=0.2, linewidth=0)
        panel.set(ylabel="CPU seconds a step, measured" if panel is above[0] else "", ylim=(0.01, 4))
        _ticks(panel, title, sorted(rows[axis].unique()))
    above[0].legend(title=None, frameon=False)
    measures = {"gpu_hours": "GPU-hours", "wall_hours": "hours on 16 GPUs"}
    colours = dict(zip(measures, sns.color_palette("colorblind")[2:], strict=False))
    for panel, (varied, rows) in zip(below, growth.groupby("axis", sort=False), strict=True):
        for name, label in measures.items():
            label = "hours" if varied == "GPUs" and name == "wall_hours" else label
            sns.lineplot(rows, x="value", y=name, color=colours[name], ax=panel, marker="o", markersize=4, label=label)
            panel.fill_between(
                rows["value"], rows[f"{name}_low"], rows[f"{name}_high"], color=colours[name], alpha=0.2, linewidth=0
            )
        panel.legend().remove()
        panel.set(ylabel="the study, extrapolated" if panel is below[0] else "")
        panel.set_ylim(growth["wall_hours_low"].min() / 1.3, growth["gpu_hours_high"].max() * 1.3)
        _ticks(
            panel, str(varied), [float(f"{value:.3g}") if value >= 10 else round(value, 1) for value in rows["value"]]
        )
    below[0].legend(title=None, frameon=False)
    figure.suptitle(
        "Above: a GRPO step of 4 pages, tiny model, one core; lines are the fit, bands hold 95% of new points "
        "(left-one-out).\nBelow: the whole study at paper scale on A100-80GB by that fit; bands: that error times the "
        "assumed range of a GPU's speed. Nothing below was run.",
        fontsize=8,
    )
    sns.despine(figure)
    for target in (path, path.with_suffix(".png")):
        metadata = {"CreationDate": None} if target.suffix == ".pdf" else {"Software": None}
        figure.savefig(target, metadata=metadata, dpi=160)
    plt.close(figure)


def _ticks(panel: Any, title: str, values: list[float]) -> None:
    from matplotlib.ticker import NullLocator

    panel.set(xscale="log", yscale="log", xlabel=title)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.xaxis.set_minor_locator(NullLocator())
