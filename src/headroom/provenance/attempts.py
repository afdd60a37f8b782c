"""The append-only log of attempts: a line when a job starts, a line when it ends.

A start without an end is a job that was killed; no attempt can silently disappear. Each line is one ``write`` on a
descriptor opened with ``O_APPEND``, so lines of concurrent jobs do not mix.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME = "attempts.jsonl"


def append(log: Path, line: dict[str, Any]) -> None:
    """Append one line and flush it to disk."""
    log.parent.mkdir(parents=True, exist_ok=True)
    content = (json.dumps(line, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def read(log: Path) -> Iterator[dict[str, Any]]:
    """Lines of the log in order; a line cut short by a crash is given as ``{"event": "damaged"}``."""
    if not log.is_file():
        return
    with log.open(encoding="utf-8", errors="replace") as stream:
        for text in stream:
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            yield line if isinstance(line, dict) else {"event": "damaged", "text": text.rstrip("\n")}


def of_output(log: Path, output: str) -> list[dict[str, Any]]:
    """All attempts at one output, oldest first: the start line with ``ending`` (``killed`` when no end is logged)."""
    found: dict[str, dict[str, Any]] = {}
    for line in read(log):
        if line.get("event") == "started" and line.get("output") == output:
            found[line["attempt"]] = {**line, "ending": "killed"}
        elif line.get("event") == "ended" and line.get("attempt") in found:
            found[line["attempt"]] |= {key: line[key] for key in ("ending", "ended", "error") if key in line}
    return list(found.values())
