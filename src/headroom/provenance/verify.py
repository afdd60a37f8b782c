"""Everything that was recorded, read again: wrong bytes, missing and undeclared files, broken chains, absent runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headroom.provenance import attempts, checks, lock
from headroom.provenance.walk import Finding, Node, Project, is_record, walk_files

FILE_FAULTS = ("changed", "missing", "undeclared", "record", "chain", "lock")
RUN_FAULTS = ("absent", "failed", "extra")

UNRECORDED = ("config", "logs", ".scratch", ".pages", attempts.NAME, "report.html", "screen.txt", "audit")
"""What lies beside the results of a scale and is no result."""


@dataclass(frozen=True)
class Report:
    """What a verification found."""

    findings: tuple[Finding, ...]
    runs: int
    files: int
    read_bytes: int

    def faults(self, kinds: Sequence[str] = FILE_FAULTS) -> list[Finding]:
        """Findings of these kinds."""
        return [finding for finding in self.findings if finding.kind in kinds]

    @property
    def exit_code(self) -> int:
        """3: files, 4: runs; see ``headroom verify --help``."""
        if self.faults(FILE_FAULTS):
            return 3
        return 4 if self.faults(RUN_FAULTS) else 0


def verify(project: Project, nodes: Sequence[Node], scales: Sequence[str] = ()) -> Report:
    """Check runs, and of whole scales also what should be there and what should not."""
    paths = {path for node in nodes for path in project.expected(node)}
    for scale in scales:
        paths.update(project.path(name) for name in lock.of_scale(project.folder, scale))
    project.hasher.prefetch(paths)
    logs = {scale: checks.read_log(project, scale) for scale in {scale_of(node.record) for node in nodes} if scale}
    found: list[Finding] = []
    for node in nodes:
        found += checks.check(project, node, logs.get(scale_of(node.record)))
    found += checks.commits(project, nodes)
    for findings in project.unreadable.values():
        found += findings
    for scale in scales:
        found += [*_complete(project, scale), *_strays(project, scale), *_locked(project, scale)]
    found = [_not_released(project, finding) for finding in found]
    return Report(tuple(sorted(set(found))), len(nodes), len(paths), project.hasher.read_bytes)


def _not_released(project: Project, finding: Finding) -> Finding:
    """What a released record names and the release left out is no loss: a file, or the log of its attempts."""
    if finding.kind == "record" and finding.message.startswith(checks.UNKNOWN_ATTEMPT):
        entry = lock.of_scale(project.folder, scale_of(finding.path)).get(finding.path)
        if entry is not None and project.hasher.entry(project.path(finding.path)) == entry:
            return Finding(finding.path, "note", "is of the release, which has no attempts log")
        return finding
    if finding.kind != "missing" or finding.path in (released := lock.of_scale(project.folder, scale_of(finding.path))):
        return finding
    node = project.owner(finding.path)
    known = released.get(node.record) if node is not None else None
    if node is None or known is None or project.hasher.entry(project.path(node.record)) != known:
        return finding
    return Finding(finding.path, "note", "is not part of the release")


def recorded_scales(project: Project) -> list[str]:
    """Scales at which something was made, tried or released."""
    return [
        scale for scale in project.scales()
        if project.records(scale) or project.path(f"results/{scale}/{attempts.NAME}").exists()
        or lock.of_scale(project.folder, scale)
    ]  # fmt: skip


def verify_scale(project: Project, scale: str) -> Report:
    """Check everything of one scale."""
    return verify(project, project.records(scale), [scale])


def verify_path(project: Project, name: str) -> Report:
    """Check one result and all it rests on.

    Raises:
        LookupError: no record knows the path.
    """
    node = project.owner(name)
    if node is None and project.unreadable:
        return Report(tuple(item for found in project.unreadable.values() for item in found), 0, 0, 0)
    if node is None:
        raise LookupError(f"{name}: no record knows it")
    return verify(project, project.ancestors([node]))


def scale_of(record: str) -> str:
    """The scale of a path below results/ or figures/; empty elsewhere."""
    parts = record.split("/")
    return parts[1] if len(parts) > 2 and parts[0] in ("results", "figures") else ""


def job_folders(project: Path, scale: str) -> list[str]:
    """Result folders that the study of a scale makes, by its settings: one a settings file."""
    from headroom.config.resolve import SETTINGS_FILE, ConfigError, load_yaml, resolve

    try:
        settings = load_yaml(project / SETTINGS_FILE, SETTINGS_FILE)
        content = settings if isinstance(settings, dict) else {}
        files = resolve({**content, "scale": scale}, project).files
    except ConfigError as error:
        raise LookupError(str(error)) from error
    top = f"results/{scale}"
    return [f"{top}/{name.removeprefix(f'{top}/config/').removesuffix('.json')}" for name in files]


def study_of(project: Path, scale: str) -> str:
    """Which study a scale is of; the gate's where its file cannot be read."""
    from headroom.config.resolve import ConfigError, scale_content

    try:
        content = scale_content(project, scale)
    except ConfigError:
        return "gate"
    return str(content.get("study", "gate")) if isinstance(content, dict) else "gate"


