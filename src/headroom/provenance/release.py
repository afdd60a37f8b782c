"""One archive from which a stranger can start: tables, evaluations or checkpoints, with the records of all of them.

Only what a record names goes in, and what is written about jobs (settings, records, the attempts log); nothing else
that lies about, and no text that holds a home folder or a key. Equal results give an archive of equal bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headroom.files import atomic
from headroom.provenance import attempts, lock, verify
from headroom.provenance.digest import CHUNK, sha256_file
from headroom.provenance.manifest import MANIFEST, FileEntry
from headroom.provenance.project import making
from headroom.provenance.walk import Project, is_record, walk_files

TABLES = ("contrast", "mechanism", "reading", "failures", "filmstrip", "dark_room", "select", "overlap")
"""Result folders that the figures and claims are computed from, small enough to go into every release."""

BELOW = {
    "checkpoints": ("demonstrations", "overlap", "sft", "grpo"),
    "evals": ("demonstrations", "overlap", "sft", "grpo", "select", "reading", "evaluate", "probe", "rank", "graft"),
}
"""Tier -> result folders that its rules take and do not make."""

LEVELS = ("tables", "evals", "checkpoints")
"""What a release holds: enough to start at the tier of that name."""

WEIGHTS = frozenset({"checkpoint", "adapter"})
"""Folders of a training job, results/SCALE/STAGE/NAME/FOLDER, that its rule declares whole."""

MEMBER = "results.lock"
EPOCH = 1783987200
"""Time of every file of an archive: the same as SOURCE_DATE_EPOCH of the rules."""

LISTING_LIMIT = 256 << 20
"""Bytes of an archive's own list, which is read whole: a million files."""

_UNREADABLE = (tarfile.TarError, EOFError, OSError, zlib.error, MemoryError, OverflowError)
"""What a damaged archive, or one that lies about its sizes, raises while it is read."""

