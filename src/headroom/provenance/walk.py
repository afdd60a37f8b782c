"""The records of a project as a graph: which run made a file, and from what.

Everything is found by looking at the disk, so it works without Snakemake's own notes, in a moved project, and where a
result folder is a link to another disk. A record that is cut short or of another version is read as far as it goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from headroom.provenance.cache import Hasher
from headroom.provenance.digest import sha256_text
from headroom.provenance.manifest import MANIFEST, RECORD, TIMING
from headroom.provenance.schema import SCHEMA_VERSION, Input, RunRecord, parse

NOTHING = sha256_text("")

Kind = Literal[
    "changed", "missing", "undeclared", "record", "chain", "absent", "failed", "extra", "lock", "note"
]  # fmt: skip


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is not as recorded. ``note`` is worth knowing and no fault."""

    path: str
    kind: Kind
    message: str

    def line(self) -> str:
        """One line for a reader."""
        return f"{self.kind}: {self.path}: {self.message}"


@dataclass
class Node:
    """One run: its record and where the record lies."""

    record: str
    run: RunRecord
    findings: list[Finding] = field(default_factory=list)
    """Faults of the record itself, found while it was read."""

    @property
    def is_directory(self) -> bool:
        """Whether the run made a result directory (else single files)."""
        return self.record.endswith(f"/{RECORD}") or self.record == RECORD

    @property
    def base(self) -> str:
        """Folder that the paths of the outputs start from, relative to the project."""
        return self.record.rpartition("/")[0] if self.is_directory else ""

    @property
    def name(self) -> str:
        """What the run made: the folder, or its first file."""
        return self.base if self.is_directory else self.run.output

    def files(self) -> list[str]:
        """Paths of the outputs, relative to the project."""
        return [f"{self.base}/{name}" if self.base else name for name in self.run.outputs]


_UNKNOWN: dict[str, Any] = {
    "attempt": "unknown",
    "command": [],
    "ending": "finished",
    "config": None,
    "seeds": {},
    "inputs": [],
    "parents": [],
    "manifest_sha256": None,
    "sources": {"sha256": NOTHING, "files": {}},
    "git": None,
    "packages": {"lock": None, "lock_sha256": None, "installed": {}, "installed_sha256": NOTHING},
    "machine": {
        "host": None, "system": "unknown", "architecture": "unknown", "cpu": "unknown", "cpus": 1, "gpus": [],
        "driver": None, "python": "unknown", "variables": {},
    },
    "scheduler": None,
    "usage": {
        "started": "", "ended": "", "wall_seconds": 0, "cpu_seconds": 0, "peak_memory_bytes": 0,
        "peak_child_memory_bytes": 0, "gpu_hours": 0,
    },
    "earlier_attempts": [],
    "notes": {},
}  # fmt: skip


def read_record(content: bytes, name: str) -> tuple[RunRecord | None, list[Finding]]:
    """Read a record of any version as far as it goes; None when not even its outputs can be read."""
    try:
        run = parse(content, name)
        if odd := _odd_path(run):
            return None, [Finding(name, "record", f"names a path that none can be: {odd!r}; make the result again")]
        return run, []
    except ValueError as error:
        fault = str(error).removeprefix(f"{name}: ")
    try:
        raw = json.loads(content)
        version = int(raw.get("schema_version", 0))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return None, [Finding(name, "record", "is damaged or cut short; make the result again")]
    known = {key: value for key, value in raw.items() if key in RunRecord.model_fields}
    lost = [key for key in _UNKNOWN if key not in raw]
    try:
        run = RunRecord.model_validate({**_UNKNOWN, **known, "schema_version": SCHEMA_VERSION})
    except ValidationError:
        return None, [Finding(name, "record", fault)]
    if odd := _odd_path(run):
        return None, [Finding(name, "record", f"names a path that none can be: {odd!r}; make the result again")]
    if version == SCHEMA_VERSION:
        return run, [Finding(name, "record", fault)]
    what = f"lacks {', '.join(lost)}" if lost else "is read as far as it is known"
    return run, [Finding(name, "note", f"a record of schema {version}, not {SCHEMA_VERSION}: {what}")]


def _odd_path(run: RunRecord) -> str | None:
    """A path in a record that no file can have."""
    paths = [run.output, *run.outputs, *([run.config.path] if run.config else [])]
    for item in run.inputs:
        paths += [item.path, *item.files]
    return next((path for path in paths if "\0" in path), None)