def figure_files(project: Path, scale: str) -> list[str]:
    """Tables and drawings of the figures of a scale, and the table of claims."""
    from headroom.config.workflow import load_figures

    study = study_of(project, scale)
    names = load_figures(project, study)
    found = [path for name in names for path in (f"figures/{scale}/data/{name}.csv", f"figures/{scale}/{name}.pdf")]
    judged = (project / "workflow/rules/claims.smk").is_file()
    return [*found, f"figures/{scale}/data/claims.csv"] if judged else found


def _complete(project: Project, scale: str) -> Iterator[Finding]:
    """Jobs of the study that are absent or failed, runs that no table names."""
    if not (project.folder / "config.yaml").is_file():
        return
    try:
        folders = job_folders(project.folder, scale)
    except LookupError as error:
        yield Finding("config.yaml", "note", f"the study cannot be resolved, so absent runs are not known: {error}")
        return
    lines = list(attempts.read(project.path(f"results/{scale}/{attempts.NAME}")))
    endings: dict[str, str] = {}
    for line in lines:
        if line.get("event") == "damaged":
            yield Finding(f"results/{scale}/{attempts.NAME}", "record", f"a damaged line: {line['text'][:60]}")
        elif "output" in line:
            endings[str(line["output"])] = str(line.get("ending", "killed"))
    made = {node.name: node for node in project.records(scale)}
    released = lock.of_scale(project.folder, scale)
    for name in [*folders, *figure_files(project.folder, scale)]:
        if name in made:
            if made[name].run.ending == "diverged":
                yield Finding(name, "note", "diverged; its contrast counts as it is")
        elif name in endings:
            state = endings[name]
            if state in ("finished", "diverged"):
                text = "finished, and its result was removed"
            else:
                text = "has not ended: it runs now, or was killed" if state == "killed" else f"ended as {state}"
            yield Finding(name, "failed", f"the last attempt {text}; see headroom runs")
        elif released and not any(path.startswith(f"{name}/") or path == name for path in released):
            yield Finding(name, "note", "is not here and was not released")
        else:
            yield Finding(name, "absent", "the study has this job, and it was never started; run snakemake")
    for name in sorted(made):
        if name.startswith(f"results/{scale}/") and made[name].is_directory and name not in folders:
            yield Finding(name, "extra", "no job of the study makes it: its settings or its row were removed")


def _strays(project: Project, scale: str) -> Iterator[Finding]:
    """Files beside the results that no record names."""
    known = {name for node in project.records(scale) for name in node.files()}
    owned = tuple(f"{node.base}/" for node in project.records(scale) if node.is_directory)
    for top in (f"results/{scale}", f"figures/{scale}"):
        for path in walk_files(project.folder / top):
            name = path.relative_to(project.folder).as_posix()
            first = name.removeprefix(f"{top}/").split("/")[0]
            if first in UNRECORDED or name in known or is_record(name) or name.startswith(owned):
                continue
            if path.name != ".snakemake_timestamp":
                yield Finding(name, "undeclared", "no record names it")


def _locked(project: Project, scale: str) -> Iterator[Finding]:
    """Released files that are here, against results.lock."""
    for name, entry in lock.of_scale(project.folder, scale).items():
        if not project.path(name).exists() or is_record(name) or name.endswith(attempts.NAME):
            continue
        finding = checks.differs(project, name, entry)
        if finding is not None:
            yield Finding(name, "note", f"differs from the released file ({finding.message}): made here since")
