"""The manifest of a result directory: every file with its sha256 and size, and nothing that varies between equal runs.

Downstream rules depend on ``manifest.json``: it is small, so Snakemake compares it by content, and it changes if and
only if a result file changes. What differs between equal runs is not in it: the two records (``manifest.json``,
``run.json``) and the seconds that a training took (``timing.parquet``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headroom.provenance.digest import sha256_file, sha256_text

MANIFEST = "manifest.json"
RECORD = "run.json"
NOT_OURS = ".snakemake_timestamp"
"""Snakemake leaves an empty file of this name in every folder that a rule declares as an output."""
TIMING = "timing.parquet"
"""Its digest is in the run record instead."""


class FileEntry(BaseModel):
    """One file: digest and size in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


Manifest = dict[str, FileEntry]


def entry(path: Path) -> FileEntry:
    """Digest and size of one file."""
    return FileEntry(sha256=sha256_file(path), size=path.stat().st_size)


def build(directory: Path) -> Manifest:
    """The manifest of ``directory``: relative POSIX path -> entry, sorted by path.

    Raises:
        ValueError: the directory holds a symbolic link, whose target nothing would protect.
    """
    found: Manifest = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            raise ValueError(f"{path}: a result directory may not hold symbolic links; write the file itself")
        if path.is_file() and name not in (MANIFEST, RECORD, TIMING) and path.name != NOT_OURS:
            found[name] = entry(path)
    return dict(sorted(found.items()))


def dump(manifest: Manifest) -> str:
    """Canonical text of a manifest; equal manifests give equal bytes."""
    content = {name: manifest[name].model_dump() for name in sorted(manifest)}
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def load(path: Path) -> Manifest:
    """Read ``manifest.json``.

    Raises:
        ValueError: the file is damaged; the message names it.
    """
    try:
        return {name: FileEntry.model_validate(value) for name, value in json.loads(path.read_bytes()).items()}
    except (ValueError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a manifest ({str(error).splitlines()[0]}); make the result again") from error


def digest(manifest: Manifest) -> str:
    """One sha256 for a whole directory."""
    return sha256_text(dump(manifest))


def differences(expected: Manifest, actual: Manifest) -> list[str]:
    """What differs, one line a file: missing, undeclared or changed."""
    lines = [f"missing: {name}" for name in sorted(expected.keys() - actual.keys())]
    lines += [f"undeclared: {name}" for name in sorted(actual.keys() - expected.keys())]
    common = sorted(expected.keys() & actual.keys())
    return lines + [f"changed: {name}" for name in common if expected[name] != actual[name]]
