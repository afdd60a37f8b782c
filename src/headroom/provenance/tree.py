"""The lineage of a result as a tree for a terminal: a run once in full, its equals beside it as one line."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.provenance import closure
from headroom.provenance.audit import Audit, sources_of_pages
from headroom.provenance.walk import Finding, Node

STAGES = {
    "train.demonstrations": "demonstrations",
    "train.sft": "supervised policy",
    "train.grpo": "GRPO run",
    "measure.select": "choice of tasks",
    "measure.evaluate": "evaluation",
    "measure.contrast": "contrasts",
}
MANY = 4
"""Siblings of one stage from which on only the first is shown in full."""

NOTES = 6
"""Notes that the tree shows; all of them are in the JSON."""


def render(audit: Audit, *, full: bool = False) -> str:
    """The whole tree as text."""
    return "\n".join(_Tree(audit, full).lines()) + "\n"


class _Tree:
    def __init__(self, audit: Audit, full: bool) -> None:
        self.audit, self.full = audit, full
        self.shown: set[str] = set()

    def lines(self) -> Iterator[str]:
        audit = self.audit
        yield audit.target
        if audit.row is not None:
            yield f"row {audit.row.number} of {audit.row.table}"
            yield from (f"  {key} = {value}" for key, value in audit.row.cells.items())
            policies = ", ".join(audit.row.policies)
            yield f"  rests on {policies}" if policies else "  names no policy: it rests on everything below"
        yield from self._node(audit.start, "", "")
        yield from self._pages()
        yield from self._end()

    def _node(self, node: Node, first: str, rest: str) -> Iterator[str]:
        mark = self._mark(node)
        if node.record in self.shown:
            yield f"{first}{mark} {node.name}  (above)"
            return
        self.shown.add(node.record)
        head, *more = list(_describe(self.audit, node))
        yield f"{first}{mark} {head}"
        parents = self.audit.parents(node)
        bar = "│ " if parents else "  "
        yield from (f"{rest}{bar}  {line}" for line in more)
        yield from (f"{rest}{bar}  ✗ {finding.line()}" for finding in self.audit.faults(node))
        groups = list(self._groups(parents))
        for number, (shown, hidden) in enumerate(groups):
            last = number == len(groups) - 1
            yield from self._node(shown, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
            if hidden:
                bad = [item for item in hidden if self.audit.faults(item)]
                state = "all as recorded" if not bad else f"{len(bad)} not as recorded"
                names = ", ".join(item.name.rpartition("/")[2] for item in hidden)
                yield f"{rest}{'   ' if last else '│  '}   and {len(hidden)} like it, {state}: {names}"

    def _groups(self, parents: list[Node]) -> Iterator[tuple[Node, list[Node]]]:
        """Parents to show, each with the ones it stands for: many of one stage are one line, faulty ones never hide."""
        by_stage: dict[str, list[Node]] = {}
        for node in parents:
            by_stage.setdefault(node.run.stage, []).append(node)
        for members in by_stage.values():
            # The evaluation of the policy that everything is compared with explains more than the first by name.
            if self.full or len(members) < MANY:
                yield from ((member, []) for member in members)
                continue
            faulty = [item for item in members if self.audit.faults(item)]
            sound = [item for item in members if not self.audit.faults(item)]
            shown = next((item for item in sound if self._deep(item)), sound[0]) if sound else None
            yield from ((item, []) for item in faulty)
            if shown is not None:
                hidden = [item for item in sound if item is not shown]
                yield shown, hidden

    def _deep(self, node: Node) -> bool:
        return any(parent.run.stage == "train.grpo" for parent in self.audit.parents(node))

    def _mark(self, node: Node) -> str:
        return "✗" if self.audit.faults(node) else "✓"

    def _pages(self) -> Iterator[str]:
        pages = sources_of_pages(self.audit.nodes)
        worlds = {closure.world_of(node.run.config.content) for node in self.audit.nodes if node.run.config is not None}
        played = [name for kind, names in closure.ENGINES.items() if kind in worlds for name in names]
        versions = {
            f"{name} {node.run.packages.installed[name]}"
            for node in self.audit.nodes
            for name in (*played, "torch")
            if name in node.run.packages.installed
        }
        machines = {
            f"{node.run.machine.cpu}{' + ' + ', '.join(node.run.machine.gpus) if node.run.machine.gpus else ''}"
            for node in self.audit.nodes
        }
        commits = {_commit(node) for node in self.audit.nodes}
        if pages:
            yield f"pages     {len(pages)} source files below src/headroom/worlds and the seed table"
        yield f"packages  {', '.join(sorted(versions)) or 'not recorded'}; all of them: --json"
        yield f"code      {', '.join(sorted(commits))}"
        yield f"machine   {', '.join(sorted(machines))}"
        origins = [self.audit.origin(node) for node in self.audit.nodes]
        counted = sorted({origin: origins.count(origin) for origin in origins}.items())
        yield "origin    " + ", ".join(f"{count} {origin}" for origin, count in counted)

    def _end(self) -> Iterator[str]:
        faults = self.audit.faults()
        own = {finding for node in self.audit.nodes for finding in self.audit.faults(node)}
        other: list[Finding] = [finding for finding in faults if finding not in own]
        yield from (f"✗ {finding.line()}" for finding in other)
        notes = [item for item in self.audit.findings if item.kind == "note"]
        yield from (f"note: {item.path}: {item.message}" for item in notes[:NOTES])
        if len(notes) > NOTES:
            yield f"and {len(notes) - NOTES} more notes: --json"
        yield (
            f"{len(self.audit.nodes)} runs, every file of them read again: all as recorded"
            if not faults
            else f"{len(self.audit.nodes)} runs; {len(faults)} faults, the first: {faults[0].line()}"
        )


def _commit(node: Node) -> str:
    git = node.run.git
    if git is None:
        return "no repository"
    return f"commit {git.commit[:10]}" + (f" + uncommitted changes {(git.diff_sha256 or '')[:10]}" if git.dirty else "")


def _describe(audit: Audit, node: Node) -> Iterator[str]:
    """What a reader wants to know of one run: what, when, by what code, with which settings and seeds."""
    run = node.run
    digest = run.manifest_sha256 or next(iter(run.outputs.values())).sha256
    origin = audit.origin(node)
    note = "" if origin == "made here" else f"  [{origin}]"
    yield f"{node.name}  {digest[:12]}{note}"
    what = STAGES.get(run.stage, run.stage.rpartition(".")[2].replace("_", " "))
    if run.stage.startswith("present."):
        what = "numbers of the figure" if node.name.endswith(".csv") else "drawing"
    ending = "" if run.ending == "finished" else f", {run.ending}"
    when = f"{run.usage.started[:16]}, {run.usage.wall_seconds:.1f} s"
    yield f"{what}{ending}: headroom.{run.stage}, {when}, {_commit(node)}"
    if run.config is not None:
        yield f"settings {run.config.path} {run.config.sha256[:12]}"
    if run.seeds:
        yield "seeds    " + ", ".join(f"{name} {seed}" for name, seed in sorted(run.seeds.items()))
    if run.earlier_attempts:
        yield "before   " + ", ".join(f"{item.started[:16]} {item.ending}" for item in run.earlier_attempts)
    yield f"sources  {len(run.sources.files)} files {run.sources.sha256[:12]}"
    yield from _free_inputs(audit, node)


def _free_inputs(audit: Audit, node: Node) -> Iterator[str]:
    for item, parent in audit.project.parents(node):
        if parent is None:
            yield f"reads    {item.path}  {item.sha256[:12]}"
