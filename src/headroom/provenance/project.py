"""Where the project is, and how its paths are written in records: relative, without user name or home folder."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def _find_root(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / "Snakefile").is_file():
            return folder
    return start


def root() -> Path:
    """The folder that holds the Snakefile, seen from the working directory; else the working directory."""
    return _find_root(Path.cwd())


def making(scale: str) -> str:
    """What to type to make the study of a scale."""
    return {"tiny": "make reproduce", "smoke": "make smoke"}.get(scale, f"snakemake --cores 2 --config scale={scale}")


def absolute(path: Path) -> Path:
    """``path`` from the root of the file system, without ``..``; links are kept: results may lie on another disk."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def relative(path: Path) -> str:
    """``path`` as a record writes it: relative to the project with ``/``; outside of it the home folder is ``~``."""
    try:
        return absolute(path).relative_to(root()).as_posix()
    except ValueError:
        return scrub(absolute(path).as_posix())


def scrub(text: str) -> str:
    """``text`` without the places of this machine: project paths become relative, the home folder ``~``."""
    for place, name in ((str(root()) + "/", ""), (str(root()), "."), (str(Path.home()), "~")):
        if len(place.strip("/")) > 1:
            text = text.replace(place, name)
    return text


def scale_folder(output: Path) -> Path | None:
    """``results/<scale>`` of an output under ``results/<scale>/`` or ``figures/<scale>/``; None elsewhere."""
    try:
        parts = absolute(output).relative_to(root()).parts
    except ValueError:
        return None
    if len(parts) > 2 and parts[0] in ("results", "figures"):
        return root() / "results" / parts[1]
    return None
