"""What one record claims, held against everything that can be computed again. A record is never taken at its word."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from headroom.provenance import attempts, closure, manifest
from headroom.provenance.digest import sha256_bytes, sha256_text
from headroom.provenance.environment import DIFF_LIMIT, installed_digest
from headroom.provenance.manifest import MANIFEST, NOT_OURS, RECORD
from headroom.provenance.schema import Input
from headroom.provenance.walk import Finding, Node, Project, walk_files, without_timing

UNKNOWN_ATTEMPT = "the attempts log knows no attempt"
SKEW = timedelta(seconds=2)
"""Clocks of two machines may differ by this much without a word."""

Log = dict[str, dict[str, object]]
"""Attempt -> what the log says at its end."""


def read_log(project: Project, scale: str) -> Log | None:
    """Attempts that ended, by id; None when there is no log."""
    path = project.path(f"results/{scale}/{attempts.NAME}")
    if not path.is_file():
        return None
    found: Log = {}
    for line in attempts.read(path):
        if "attempt" in line:
            found.setdefault(str(line["attempt"]), {}).update(line)
    return found


def check(project: Project, node: Node, log: Log | None) -> list[Finding]:
    """All findings of one run, sorted by path."""
    found = [
        *node.findings,
        *_outputs(project, node),
        *_undeclared(project, node),
        *_manifest(project, node),
        *_arithmetic(project, node),
        *_inputs(project, node),
        *_parents(project, node),
        *_log(project, node, log),
        *_clock(project, node),
        *_remembered(node),
    ]
    return sorted(set(found))


def differs(project: Project, name: str, expected: manifest.FileEntry) -> Finding | None:
    """Compare one file on the disk with what was recorded of it."""
    try:
        actual = project.hasher.entry(project.path(name))
    except OSError as error:
        return Finding(name, "missing", error.strerror or "cannot be read")
    if actual.size != expected.size:
        return Finding(name, "changed", f"has {actual.size} bytes, {expected.size} were recorded")
    if actual.sha256 != expected.sha256:
        return Finding(name, "changed", f"is {actual.sha256[:12]}, {expected.sha256[:12]} was recorded")
    return None


def _outputs(project: Project, node: Node) -> Iterator[Finding]:
    for name, entry in zip(node.files(), node.run.outputs.values(), strict=True):
        if (finding := differs(project, name, entry)) is not None:
            yield finding
    if node.is_directory and node.run.output != node.base:
        yield Finding(node.record, "chain", f"is the record of {node.run.output}: the folder was moved or copied")


def _undeclared(project: Project, node: Node) -> Iterator[Finding]:
    if not node.is_directory:
        return
    declared = {*node.run.outputs, MANIFEST, RECORD}
    for path in walk_files(project.path(node.base)):
        inside = path.relative_to(project.path(node.base)).as_posix()
        if inside not in declared and path.name != NOT_OURS:
            yield Finding(f"{node.base}/{inside}", "undeclared", "no record names it")


def _manifest(project: Project, node: Node) -> Iterator[Finding]:
    if not node.is_directory:
        return
    name = f"{node.base}/{MANIFEST}"
    text = manifest.dump(without_timing(node.run.outputs))
    if node.run.manifest_sha256 != sha256_text(text):
        yield Finding(node.record, "record", "its outputs do not have the manifest digest that it names")
    expected = manifest.FileEntry(sha256=sha256_text(text), size=len(text.encode("utf-8")))
    if (finding := differs(project, name, expected)) is not None:
        yield Finding(name, finding.kind, f"is not the manifest of what {node.record} lists")


def _arithmetic(project: Project, node: Node) -> Iterator[Finding]:
    """Digests inside the record that follow from other parts of it."""
    run = node.run
    if run.config is not None and not _config_agrees(project, node):
        yield Finding(node.record, "record", f"the settings it shows are not {run.config.path} as digested")
    if run.sources.files and closure.digest(run.sources.files) != run.sources.sha256:
        yield Finding(node.record, "record", "the digest of its sources does not follow from their list")
    if run.packages.installed and installed_digest(run.packages.installed) != run.packages.installed_sha256:
        yield Finding(node.record, "record", "the digest of its packages does not follow from their list")
    for item in run.inputs:
        size = sum(entry.size for entry in item.files.values())
        if item.kind == "directory" and (item.sha256, item.size) != (manifest.digest(item.files), size):
            yield Finding(node.record, "record", f"the digest of input {item.name} does not follow from its files")


def _remembered(node: Node) -> Iterator[Finding]:
    """Observations of other jobs that this one was given, and that the browser, asked all the same, did not confirm."""
    world = node.run.notes.get("world")
    wrong = world.get("remembered_wrongly", 0) if isinstance(world, dict) else 0
    if wrong:
        message = f"{wrong} remembered observations were not what the browser answered; run it again without them"
        yield Finding(node.record, "record", message)


def _config_agrees(project: Project, node: Node) -> bool:
    config = node.run.config
    assert config is not None
    text = json.dumps(config.content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if sha256_text(text) == config.sha256:
        return True
    try:  # settings written by hand have a form of their own
        content = project.path(config.path).read_bytes()
        return sha256_bytes(content) == config.sha256 and json.loads(content) == config.content
    except (OSError, ValueError):
        return False


def _inputs(project: Project, node: Node) -> Iterator[Finding]:
    """What the run read, against what its maker recorded, or against the disk where nothing made it."""
    for item, parent in project.parents(node):
        outside = item.path.startswith(("~", "/"))
        for name, entry in _entries(item):
            if parent is not None:
                known = dict(zip(parent.files(), parent.run.outputs.values(), strict=True)).get(name)
                if name.endswith((f"/{MANIFEST}", f"/{RECORD}")):
                    continue
                if known is None:
                    yield Finding(node.name, "chain", f"was made from {name}, which {parent.record} does not list")
                elif known != entry:
                    yield Finding(node.name, "chain", f"was made from an earlier {name}; run snakemake")
            elif outside and not project.path(name).exists():
                yield Finding(name, "note", f"lies outside of the project and is not here; {node.name} read it")
            elif (finding := differs(project, name, entry)) is not None:
                yield Finding(name, finding.kind, f"{finding.message}, when {node.name} read it")
    config = node.run.config
    if config is not None and project.path(config.path).is_file():
        now = project.hasher.entry(project.path(config.path))
        if now.sha256 != config.sha256:
            yield Finding(node.name, "chain", f"was made with other settings than {config.path} holds; run snakemake")


def _entries(item: Input) -> Iterator[tuple[str, manifest.FileEntry]]:
    if item.kind == "file":
        yield item.path, manifest.FileEntry(sha256=item.sha256, size=item.size)
    for name, entry in item.files.items():
        yield f"{item.path}/{name}", entry


def _parents(project: Project, node: Node) -> Iterator[Finding]:
    made_by = {parent.record: parent for _, parent in project.parents(node) if parent is not None}
    named = {parent.record: parent for parent in node.run.parents}
    for record in sorted(named.keys() | made_by.keys()):
        parent = project.node(record)
        if parent is None:
            kept = project.unreadable.get(record, [])
            yield Finding(record, "missing" if not kept else kept[0].kind, f"{node.name} rests on this record")
        elif record not in named:
            yield Finding(node.record, "record", f"does not name {record}, which made one of its inputs")
        elif named[record].manifest_sha256 != parent.run.manifest_sha256:
            yield Finding(node.name, "chain", f"was made from an earlier {parent.name}; run snakemake")
        elif named[record].attempt != parent.run.attempt:
            yield Finding(node.name, "note", f"{parent.name} was made again since, with the same bytes")


def _log(project: Project, node: Node, log: Log | None) -> Iterator[Finding]:
    """The log says the same of this attempt, its digest of the whole record included."""
    if log is None:
        return
    line = log.get(node.run.attempt)
    if line is None:
        yield Finding(node.record, "record", f"{UNKNOWN_ATTEMPT} {node.run.attempt}")
        return
    config = node.run.config.sha256 if node.run.config else None
    same = {
        "ending": node.run.ending, "stage": node.run.stage, "output": node.run.output,
        "started": node.run.usage.started, "config_sha256": config, "sources_sha256": node.run.sources.sha256,
    }  # fmt: skip
    for key, value in same.items():
        if key in line and line[key] != value:
            yield Finding(node.record, "record", f"{key} is {value}, the attempts log has {line[key]}")
    digest = line.get("record_sha256")
    if digest is not None and project.hasher.entry(project.path(node.record)).sha256 != digest:
        yield Finding(node.record, "changed", "is not the record that the job wrote, by the digest in the attempts log")


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _clock(project: Project, node: Node) -> Iterator[Finding]:
    start, end = _time(node.run.usage.started), _time(node.run.usage.ended)
    if start is None or end is None:
        return
    if start - end > SKEW:
        yield Finding(node.record, "note", "ends before it starts: the clock was set while it ran")
    read = {parent.record: parent.attempt for parent in node.run.parents}
    for _, parent in project.parents(node):
        if parent is None or read.get(parent.record) != parent.run.attempt:
            continue
        made = _time(parent.run.usage.ended)
        if made is not None and made - start > SKEW:
            text = f"starts before its input {parent.name} was finished: the clocks of their machines differ"
            yield Finding(node.record, "note", text)


def commits(project: Project, nodes: Sequence[Node]) -> list[Finding]:
    """Recorded sources against the commits that records name; files that the record's own diff touches are left out."""
    asked: dict[tuple[str, str], list[tuple[Node, str]]] = {}
    for node in nodes:
        git = node.run.git
        if git is None or git.diff_truncated or len(git.diff or "") >= DIFF_LIMIT:
            continue
        touched = {line[6:] for line in (git.diff or "").splitlines() if line.startswith(("+++ b/", "--- a/"))}
        for name, digest in node.run.sources.files.items():
            if name not in touched:
                asked.setdefault((git.commit, name), []).append((node, digest))
    if not asked:
        return []
    contents = _blobs(project.folder, [f"{commit}:{name}" for commit, name in asked])
    found = []
    for (commit, name), content in zip(asked, contents, strict=False):
        for node, digest in asked[commit, name]:
            if content is not None and sha256_bytes(content) != digest:
                found.append(
                    Finding(node.record, "record", f"{name} is not that of commit {commit[:10]} that it names")
                )
    return sorted(set(found))


def _blobs(folder: Path, names: Sequence[str]) -> list[bytes | None]:
    """Contents of git objects; None for what the repository does not have."""
    try:
        done = subprocess.run(
            ["git", "cat-file", "--batch"],  # noqa: S607
            cwd=folder,
            input="".join(f"{name}\n" for name in names).encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    found: list[bytes | None] = []
    rest = memoryview(done.stdout)
    for _ in names:
        head = bytes(rest[:400]).partition(b"\n")[0]
        parts = head.split()
        if len(parts) != 3 or parts[1] != b"blob":
            found.append(None)
            rest = rest[len(head) + 1 :]
            continue
        size = int(parts[2])
        start = len(head) + 1
        found.append(bytes(rest[start : start + size]))
        rest = rest[start + size + 1 :]
    return found
