"""``results.lock``: every released file with its sha256 and size, one a line, committed and readable.

sha256  size  path
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from headroom.files import write_text
from headroom.provenance.manifest import FileEntry

NAME = "results.lock"
HEAD = "# Every released file: sha256, size in bytes, path. Written by `headroom release`; headroom verify compares.\n"
_LINE = re.compile(r"([0-9a-f]{64})  +([0-9]{1,18})  (\S.*)")


def dump(entries: dict[str, FileEntry]) -> str:
    """Canonical text."""
    return HEAD + "".join(f"{entries[name].sha256}  {entries[name].size:>10}  {name}\n" for name in sorted(entries))


def load(path: Path) -> dict[str, FileEntry]:
    """Path relative to the project -> entry; empty when there is no lock.

    Raises:
        ValueError: a line is none, or a path leads out of the project.
    """
    if not path.is_file():
        return {}
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@cache
def _load(path: Path, _time: int, _size: int) -> dict[str, FileEntry]:
    return parse(path.read_text(encoding="utf-8", errors="replace"), path.name)


def parse(text: str, name: str) -> dict[str, FileEntry]:
    """Read the text of a lock.

    Raises:
        ValueError: a line is none, or a path leads out of the project.
    """
    found: dict[str, FileEntry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or not safe(match[3]) or match[3] in found:
            raise ValueError(f"{name}: line {number} is damaged; restore it with git checkout {name}")
        found[match[3]] = FileEntry(sha256=match[1], size=int(match[2]))
    return found


def safe(name: str) -> bool:
    """Whether a path stays inside of the project's results and figures."""
    parts = name.split("/")
    return (
        parts[0] in ("results", "figures") and len(parts) > 1 and not {"", ".", ".."} & set(parts) and "\0" not in name
    )


def of_scale(project: Path, scale: str) -> dict[str, FileEntry]:
    """The released files of one scale."""
    return {
        name: entry
        for name, entry in load(project / NAME).items()
        if name.startswith((f"results/{scale}/", f"figures/{scale}/"))
    }


def save(project: Path, scale: str, entries: dict[str, FileEntry]) -> None:
    """Replace the entries of one scale; other scales stay."""
    kept = {name: entry for name, entry in load(project / NAME).items() if name.split("/")[1] != scale}
    write_text(project / NAME, dump({**kept, **entries}))
