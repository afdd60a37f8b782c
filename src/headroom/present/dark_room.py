"""The dark room: success at the end of each arm, and how validation success and prediction went.

The join of a dense signal and a division by the group's deviation is what the study is about, so the arms stand in
pairs: divided, then mean-centred only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headroom.config.jobs import ContrastJob, DemonstrationsJob, load_job
from headroom.config.models import AlfWorldSettings
from headroom.present.command import figure_command
from headroom.present.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    PAGE,
    PURPLE,
    RED,
    SKY,
    empty,
    spans,
)
from headroom.present.tables import counted, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS = {
    "baseline": (BLACK, "-"),
    "baseline, centred": (GREY, "--"),
    "prediction": (RED, "-"),
    "prediction, annealed": (ORANGE, "-."),
    "prediction, decoupled": (PURPLE, ":"),
    "prediction, additive": (RED, ":"),
    "prediction, centred": (GREEN, "--"),
    "noise": (BLUE, "-"),
    "noise, centred": (SKY, "--"),
    "confidence": (PURPLE, "-"),
    "anchor": (SKY, "-"),
    "auxiliary": (GREEN, "-"),
    "auxiliary, shuffled": (GREEN, "-."),
    "auxiliary, random words": (GREEN, ":"),
}
"""Arm -> colour and line; mean-centred arms are dashed. Arms that are not here take a grey, dotted line."""
SCENES = {
    "generated": "ALFWorld engine, synthetic scenes",
    "released": "ALFWorld",
    "hidden_rule": "Our HiddenRule, a world of our own design",
}
"""Where a text game's pages are from -> what they are called."""
KEPT = ["run", "arm", "seed", "seeds", "step", "validations", "episodes", "success", "success_low", "success_high"]
KEPT += ["interval_method", "prediction_score", "horizon_share", "warning_step"]


def data(arms: Path, validation: Path, demonstrations: Path, statistics: Path) -> pd.DataFrame:
    """Rows of three kinds: ``arm`` and ``run`` (endpoints), ``curve`` (a run's validation, a row a step).

    ``world`` says what the pages are, ``confidence`` that of the intervals.
    """
    ends = pd.read_csv(arms)
    curves = pd.read_csv(validation).assign(row="curve")
    table = pd.concat([ends, curves], ignore_index=True)
    table = table[["row", *KEPT]].sort_values(
        "row", key=lambda kind: kind.map(["arm", "run", "curve"].index), kind="stable"
    )
    world = load_job(demonstrations, DemonstrationsJob).world
    pages = world.games if isinstance(world, AlfWorldSettings) else world.kind
    confidence = load_job(statistics, ContrastJob).statistics.confidence
    return table.assign(world=SCENES.get(pages, pages), confidence=confidence).reset_index(drop=True)


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """Left: an arm a row, seeds as open points, the arm with its interval. Beside it: validation over the steps."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    ends = table[table["row"] == "arm"].reset_index(drop=True)
    figure, (left, success, score) = plt.subplots(1, 3, figsize=(PAGE, 3.2), width_ratios=(1.15, 1, 1))
    if ends.empty:
        for axes in (left, success, score):
            empty(axes, "no arm at this scale")
        return figure, "No arm was run at this scale."
    _endpoints(left, ends, table[table["row"] == "run"])
    curves = table[table["row"] == "curve"]
    for axes, column, title in (
        (success, "success", "validation success"),
        (score, "prediction_score", "prediction score"),
    ):
        _courses(axes, curves, column, list(ends["arm"]))
        axes.set_title(title)
        axes.set_xlabel("GRPO step")
        highest = 1.0 if column == "prediction_score" else min(1.0, 1.2 * max(float(curves[column].max()), 0.1))
        axes.set_ylim(-0.03 * highest, 1.03 * highest)
    sns.despine(figure)
    return figure, _caption(ends, table)


def _look(arm: str) -> tuple[str, str]:
    return LOOKS.get(arm, (GREY, ":"))


def _endpoints(axes: Axes, ends: pd.DataFrame, runs: pd.DataFrame) -> None:
    places = np.arange(len(ends))[::-1]
    for place, row in zip(places, records(ends), strict=True):
        colour, _ = _look(row.arm)
        own = runs[runs["arm"] == row.arm]
        axes.plot(100 * own["success"], np.full(len(own), place - 0.22), "o", color=colour, mfc="white", markersize=3)
        arms = spans([100 * row.success], [100 * row.success_low], [100 * row.success_high])
        form = MARKERS[0] if row.interval_method == "seeds" else MARKERS[1]
        axes.errorbar(100 * row.success, place, xerr=arms, fmt=form, color=colour, elinewidth=0.9)
    axes.set_yticks(places, list(ends["arm"]))
    highest = 100 * min(1.0, 1.1 * float(np.nanmax([*ends["success"], *ends["success_high"], 0.1])))
    axes.set_xlim(-0.03 * highest, 1.03 * highest)
    axes.set_title("success at the end")
    axes.set_xlabel("mean of the last validations (%)")


def _courses(axes: Axes, curves: pd.DataFrame, column: str, arms: list[str]) -> None:
    if curves[column].notna().sum() == 0:
        empty(axes, "no arm predicts")
        return
    for arm in arms:
        own = curves[curves["arm"] == arm]
        colour, line = _look(arm)
        for _, run in own.groupby("run", sort=True):
            axes.plot(run["step"], run[column], line, color=colour, linewidth=0.5, alpha=0.4)
        steps = own.groupby("step")[column]
        middle = steps.mean()[steps.size() == own["run"].nunique()]  # a run that diverged ends at a step of its own
        axes.plot(middle.index, middle, line, color=colour, linewidth=1.5)


def _caption(ends: pd.DataFrame, table: pd.DataFrame) -> str:
    first = ends.iloc[0]
    share = f"{100 * float(table['confidence'].iloc[0]):g}%"
    runs = table[table["row"] == "run"]
    warned = runs[runs["warning_step"].notna()]
    said = "; ".join(f"{row.run} ({row.arm}) at step {row.warning_step:.0f}" for row in records(warned)) or "none"
    return (
        f"{first['world']}. Left: success of {counted(len(ends), 'arm')} ({counted(len(runs), 'run')}) at the end of "
        f"training, mean of the last {counted(int(ends['validations'].min()), 'validation')} of "
        f"{ends['episodes'].min():.0f} scored episodes each, sampled. Open points: training seeds. Filled circles: "
        f"arms with several seeds, {share} interval by Student's t over seeds; squares: one seed, or seeds that "
        f"agree exactly, {share} Wilson interval of the episodes of one validation each, which all validations "
        "repeat. Middle: success at each validation (0 to 1). Right: how right the agent's predictions of the next "
        "observation are (0 to 1): all arms are scored, those called prediction are paid for it; thin: a run, thick: "
        "the mean of an arm, dashed: without division by the deviation. No interval is drawn there. Warnings of a "
        "collapse (entropy halved, predictions right and episodes at the turn limit, all at once): "
        f"{said}."
    )


if __name__ == "__main__":
    figure_command("dark_room", data, draw)
