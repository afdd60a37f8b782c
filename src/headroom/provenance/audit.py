"""From any number to what made it: figure, rows, evaluation, checkpoint, GRPO run, SFT, demonstrations, pages, code.

Every file on the way is hashed and held against the records while the walk goes on.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from headroom.provenance import lock
from headroom.provenance.verify import FILE_FAULTS, scale_of, verify
from headroom.provenance.walk import Finding, Node, Project

Origin = Literal["released", "made here", "made here, equal to the release", "made here, differs from the release"]

PER_POLICY = ("evaluate", "grpo", "sft", "rank", "graft")
"""Folders of a scale that hold one result a policy."""


@dataclass(frozen=True)
class Row:
    """One plotted number: a line of the table behind a figure."""

    table: str
    number: int
    cells: dict[str, str]
    policies: tuple[str, ...]
    """Policies that the line names, with the ones that these started from; empty when it names none."""


class Audit:
    """The lineage of one target.

    Args:
        project: Where the records are.
        target: Path of a result, relative to the project.
        row: Line of the target's table, from 1; narrows the lineage to the policies that it names.

    Raises:
        LookupError: no record knows the target, or there is no such row.
    """

    def __init__(self, project: Project, target: str, row: int | None = None) -> None:
        self.project, self.target = project, target
        start = project.owner(target)
        if start is None:
            raise LookupError(f"{target}: no record knows it{unread(project) or _hint(project, target)}")
        self.start = start
        self.row = self._row(row) if row is not None else None

    @cached_property
    def nodes(self) -> list[Node]:
        """The runs of this lineage, what was made first first."""
        order: dict[str, Node] = {}
        entered: set[str] = set()  # an edited record may name what was made from it

        def visit(node: Node) -> None:
            entered.add(node.record)
            for parent in self.parents(node):
                if parent.record not in entered:
                    visit(parent)
            order.setdefault(node.record, node)

        visit(self.start)
        return list(order.values())

    def parents(self, node: Node) -> list[Node]:
        """The runs that made the inputs of one, each once, those that the row does not name left out."""
        found: dict[str, Node] = {}
        for _, parent in self.project.parents(node):
            if parent is not None and self._wanted(parent):
                found.setdefault(parent.record, parent)
        return list(found.values())

    def _wanted(self, node: Node) -> bool:
        parts = node.name.split("/")
        if self.row is None or not self.row.policies or len(parts) < 4 or parts[2] not in PER_POLICY:
            return True
        return parts[2] == "sft" or parts[3] in self.row.policies

    @cached_property
    def findings(self) -> list[Finding]:
        """What is not as recorded anywhere on the way."""
        wanted = {node.name for node in self.nodes}
        found = verify(self.project, self.nodes).findings
        return [finding for finding in found if not self.row or self._concerns(finding, wanted)]

    def _concerns(self, finding: Finding, wanted: set[str]) -> bool:
        return any(finding.path.startswith(name) for name in wanted) or self.project.owner(finding.path) is None

    def faults(self, node: Node | None = None) -> list[Finding]:
        """Findings that are faults: of one run, or all."""
        found = [finding for finding in self.findings if finding.kind in FILE_FAULTS]
        if node is None:
            return found
        names = (node.record, node.name, *node.files())
        return [
            finding for finding in found if finding.path in names or finding.path.startswith(f"{node.base or '?'}/")
        ]

    def origin(self, node: Node) -> Origin:
        """Whether a result was released or made here: by the bytes of its record and of its files."""
        released = lock.of_scale(self.project.folder, scale_of(node.record))
        entry = released.get(node.record)
        if entry is None:
            return "made here"
        if self.project.hasher.entry(self.project.path(node.record)) == entry:
            return "released"
        outputs = zip(node.files(), node.run.outputs.values(), strict=True)
        equal = all(released[name] == found for name, found in outputs if name in released)
        return "made here, equal to the release" if equal else "made here, differs from the release"

    def _row(self, number: int) -> Row:
        table = self._table()
        with self.project.path(table).open(encoding="utf-8", newline="") as stream:
            lines = list(csv.DictReader(stream))
        if not 1 <= number <= len(lines):
            raise LookupError(f"{table}: has rows 1 to {len(lines)}, not {number}")
        cells = {key: value or "" for key, value in lines[number - 1].items() if key}
        named = self._arm(cells["arm"]) if cells.get("arm") and not cells.get("run") else set(cells.values())
        return Row(table, number, cells, tuple(sorted(self._policies(named))))

    def _arm(self, arm: str) -> set[str]:
        """The runs of an arm of the dark room, by the settings of the job that brought its runs together."""
        node = self.project.owner(f"results/{scale_of(self.start.record)}/dark_room/dark_room.csv")
        content = node.run.config.content if node is not None and node.run.config is not None else None
        arms = content.get("arms") if isinstance(content, dict) else None
        of_run = arms.items() if isinstance(arms, dict) else ()
        return {run for run, what in of_run if isinstance(what, dict) and what.get("arm") == arm}

    def _table(self) -> str:
        if self.target.endswith(".csv"):
            return self.target
        tables = [item.path for item in self.start.run.inputs if item.path.endswith(".csv")]
        tables += [name for name in self.start.files() if name.endswith(".csv")]
        if len(tables) != 1:
            raise LookupError(f"{self.target}: --row needs one table; give one of {', '.join(tables) or 'the CSVs'}")
        return tables[0]

    def _policies(self, cells: Iterable[str]) -> set[str]:
        """Policies among the cells, and the supervised ones that they started from and are compared with."""
        folder = self.project.path(f"results/{scale_of(self.start.record)}")
        known = {path.name for top in PER_POLICY for path in (folder / top).glob("*")}
        named = set(cells) & known
        if not named:
            return set()
        found = {*named, "sft"}
        for policy in sorted(named):
            node = self.project.owner(f"results/{folder.name}/grpo/{policy}/steps.parquet")
            for _, parent in self.project.parents(node) if node is not None else []:
                if parent is not None and parent.run.stage == "train.sft":
                    found.add(parent.name.rpartition("/")[2])
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything, for a machine."""
        return {
            "target": self.target,
            "row": vars(self.row) if self.row else None,
            "as_recorded": not self.faults(),
            "findings": [vars(finding) for finding in self.findings],
            "runs": [
                {
                    **node.run.model_dump(mode="json", exclude={"git": {"diff"}}),
                    "name": node.name,
                    "record": node.record,
                    "origin": self.origin(node),
                    "parents": [parent.record for parent in self.parents(node)],
                    "as_recorded": not self.faults(node),
                }
                for node in self.nodes
            ],
        }


