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
    """Two strips a regime, the supervised policy above the trained one; under a frame its action and outcome."""
    import matplotlib.pyplot as plt

    shown = table.dropna(subset=["png"])
    strips = list(dict.fromkeys(zip(shown["regime"], shown["role"], strict=True)))
    without = [str(name) for name in table.loc[table["png"].isna(), "regime"]]
    across = int(shown["frame"].max()) + 1 if len(shown) else 1
    across = max(across, 4)
    figure, grid = plt.subplots(
        max(len(strips), 1), across, figsize=(PAGE, max(len(strips), 1) * (PAGE / across * 1.55 + 0.25)), squeeze=False
    )
    for axes in grid.flat:
        axes.set_axis_off()
    if not strips:
        empty(grid[0, 0], "no page qualifies")
    for line, (regime, role) in enumerate(strips):
        own = shown[(shown["regime"] == regime) & (shown["role"] == role)]
        for row in records(own):
            _frame(grid[line, int(row.frame)], row, last=row.frame == own["frame"].max())
        first = own.iloc[0]
        who = "supervised policy" if role == "reference" else f"{regime} run {first['policy']}"
        end = "solved" if true(first["success"]) else "failed"
        title = f"{who}: {end} after {counted(first['turns'], 'turn')} ({first['task']})"
        grid[line, 0].text(0, -10, title, fontsize=7, va="bottom").set_in_layout(False)
    pages = "; ".join(
        f"{regime}: {own['task'].iloc[0]}, page {own['page_seed'].iloc[0]:.0f} ({own['rule'].iloc[0]})"
        for regime, own in shown.groupby("regime", sort=False)
    )
    caption = (
        f"What policies did on one page a regime, picked by rule: {pages or 'none'}. Greedy episodes; a box marks the "
        "target of the next action (orange if it reached the page, blue if not), the text below is that action and "
        "what became of it. Long episodes show their first frames and the last two. One page a regime is an "
        "illustration, not a measurement: no interval."
    )
    if without:
        caption += f" No page qualifies for {', '.join(dict.fromkeys(without))}."
    return figure, caption


def _frame(axes: Axes, row: Any, *, last: bool) -> None:
    """One page with its action; the last one of a strip says how the episode ended."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(row.png))) as image:
        axes.imshow(image.convert("RGB"), interpolation="antialiased")
    height, width = WIDTH * 210 / 160, WIDTH
    axes.set_ylim(height + 92, -34)  # room for the text
    axes.plot([0, width, width, 0, 0], [0, 0, height, height, 0], color=GREY, linewidth=0.6, clip_on=False)
    said = row.action if isinstance(row.action, str) else ""
    lines = textwrap.wrap(f"{row.turn + 1:.0f}. {said}", 22, max_lines=2, placeholder="...") if said else []
    axes.text(0, height + 8, "\n".join(lines), fontsize=SMALLEST, va="top")
    below = []
    if isinstance(row.outcome, str) and row.outcome not in ("", "ok"):
        below.append((row.outcome, BLUE))
    if last:
        below.append(("solved", GREEN) if true(row.success) else ("failed", RED))
    for place, (text, colour) in enumerate(below, start=len(lines)):
        axes.text(0, height + 8 + 29 * place, text, fontsize=SMALLEST, va="top", color=colour, weight="bold")


if __name__ == "__main__":
    figure_command("film_strips", data, draw, beside={"filmstrip": "*/*.png"})
