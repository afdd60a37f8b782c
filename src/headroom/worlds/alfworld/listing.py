"""The listing of released games, and whether a folder holds what it lists; known without ALFWorld's engine."""

from __future__ import annotations

import re
from pathlib import Path

from headroom.config.worlds import LISTING

ROOT = "json_2.1.1"
WRITE = "python -m headroom.worlds.alfworld.released"
AGAIN = f"fetch the release again (alfworld-download), or accept it: {WRITE}"


def read_listing(folder: Path) -> dict[str, str]:
    """Path of a game, relative to ``folder`` -> its SHA-256; empty where there is no listing.

    Raises:
        ValueError: the listing cannot be read, or is none.
    """
    file = folder / LISTING
    if not file.exists():
        return {}
    try:
        rows = [line.split("  ", 1) for line in file.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ValueError(f"{file}: cannot be read ({reason}); write it again: {WRITE} {folder}") from None
    if not rows or any(len(row) != 2 or not re.fullmatch("[0-9a-f]{64}", row[0]) for row in rows):
        raise ValueError(f"{file} is not a listing of games; write it again: {WRITE} {folder}")
    return {path: digest for digest, path in rows}


def check_games(folder: Path) -> dict[str, str]:
    """The listing of a folder of released games, every file of which is there; their content is checked when used.

    Raises:
        ValueError: the folder is not one of released games, or lacks a listed game.
    """
    if not (folder / ROOT).is_dir():
        raise ValueError(f"world.data: {folder} has no {ROOT}/; type: alfworld-download --data-dir {folder}")
    listed = read_listing(folder)
    for path in listed:
        if not (folder / path).is_file():
            raise ValueError(f"{folder / path} is listed in {LISTING} and missing; {AGAIN} {folder}")
    return listed