def unread(project: Project) -> str:
    """The first record that was met and could not be read, as the end of a message; empty when there was none."""
    found = [finding for findings in project.unreadable.values() for finding in findings]
    return f"; {found[0].line()}" if found else ""


def _hint(project: Project, target: str) -> str:
    if project.path(target).exists():
        return "; it was not made by a job of this study"
    scales = project.scales()
    return f" and it is not here; here are results of {', '.join(scales)}" if scales else "; nothing was made here yet"


def find_target(project: Project, text: str, scale: str) -> str:
    """What a reader means: a path, the name of a figure, of a claim, of a run or policy.

    Raises:
        LookupError: it is none of these; the message says what could be meant.
    """
    place = Path(text) if os.path.exists(text) else project.folder / text  # noqa: PTH110 (false for any odd text)
    if os.path.exists(place):  # noqa: PTH110
        try:
            name = project.name(place)
        except ValueError:
            raise LookupError(f"{text}: lies outside of this project; change into the one that it belongs to") from None
        if name.endswith(".run.json") and (node := project.node(name)) is not None:
            return node.name
        return name
    candidates = [f"figures/{scale}/{text}.pdf", *(f"results/{scale}/{top}/{text}" for top in ("grpo", "sft"))]
    candidates += [f"results/{scale}/{text}", text]
    for name in candidates:
        if project.owner(name) is not None:
            return name
    if "/" in text or "." in text:
        raise LookupError(f"{text}: is not here and no record knows it")
    figures = sorted(path.stem for path in (project.folder / f"figures/{scale}").glob("*.pdf"))
    raise LookupError(
        f"{text}: no figure, claim, run or path of scale {scale}; figures here: {', '.join(figures) or 'none'}"
    )


def claim_files(project: Project, claim: str, scale: str) -> tuple[dict[str, str], list[str]] | None:
    """The line of a claim in the claims table, and the results that its verdict rests on; None when it is no claim."""
    for table in sorted((project.folder / f"figures/{scale}").rglob("claims.csv")):
        with table.open(encoding="utf-8", newline="") as stream:
            for line in csv.DictReader(stream):
                if claim in (line.get("id"), line.get("claim_id")):
                    cells = {key: value or "" for key, value in line.items() if key}
                    text = cells.get("files") or cells.get("rests_on") or ""
                    files = [part for part in text.replace(";", " ").replace(",", " ").split() if part]
                    made = [name for name in files if project.owner(name) is not None]
                    return cells, made or [project.name(table)]
    return None


def sources_of_pages(nodes: Sequence[Node]) -> dict[str, str]:
    """Files that make the task pages of a lineage: path -> sha256."""
    return {
        name: digest
        for node in nodes
        for name, digest in sorted(node.run.sources.files.items())
        if "/worlds/" in name or name.endswith("seeds.tsv")
    }
