"""The name of the dialect that a checkpoint's policy knows, in a file of the checkpoint.

Apart from the dialects themselves, so that a job which only compares two checkpoints does not rest on any world.
"""

from __future__ import annotations

import json
from pathlib import Path

from headroom.files import write_json

FILE = "agent.json"
"""In every checkpoint folder that is trained here, ``{"dialect": name}``; a released model has none."""

OURS = "slots.json"
"""A file that only checkpoints of this project hold (:mod:`headroom.agent.codec`)."""


def write_spoken(name: str, folder: Path) -> None:
    """Write the name of a dialect into a checkpoint folder."""
    write_json(folder / FILE, {"dialect": name})


def spoken(folder: Path) -> str | None:
    """The name of the dialect of a checkpoint folder; None for a released model, which was trained for no world here.

    Raises:
        ValueError: the file is missing from a checkpoint of this project, or cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        if (folder / OURS).exists():
            raise ValueError(_missing(folder))
        return None
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["dialect"]
        if not isinstance(name, str):
            raise TypeError(f"dialect must be a name, not a {type(name).__name__}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read ({error!r}); the checkpoint is incomplete") from error
    return name


def spoken_here(folder: Path) -> str:
    """The name of the dialect of a checkpoint that was trained here.

    Raises:
        ValueError: the file is missing, or cannot be read.
    """
    name = spoken(folder)
    if name is None:
        raise ValueError(_missing(folder))
    return name


def check_same_dialect(base: Path, other: Path) -> None:
    """Refuse a pair of checkpoints that speak of two worlds.

    Raises:
        ValueError: they do, or a file is missing or cannot be read.
    """
    ours, theirs = spoken(base), spoken(other)
    if ours != theirs:
        raise ValueError(
            f"{other}: the checkpoint speaks the dialect {theirs!r}, but {base} speaks {ours!r}; "
            "this is not a pair of one run"
        )


def _missing(folder: Path) -> str:
    return (
        f"{folder / FILE}: {FILE} is missing; the checkpoint is incomplete: copy it again, or train it again "
        "if it was made before every checkpoint named its dialect"
    )