def walk_files(folder: Path) -> Iterator[Path]:
    """Files below a folder, sorted; links to folders are followed, each folder once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        for name in sorted(names):
            yield Path(place, name)


def is_record(path: str) -> bool:
    """Whether a file is a run record by its name."""
    name = path.rpartition("/")[2]
    return name == RECORD or name.endswith(f".{RECORD}")


class Project:
    """One project folder: its records, loaded once, and the digests of its files."""

    def __init__(self, folder: Path, hasher: Hasher | None = None) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100 (links are kept)
        self.hasher = hasher or Hasher()
        self.unreadable: dict[str, list[Finding]] = {}
        self._nodes: dict[str, Node | None] = {}
        self._owners: dict[str, Node | None] = {}
        self._records: dict[str, list[Node]] = {}

    def path(self, name: str) -> Path:
        """A path as records write it, on this disk."""
        return Path(name).expanduser() if name.startswith("~/") else self.folder / name

    def name(self, path: Path) -> str:
        """A path as records write it.

        Raises:
            ValueError: it is not inside of the project.
        """
        return Path(os.path.abspath(path)).relative_to(self.folder).as_posix()  # noqa: PTH100

    def scales(self) -> list[str]:
        """Scales of which any result or figure is here."""
        found = {path.name for top in ("results", "figures") for path in (self.folder / top).glob("*") if path.is_dir()}
        return sorted(name for name in found if not name.startswith("."))

    def records(self, scale: str) -> list[Node]:
        """All readable records of a scale, in the order of their paths; ``unreadable`` holds the others."""
        if scale in self._records:
            return self._records[scale]
        found = self._records[scale] = []
        for top in (f"results/{scale}", f"figures/{scale}"):
            for path in walk_files(self.folder / top):
                name = path.relative_to(self.folder).as_posix()
                if is_record(name) and "/.scratch/" not in name and (node := self.node(name)) is not None:
                    found.append(node)
        return found

    def node(self, record: str) -> Node | None:
        """The run of a record; None when the record is missing or unreadable."""
        if record not in self._nodes:
            self._nodes[record] = self._load(record)
        return self._nodes[record]

    def _load(self, record: str) -> Node | None:
        try:
            content = self.path(record).read_bytes()
        except OSError as error:
            self.unreadable[record] = [Finding(record, "missing", f"the record cannot be read ({error.strerror})")]
            return None
        run, findings = read_record(content, record)
        if run is None:
            self.unreadable[record] = findings
            return None
        return Node(record, run, findings)

    def owner(self, name: str) -> Node | None:
        """The run that made a file or folder: by a record above it, or among the records of single files."""
        if name not in self._owners:
            self._owners[name] = self._owner(name)
        return self._owners[name]

    def _owner(self, name: str) -> Node | None:
        for folder in [name, *[parent.as_posix() for parent in Path(name).parents][:5]]:
            record = f"{folder}/{RECORD}"
            if os.path.isfile(self.path(record)):  # noqa: PTH113 (false for a name that is too long)
                return self.node(record)
        top = Path(name)
        for above in (top.parent, top.parent.parent):
            for candidate in sorted(self.path((above / "records").as_posix()).glob(f"{top.stem}.*.{RECORD}")):
                node = self.node(self.name(candidate))
                if node is not None and name in node.files():
                    return node
        return None

    def parents(self, node: Node) -> list[tuple[Input, Node | None]]:
        """Each input of a run with the run that made it; None for a file that nothing made."""
        return [(item, None if item.path.startswith(("~", "/")) else self.owner(item.path)) for item in node.run.inputs]

    def ancestors(self, nodes: Sequence[Node]) -> list[Node]:
        """These runs and all they rest on, each once, what was made first first."""
        order: dict[str, Node] = {}
        entered: set[str] = set()
        waiting: list[tuple[Node, bool]] = [(node, False) for node in reversed(nodes)]
        while waiting:
            node, done = waiting.pop()
            if done:
                order.setdefault(node.record, node)
            elif node.record not in entered:
                entered.add(node.record)
                waiting.append((node, True))
                waiting.extend((parent, False) for _, parent in reversed(self.parents(node)) if parent is not None)
        return list(order.values())

    def expected(self, node: Node) -> list[Path]:
        """Every file that a check of this run reads."""
        paths = [self.path(name) for name in node.files()]
        paths += [self.path(node.record)]
        if node.is_directory:
            paths.append(self.path(f"{node.base}/{MANIFEST}"))
        if node.run.config is not None:
            paths.append(self.path(node.run.config.path))
        for item in node.run.inputs:
            inside = [f"{item.path}/{name}" for name in item.files] if item.kind == "directory" else [item.path]
            paths += [self.path(name) for name in inside]
        return paths


def without_timing(outputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs as the manifest holds them."""
    return {name: entry for name, entry in outputs.items() if name != TIMING}
