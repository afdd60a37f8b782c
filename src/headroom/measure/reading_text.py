"""A headroom reading in words and as a table on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from headroom.config.models import Statistics

if TYPE_CHECKING:
    from rich.console import Console

LIMITS = (
    "Limits: this speaks of greedy success on these tasks, at a learning rate that does no harm. It cannot see harm; "
    "headroom is not always harvested; other tasks may lose; pages and samples are as few as stated."
)


def sentence(row: Mapping[str, Any], statistics: Statistics) -> str:
    """One set's row in words."""
    if row["pages"] == 0:
        return f"{row['name']}: no page could be scored ({row['excluded']} excluded); undecided."
    k = max((int(key.split("_")[2]) for key in row if key.startswith("pass_at_")), default=0)
    share = f"{statistics.confidence:.0%}"
    parts = [
        f"{row['name']} ({row['tasks']} tasks, {row['pages']} pages, {row['samples']} samples a page): greedy "
        f"{row['greedy']:.1%}, sampled {row['sampled']:.1%}; headroom {_points(row, 'headroom', 'headroom')} "
        f"({share} interval over {'tasks' if row['tasks'] > 1 else 'pages'})."
    ]
    if k:
        parts.append(f"pass@{k} minus greedy: {_points(row, f'pass_at_{k}_minus_greedy')}.")
    parts.append(
        f"Mixed groups of {row['samples']}: {row['mixed_share']:.1%} [{row['mixed_low']:.1%}, {row['mixed_high']:.1%}]."
    )
    margin = f"{100 * statistics.equivalence_margin:g} points"
    if row["expectation"] == "expect gain":
        parts.append("Expect gain from GRPO: the interval of the headroom lies above 0.")
    elif row["expectation"] == "expect no gain":
        few_mixed = row["mixed_high"] < statistics.equivalence_margin
        what = "mixed-group share" if few_mixed else "headroom"
        parts.append(f"Expect no gain from GRPO: the interval of the {what} ends below {margin}.")
    else:
        parts.append(f"Undecided: the interval of the headroom holds 0 and reaches {margin}; more pages would tell.")
    return " ".join(parts)


def _points(row: Mapping[str, Any], name: str, bounds: str | None = None) -> str:
    bounds = bounds or name
    return f"{100 * row[name]:+.1f} points [{100 * row[f'{bounds}_low']:+.1f}, {100 * row[f'{bounds}_high']:+.1f}]"


def show(table: pd.DataFrame, sentences: Sequence[str], console: Console) -> None:
    """Print a reading: a table of tasks and sets, then the sentences."""
    from rich.table import Table

    grid = Table(title="Headroom reading")
    for column in ("", "pages", "greedy", "sampled", "headroom [interval]", "mixed groups", "GRPO"):
        grid.add_column(column, justify="left" if column in ("", "GRPO") else "right")
    rows: list[dict[str, Any]] = table.sort_values("level", kind="stable", ascending=False).to_dict("records")  # type: ignore[assignment]
    for row in rows:
        grid.add_row(
            row["name"],
            str(row["pages"]),
            f"{row['greedy']:.1%}",
            f"{row['sampled']:.1%}",
            f"{100 * row['headroom']:+.1f} [{100 * row['headroom_low']:+.1f}, {100 * row['headroom_high']:+.1f}]",
            f"{row['mixed_share']:.0%}",
            row["expectation"],
            style="bold" if row["level"] == "set" else None,
        )
    console.print(grid)
    for text in sentences:
        console.print(text, highlight=False)
