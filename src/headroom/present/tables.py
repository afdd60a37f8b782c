"""Small helpers for tables that went through a CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def records(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, a column an attribute."""
    yield from table.itertuples(index=False)


def counted(number: float, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{int(number)} {noun}{'' if int(number) == 1 else 's'}"


def extreme(table: pd.DataFrame, column: str, *, largest: bool = True) -> dict[str, Any]:
    """The row with the largest (smallest) value of a column, missing ones left out; the first of equals."""
    values = table[column].dropna()
    place = values.idxmax() if largest else values.idxmin()
    return dict(zip(table.columns, table.to_numpy(dtype=object)[table.index.get_loc(place)], strict=True))


def by_key(table: pd.DataFrame, key: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by a column that names each once."""
    return {str(row[key]): {str(name): value for name, value in row.items()} for row in table.to_dict("records")}


def true(value: object) -> bool:
    """A flag, as a boolean or as the text that a CSV made of it (a missing one is false)."""
    return str(value) == "True"
