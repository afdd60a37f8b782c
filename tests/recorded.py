"""The files of a finished study that must not depend on where, when and by what it was made."""

from __future__ import annotations

from pathlib import Path

from headroom.provenance.manifest import entry
from headroom.provenance.walk import Project


def digests(folder: Path) -> dict[str, str]:
    """Every file that a record names, with its digest: checkpoints, tables, claims, figures; no timings."""
    project = Project(folder)
    names = {name for node in project.records("smoke") for name in node.files() if not name.endswith("timing.parquet")}
    names |= {f"{node.base}/manifest.json" for node in project.records("smoke") if node.is_directory}
    return {name: entry(project.path(name)).sha256 for name in sorted(names)}
