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
    handle = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # a line cut short by a full disk takes no other with it
            content = b"\n" + content
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def read(log: Path) -> Iterator[dict[str, Any]]:
    """Lines of the log in order; one cut short by a crash, or of no attempt, is given as ``{"event": "damaged"}``."""
    if not log.is_file():
        return
    with log.open(encoding="utf-8", errors="replace") as stream:
        for text in stream:
            if text == "\n":
                continue
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or (
                line.get("event") in ("started", "ended", "damaged") and not isinstance(line.get("attempt"), str)
            ):
                line = {"event": "damaged", "text": text.rstrip("\n")}
            yield line


def of_output(log: Path, output: str) -> list[dict[str, Any]]:
    """All attempts at one output, oldest first: the start line with ``ending`` (``killed`` when no end is logged)."""
    found: dict[str, dict[str, Any]] = {}
    for line in read(log):
        if line.get("event") == "started" and line.get("output") == output:
            found[line["attempt"]] = {**line, "ending": "killed"}
        elif line.get("event") == "ended" and line.get("attempt") in found:
            found[line["attempt"]] |= {key: line[key] for key in ("ending", "ended", "error") if key in line}
    return list(found.values())
