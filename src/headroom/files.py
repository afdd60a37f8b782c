"""Files that are written whole or not at all, with bytes that depend on their content alone."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on a clean exit flush it to disk and move it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys, two spaces and a final newline; NaN is refused."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV: no index, floats with 10 significant digits."""
    write_text(path, table.to_csv(index=False, float_format="%.10g", lineterminator="\n"))


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Write a table as Parquet (zstd), without pandas' index; equal tables give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic(path) as part:
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), part, compression="zstd")
