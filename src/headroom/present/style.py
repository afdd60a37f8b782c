"""One style for every figure: colour-blind safe, vector first, one column wide, the same bytes from the same numbers.

Colours are Okabe and Ito's (2008), which stay apart under all common colour-vision deficiencies; markers and line
styles repeat every distinction that a colour makes. The background is opaque white, so that a figure stays readable
on a dark page. Fonts are embedded as TrueType, so that text in the PDF can be searched and selected.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headroom.files import atomic, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.4
"""Width of one column of print, inches."""
PAGE = 7.0
"""Width of a full page of print, inches."""
PIXELS_PER_INCH = 200
SMALLEST = 6.0
"""Of any text, points: what can still be read in print."""

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
GREY = "#666666"

LEVELS = {"lowest": BLUE, "low": GREEN, "middle": ORANGE, "high": RED}
"""Learning-rate level -> colour, the same in every figure."""
LEVEL_LINES = {"lowest": ":", "low": "-.", "middle": "--", "high": "-"}
LEVEL_MARKERS = {"lowest": "o", "low": "s", "middle": "D", "high": "^"}
REGIMES = {"supervised": BLACK, "low": GREEN, "degrade": ORANGE, "collapse": RED, "headroom": PURPLE}
"""Regime of the mechanism -> colour; a regime has the colour of its learning-rate level."""

SCALE_LABELS = {
    "smoke": "smoke scale: checks the machinery, not evidence",
    "tiny": "tiny scale: 0.2 M-parameter model, mechanism reproduction",
    "small": "small scale: released small model",
    "paper": "paper scale",
    "paper-qwen3-vl-8b": "paper scale, Qwen3-VL-8B",
    "dark-room-smoke": "smoke scale: checks the machinery, not evidence",
    "hidden-rule-smoke": "smoke scale: checks the machinery, not evidence",
    "dark-room-tiny": "tiny scale: 0.2 M-parameter model, synthetic scenes, mechanism reproduction",
    "hidden-rule-tiny": "tiny scale: 0.2 M-parameter model, our HiddenRule, mechanism reproduction",
    "paper-qwen3-1.7b": "paper scale, Qwen3-1.7B",
    "paper-qwen3-4b": "paper scale, Qwen3-4B",
    "paper-qwen3-8b": "paper scale, Qwen3-8B",
    "paper-hidden-rule-qwen3-4b": "paper scale, Qwen3-4B, our HiddenRule",
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style inside the block and restore matplotlib's settings after it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import seaborn as sns
    from cycler import cycler

    settings: dict[Any, Any] = {
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.constrained_layout.use": True,
        "font.family": "DejaVu Sans",
        "font.size": 7.5,
        "axes.titlesize": 8.5,
        "axes.labelsize": 7.5,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "legend.fontsize": 6.5,
        "legend.frameon": False,
        "lines.linewidth": 1.2,
        "lines.markersize": 4.5,
        "axes.linewidth": 0.7,
        "axes.prop_cycle": cycler(color=PALETTE),
        "pdf.fonttype": 42,
        "svg.hashsalt": "headroom",
    }
    with sns.axes_style("ticks"), mpl.rc_context(settings):
        yield


def scale_of(path: Path) -> str:
    """The scale that a figure's file belongs to: the folder under ``figures``; "" if the path does not say."""
    parts = path.parts
    for i, part in enumerate(parts[:-1]):
        if part == "figures" and parts[i + 1] in SCALE_LABELS:
            return parts[i + 1]
    return ""


def group_name(groups: str, joint: str = " + ") -> str:
    """A parameter group, or a union as ``attention+mlp``, as a figure writes it: ``attention + MLP``."""
    return joint.join({"mlp": "MLP"}.get(name, name) for name in groups.split("+"))


def spans(value: Any, low: Any, high: Any) -> Any:
    """Lengths of the two arms of error bars, float64 (2, N), from centres and bounds (N,).

    An interval that does not hold its own centre (a rounding, a bootstrap of few tasks) has an arm of length 0;
    a missing bound draws nothing.
    """
    import numpy as np

    centre = np.asarray(value, dtype=np.float64)
    arms = np.stack([centre - np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64) - centre])
    return np.nan_to_num(np.clip(arms, 0.0, None))


def margin_band(axes: Axes, margin: float, *, horizontal: bool = True) -> None:
    """Shade the differences that count as equivalent: +- ``margin`` in the units of the axis."""
    if margin == margin:
        (axes.axhspan if horizontal else axes.axvspan)(-margin, margin, color="#E8E8E8", linewidth=0, zorder=-1)


def zero_line(axes: Axes, *, horizontal: bool = True) -> None:
    """Draw the line of no difference."""
    (axes.axhline if horizontal else axes.axvline)(0.0, color=GREY, linewidth=0.8, zorder=0)


def empty(axes: Axes, text: str) -> None:
    """Say inside an axes why nothing is drawn there."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=GREY, wrap=True)


def _settle(figure: Figure) -> None:
    """Lay the figure out once, and round where its axes came to stand.

    The layout's solver orders its unknowns by where they lie in memory: rarely, a place differs in its tenth digit
    from one process to the next, and with it the bytes of a PDF.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(float(edge), 5) for edge in axes.get_position(original=True).bounds])  # type: ignore[arg-type]


def save(figure: Figure, pdf: Path, *, caption: str) -> None:
    """Write ``NAME.pdf``, ``NAME.png`` beside it and ``captions/NAME.txt``; close the figure.

    The scale is written on the figure itself. Dates stay out of the files (SOURCE_DATE_EPOCH is honoured).
    """
    import matplotlib.pyplot as plt

    scale = scale_of(pdf.absolute())
    if scale:
        figure.text(0.995, 0.002, SCALE_LABELS[scale], ha="right", va="bottom", fontsize=SMALLEST, color=GREY)
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, 0.035, 1, 0.965))
    _settle(figure)
    os.environ.setdefault("SOURCE_DATE_EPOCH", "0")
    with atomic(pdf) as part:
        figure.savefig(part, format="pdf", metadata={"CreationDate": None, "Title": pdf.stem})
    with atomic(pdf.with_suffix(".png")) as part:
        figure.savefig(part, format="png", dpi=PIXELS_PER_INCH, metadata={"Software": None})
    plt.close(figure)
    # Names of tasks hold hyphens: a break behind one would put a space into the name where the lines are joined.
    text = textwrap.fill(caption, 110, break_on_hyphens=False)
    write_text(pdf.parent / "captions" / f"{pdf.stem}.txt", text + "\n")