_BINARY = (".parquet", ".safetensors", ".png", ".pdf", ".gz")
_LEAKS = {
    "a home folder": re.compile(r"/(?:home|Users)/[^/\s\"']+/|/root/"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "an access token": re.compile(
        r"\b(?:AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{32,})"
    ),
}


@dataclass(frozen=True)
class Release:
    """What of a release a tier takes: the archive, single files with their digests, whole checkpoint folders."""

    archive: str | None = None
    files: dict[str, FileEntry] = field(default_factory=dict)
    folders: tuple[str, ...] = ()


def leaks(name: str, content: bytes) -> list[str]:
    """What a text must not hold and does, in words; empty for a file that may be published."""
    if name.endswith(_BINARY):
        return []
    text = content.decode("utf-8", "replace")
    diff = ""
    if is_record(name):  # somebody's uncommitted source may speak of homes that are nobody's
        try:
            record = json.loads(text)
            diff = (record.get("git") or {}).pop("diff", None) or ""
            text = json.dumps(record, ensure_ascii=False)
        except (ValueError, AttributeError):
            diff = ""
    found = {what for what, pattern in _LEAKS.items() if pattern.search(text)}
    found |= {what for what, pattern in _LEAKS.items() if what != "a home folder" and pattern.search(diff)}
    home = str(Path.home())
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    if len(home) > 1 and f"{home}/" in text + diff:
        found.add("a home folder")
    if len(user) > 4 and re.search(rf"\b{re.escape(user)}\b", text + diff):
        found.add("a user name")
    return sorted(found)


def files(project: Project, scale: str, level: str) -> list[str]:
    """Paths that a release of this level holds, sorted."""
    found = {f"results/{scale}/{attempts.NAME}"}
    config = walk_files(project.folder / f"results/{scale}/config")
    found.update(project.name(path) for path in config if path.suffix == ".json")  # lists of sources: each start's own
    for node in project.records(scale):
        found.add(node.record)
        if node.is_directory:
            found.add(f"{node.base}/{MANIFEST}")
        found.update(name for name in node.files() if _belongs(name, level))
    return sorted(name for name in found if lock.safe(name) and project.path(name).is_file())


def _belongs(name: str, level: str) -> bool:
    parts = name.split("/")
    if level == "checkpoints" or parts[0] == "figures" or parts[2] in TABLES:
        # Episodes and pictures are for the next level: a drawing is made again from its table in seconds.
        return level != "tables" or not name.endswith((".parquet", ".png", ".pdf"))
    return level == "evals" and parts[2] != "demonstrations" and WEIGHTS.isdisjoint(parts)


def pack(project: Project, scale: str, level: str, archive: Path) -> dict[str, FileEntry]:
    """Check everything, then write the archive and the scale's part of ``results.lock``.

    Raises:
        ValueError: a file is not as recorded, or holds what must not be published; the message names it.
    """
    report = verify.verify_scale(project, scale)
    if faults := report.faults():
        raise ValueError(f"{faults[0].line()}; a release is packed from results that are as recorded")
    names = files(project, scale, level)
    if not any(is_record(name) for name in names):
        raise ValueError(f"nothing was made at scale {scale} yet; type: {making(scale)}")
    entries: dict[str, FileEntry] = {}
    for name in names:
        if not name.endswith(_BINARY) and (found := leaks(name, project.path(name).read_bytes())):
            raise ValueError(f"{name}: holds {found[0]}; nothing was packed")
        entries[name] = project.hasher.entry(project.path(name))
    with atomic(archive) as part, part.open("wb") as raw:
        _write(raw, project, entries)
    listed = lock.of_scale(project.folder, scale)
    if any(listed.get(name) != entry for name, entry in entries.items()):  # else: a part of what is released already
        lock.save(project.folder, scale, entries)
    return entries


def _write(raw: IO[bytes], project: Project, entries: dict[str, FileEntry]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        listing = lock.dump(entries).encode("utf-8")
        tar.addfile(_member(MEMBER, len(listing)), io.BytesIO(listing))
        for name, entry in entries.items():
            with project.path(name).open("rb") as stream:
                tar.addfile(_member(name, entry.size), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, EPOCH, 0o644
    return info


def read(archive: Path) -> Iterator[tuple[str, FileEntry, IO[bytes]]]:
    """Files of an archive with a stream of each; what the archive holds is what its own list says, no more, no less.

    Raises:
        ValueError: the archive is damaged, or holds what no release does.
    """
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            first = tar.next()
            if first is None or first.name != MEMBER or not first.isreg():
                raise ValueError(f"{archive}: is not a release of headroom")
            listed = _listing(archive, tar, first)
            while (info := tar.next()) is not None:
                stream = tar.extractfile(info) if info.isreg() and info.name in listed else None
                if stream is None:
                    raise ValueError(f"{archive}: holds {info.name}, which its list does not")
                yield info.name, listed.pop(info.name), stream
            if listed:
                raise ValueError(f"{archive}: lacks {min(listed)}; fetch the archive again")
    except _UNREADABLE as error:
        raise ValueError(f"{archive}: cannot be read ({error}); fetch the archive again") from error


def _copy(archive: Path, name: str, entry: FileEntry, stream: IO[bytes], out: IO[bytes] | None) -> None:
    """Read one file to its end, in pieces, and hold it to its digest."""
    state = hashlib.sha256()
    while True:
        try:
            chunk = stream.read(CHUNK)
        except _UNREADABLE as error:
            raise ValueError(f"{archive}: cannot be read ({error}); fetch the archive again") from error
        if not chunk:
            break
        state.update(chunk)
        if out is not None:
            out.write(chunk)
    if state.hexdigest() != entry.sha256:
        raise ValueError(f"{archive}: {name} is damaged; fetch the archive again")


def contents(archive: Path) -> dict[str, FileEntry]:
    """What an archive says that it holds: its first member, without reading the rest.

    Raises:
        ValueError: it is not a release.
    """
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            first = tar.next()
            if first is not None and first.name == MEMBER and first.isreg():
                return _listing(archive, tar, first)
    except _UNREADABLE as error:
        raise ValueError(f"{archive}: cannot be read ({error}); fetch the archive again") from error
    raise ValueError(f"{archive}: is not a release of headroom")


def _listing(archive: Path, tar: tarfile.TarFile, info: tarfile.TarInfo) -> dict[str, FileEntry]:
    if not 0 <= info.size <= LISTING_LIMIT:
        raise ValueError(f"{archive}: its list is {info.size} bytes long; it is not a release of headroom")
    stream = tar.extractfile(info)
    return lock.parse((stream.read() if stream else b"").decode("utf-8", "replace"), MEMBER)


def unpack(folder: Path, archive: Path, *, force: bool = False, only: tuple[str, ...] | None = None) -> list[str]:
    """Write the files of an archive into a project; ``only`` these paths and what lies below them.

    Raises:
        ValueError: the archive is damaged, is not the one that the committed ``results.lock`` lists, or a file is in
            the way that differs and ``force`` was not given. Nothing was written then.
    """
    committed = lock.load(folder / lock.NAME)
    chosen: set[str] = set()
    for name, entry, stream in read(archive):
        _copy(archive, name, entry, stream, None)
        if only is not None and not any(name == wanted or name.startswith(f"{wanted}/") for wanted in only):
            continue
        if name in committed and committed[name] != entry:
            raise ValueError(f"{archive}: {name} is not the released file that {lock.NAME} lists")
        place = folder / name
        if place.is_dir():
            raise ValueError(f"{name}: a folder is in its place; move it away")
        if place.is_file() and not force and sha256_file(place) != entry.sha256:
            raise ValueError(f"{name}: is here and differs from the release; move it away, or say --force")
        chosen.add(name)
    for name, entry, stream in read(archive):
        if name in chosen:
            with atomic(folder / name) as part:
                with part.open("wb") as out:
                    _copy(archive, name, entry, stream, out)
                os.utime(part, (EPOCH, EPOCH))
    return sorted(chosen)


def find(folder: Path, scale: str) -> str | None:
    """The archive of a scale: $HEADROOM_RELEASE, the one in dist/, or the small one that is committed."""
    named = os.environ.get("HEADROOM_RELEASE")
    places = [f"dist/headroom-{scale}.tar.gz", f"workflow/data/releases/headroom-{scale}.tar.gz"]
    return next((place for place in [*([named] if named else []), *places] if (folder / place).is_file()), None)


def for_tier(folder: Path, scale: str, tier: str) -> Release:
    """What the rules of a tier take from the archive: what ``results.lock`` lists too; nothing at tier scratch.

    Raises:
        ValueError: the archive or the lock is damaged.
    """
    archive = find(folder, scale)
    if tier == "scratch" or archive is None:
        return Release()
    held = contents(folder / archive)
    prefix = f"results/{scale}/"
    taken: dict[str, FileEntry] = {}
    folders: set[str] = set()
    for name, entry in lock.of_scale(folder, scale).items():
        if held.get(name) != entry:
            continue
        parts = name.split("/")
        inside = (
            parts[2] in BELOW[tier] if tier in BELOW else name.endswith(".csv") and not name.endswith("/claims.csv")
        )
        if tier == "tables":
            inside = inside or parts[2] in TABLES
        if not inside or parts[2] == "config" or name.endswith("/deviations.csv"):
            continue
        if not WEIGHTS.isdisjoint(parts):
            folders.add("/".join(parts[:5]))
        elif name.startswith(prefix) or parts[0] == "figures":
            taken[name] = entry
    return Release(archive, taken, tuple(sorted(folders)))
