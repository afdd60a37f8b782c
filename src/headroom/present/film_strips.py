"""Film strips: one page of each regime, as the supervised policy and as the trained one played it.

The pages are picked by the rule of ``measure.filmstrip``, never by hand. The CSV holds the pictures themselves
(``png``, base64), so that the figure can be drawn again from its numbers alone.
"""

from __future__ import annotations

import base64
import io
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headroom.present.command import figure_command
from headroom.present.style import BLUE, GREEN, GREY, PAGE, RED, SMALLEST, empty
from headroom.present.tables import counted, records, true

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 240  # pixels of a stored frame
COLOURS = 64
ACROSS = 6  # frames on a line
LINES = 4  # that a page of print holds
LINE = 2.12  # inches
COLUMNS = [
    *("regime", "rule", "task", "page_seed", "role", "policy", "success", "turns"),
    *("frame", "turn", "action", "outcome", "png"),
]


def data(filmstrip: Path) -> pd.DataFrame:
    """One row a frame; a regime without a page that qualifies has one row without a frame."""
    rows: list[dict[str, Any]] = []
    for strip in json.loads(filmstrip.read_text(encoding="utf-8"))["strips"]:
        head = {"regime": strip["regime"], "rule": strip["rule"], "policy": strip["policy"]}
        if strip["page"] is None:
            rows.append(head)
            continue
        head |= {"task": strip["page"]["task"], "page_seed": strip["page"]["seed"]}
        for role in ("reference", "run"):
            film = strip["strips"][role]
            own = head | {"role": role, "policy": film["policy"], "success": film["success"], "turns": film["turns"]}
            for place, frame in enumerate(film["frames"]):
                said = {"frame": place, "turn": frame["turn"], "action": frame["action"], "outcome": frame["outcome"]}
                rows.append(own | said | {"png": _stored(filmstrip.parent / frame["file"])})
    return pd.DataFrame(rows, columns=COLUMNS)


def _stored(path: Path) -> str:
    """The page of a frame, without the text below it, small and in few colours: base64 of a PNG."""
    from PIL import Image

    with Image.open(path) as image:
        page = image.convert("RGB").crop((0, 0, image.width, round(image.width * 210 / 160)))
    page = page.resize((WIDTH, round(WIDTH * 210 / 160)), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    page.quantize(COLOURS, dither=Image.Dither.NONE).save(stream, format="PNG", optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def draw(table: pd.DataFrame) -> tuple[Figure, str]:
    """A page a regime, as the supervised policy (left) and the run played it; under a frame its action and outcome."""
    import matplotlib.pyplot as plt

    shown = table.dropna(subset=["png"])
    pages = [[strip for _, strip in own.groupby("role")] for _, own in shown.groupby("regime", sort=False)]
    lines = _lines(pages)
    count = max(len(lines), 1)
    figure, grid = plt.subplots(count, ACROSS, figsize=(PAGE, 0.1 + LINE * count), squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    if not lines:
        empty(grid[0, 0], "no page qualifies")
    for cells, strips in zip(grid, lines, strict=False):
        for strip, start in zip(strips, _starts(strips), strict=True):
            for axes, row in zip(cells[start:], records(strip), strict=False):
                _frame(axes, row)
            _title(cells[start], strip.iloc[0], heads=strip is strips[0])
    return figure, _caption(table)


def _lines(pages: list[list[pd.DataFrame]]) -> list[list[pd.DataFrame]]:
    """What stands on each line: both strips of a page, or one strip where the two do not fit beside each other.

    If that takes more lines than a page of print holds, the strips that do not fit are shortened until they do.
    """
    lines: list[list[pd.DataFrame]] = []
    for page in pages:
        lines += [page] if _fits(page) else [[strip] for strip in page]
    if len(lines) <= LINES:
        return lines
    return [page if _fits(page) else [_shortened(strip) for strip in page] for page in pages]


def _fits(page: list[pd.DataFrame]) -> bool:
    return sum(max(len(strip), 2) for strip in page) <= ACROSS  # a title needs the width of two frames


def _shortened(strip: pd.DataFrame) -> pd.DataFrame:
    """The first frames and the last two, as many as half a line holds."""
    half = ACROSS // 2
    return strip if len(strip) <= half else pd.concat([strip.iloc[: half - 2], strip.iloc[-2:]])


def _starts(strips: list[pd.DataFrame]) -> list[int]:
    """The column where each strip of a line begins: the second in the middle, unless one needs more than a half."""
    if len(strips) == 1:
        return [0]
    first, second = (len(strip) for strip in strips)
    return [0, max(first, min(ACROSS // 2, ACROSS - second))]


def _title(axes: Axes, first: Any, *, heads: bool) -> None:
    """Who played and how it ended, above a strip; the line's first strip also has the regime and the task."""
    solved = true(first["success"])
    who = "supervised policy" if first["role"] == "reference" else f"run {first['policy']}"
    said = f"{who}: {'solved' if solved else 'failed'} after {counted(first['turns'], 'turn')}"
    axes.text(0, -10, said, fontsize=7, va="bottom", color=GREEN if solved else RED).set_in_layout(False)
    if heads:
        head = f"{first['regime']}: {first['task']}"
        axes.text(0, -37, head, fontsize=7, va="bottom", weight="bold").set_in_layout(False)


def _frame(axes: Axes, row: Any) -> None:
    """One page with its action, and what became of the action where it did not reach the page."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(row.png))) as image:
        axes.imshow(image.convert("RGB"), interpolation="antialiased")
    height, width = WIDTH * 210 / 160, WIDTH
    axes.set_ylim(height + 78, -62)  # room for the text
    axes.plot([0, width, width, 0, 0], [0, 0, height, height, 0], color=GREY, linewidth=0.6, clip_on=False)
    said = f"{row.turn + 1:.0f}. {row.action}" if isinstance(row.action, str) and row.action else "out of turns"
    lines = textwrap.wrap(said, 22, max_lines=2, placeholder="...")
    axes.text(0, height + 8, "\n".join(lines), fontsize=SMALLEST, va="top")
    if isinstance(row.outcome, str) and row.outcome not in ("", "ok"):
        below = height + 8 + 23 * len(lines)
        axes.text(0, below, row.outcome, fontsize=SMALLEST, va="top", color=BLUE, weight="bold")


def _caption(table: pd.DataFrame) -> str:
    shown = table.dropna(subset=["png"])
    without = [str(name) for name in table.loc[table["png"].isna(), "regime"]]
    pages = "; ".join(
        f"{regime}: {own['task'].iloc[0]}, page {own['page_seed'].iloc[0]:.0f} ({own['rule'].iloc[0]})"
        for regime, own in shown.groupby("regime", sort=False)
    )
    caption = (
        f"What policies did on one page a regime, picked by rule: {pages or 'none'}. Lost: solved by the supervised "
        "policy, failed by the regime's first run; gained: the reverse; the set is the one that the regime trains on. "
        "Greedy episodes; a box marks the "
        "target of the next action (orange if it reached the page, blue if not), the text below is that action and "
        "what became of it. Long episodes show their first frames and the last two. One page a regime is an "
        "illustration, not a measurement: no interval."
    )
    if without:
        caption += f" No page qualifies for {', '.join(dict.fromkeys(without))}."
    return caption


if __name__ == "__main__":
    figure_command("film_strips", data, draw, beside={"filmstrip": "*/*.png"})
