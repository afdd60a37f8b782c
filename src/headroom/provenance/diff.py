"""Why two results differ: their chains side by side, and the first stage where they part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headroom.provenance.walk import Node, Project

Side = tuple[Project, Node]

CAUSES = ("settings", "seeds", "sources", "packages", "hardware", "inputs")


@dataclass
class Step:
    """One stage of both chains."""

    stage: str
    names: tuple[str, str]
    causes: dict[str, list[str]] = field(default_factory=dict)
    """Of CAUSES: what differs here by itself, one line each; ``inputs`` only those that no stage made."""
    outputs: list[str] = field(default_factory=list)
    """Files whose bytes differ now, or that only one has."""

    @property
    def parts(self) -> bool:
        """Whether anything differs here."""
        return bool(self.outputs) or any(self.causes.values())


def compare(left: Side, right: Side) -> list[Step]:
    """All stages of two chains that answer to each other, what was made first first."""
    steps: dict[tuple[str, str], Step] = {}

    def visit(a: Side, b: Side) -> None:
        key = (a[1].record, b[1].record)
        if key in steps:
            return
        steps[key] = Step("", ("", ""))  # holds the place against a cycle of edited records
        for first, second in _paired(a, b):
            visit(first, second)
        del steps[key]
        steps[key] = _step(a, b)

    visit(left, right)
    return list(steps.values())


def _paired(a: Side, b: Side) -> Iterator[tuple[Side, Side]]:
    """Parents that feed the same option of one stage; runs of a list answer to each other by their name."""
    if a[1].run.stage != b[1].run.stage:
        return
    left, right = _by_role(a), _by_role(b)
    for role in left:
        if role in right:
            yield (a[0], left[role]), (b[0], right[role])


def _by_role(side: Side) -> dict[str, Node]:
    project, node = side
    return {
        (item.path if "." in item.name else item.name): parent
        for item, parent in project.parents(node)
        if parent is not None
    }


def _step(a: Side, b: Side) -> Step:
    first, second = a[1].run, b[1].run
    step = Step(first.stage, (a[1].name, b[1].name))
    if first.stage != second.stage:
        step.causes["settings"] = [f"stage: {first.stage} -> {second.stage}"]
        return step
    config = [item.config.content if item.config else {} for item in (first, second)]
    step.causes = {
        "settings": list(_changes(_flat(config[0]), _flat(config[1]))),
        "seeds": list(_changes(first.seeds, second.seeds)),
        "sources": list(_files(first.sources.files, second.sources.files)),
        "packages": list(_changes(first.packages.installed, second.packages.installed)),
        "hardware": list(_changes(_flat(first.machine.model_dump()), _flat(second.machine.model_dump()))),
        "inputs": list(_inputs(a, b)),
    }
    step.outputs = list(_files(_bytes(a), _bytes(b)))
    return step


def _bytes(side: Side) -> dict[str, str]:
    """Digests of the outputs as they lie on the disk now, whatever the record says."""
    project, node = side
    found = {}
    for inside, name in zip(node.run.outputs, node.files(), strict=True):
        if inside == "timing.parquet":
            continue
        try:
            digest = project.hasher.entry(project.path(name)).sha256
        except OSError:
            digest = "missing"
        found[inside if node.is_directory else inside.rpartition("/")[2]] = digest
    return found


def _inputs(a: Side, b: Side) -> Iterator[str]:
    """Inputs that no stage made, by content, and options that only one side has."""
    sides = []
    for project, node in (a, b):
        free, made = {}, set()
        for item, parent in project.parents(node):
            role = item.path if "." in item.name else item.name
            if parent is None:
                free[role] = item.sha256
            else:
                made.add(role)
        sides.append((free, made))
    (free_a, made_a), (free_b, made_b) = sides
    alone = dict.fromkeys(made_a & free_b.keys(), "B") | dict.fromkeys(made_b & free_a.keys(), "A")
    for name, side in sorted(alone.items()):
        yield f"{name}: what made it is not in {side}, so its chain ends there"
    yield from _files(*({name: sha for name, sha in free.items() if name not in alone} for free in (free_a, free_b)))
    yield from (f"{name}: only in A" for name in sorted(made_a - made_b - alone.keys()))
    yield from (f"{name}: only in B" for name in sorted(made_b - made_a - alone.keys()))


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys; lists stay whole."""
    if not isinstance(value, dict) or not value:
        return {place: value} if place else {}
    found = {}
    for key, inner in value.items():
        found.update(_flat(inner, f"{place}.{key}" if place else str(key)))
    return found


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(first.keys() | second.keys()):
        if key not in second:
            yield f"{key}: {first[key]!r}, only in A"
        elif key not in first:
            yield f"{key}: {second[key]!r}, only in B"
        elif first[key] != second[key]:
            yield f"{key}: {first[key]!r} -> {second[key]!r}"


def _files(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(first.keys() | second.keys()):
        if name not in second:
            yield f"{name}: only in A"
        elif name not in first:
            yield f"{name}: only in B"
        elif first[name] != second[name]:
            yield f"{name}: {first[name][:12]} -> {second[name][:12]}"


def render(steps: list[Step], limit: int = 12) -> str:
    """What differs, stage by stage, the first first; the end says why the last ones differ."""
    parting = [step for step in steps if step.parts]
    last = steps[-1]
    if not parting:
        return f"{last.names[0]} and {last.names[1]}: the same bytes, made in the same way\n"
    lines = [f"A {last.names[0]}", f"B {last.names[1]}"]
    lines.append(
        "the results differ" if last.outputs else "the results have the same bytes; how they were made differs"
    )
    causes = [step for step in parting if any(step.causes.values())]
    for step in parting:
        first = "first parting: " if step is parting[0] else ""
        lines.append(f"{first}{step.stage}  {_names(step)}")
        for cause in CAUSES:
            found = step.causes.get(cause, [])
            lines += [f"  {cause:<9} {line}" for line in found[:limit]]
            lines += [f"  {cause:<9} and {len(found) - limit} more: --json"] if len(found) > limit else []
        same = "" if step.outputs else "  outputs   the same bytes"
        lines += [f"  outputs   {line}" for line in step.outputs[:limit]] or [same]
        if step.outputs and not any(step.causes.values()) and step is parting[0]:
            lines.append(
                "  nothing recorded explains it: the stage is not deterministic, or a file was altered (verify)"
            )
    if causes:
        what = "cause" if last.outputs else "difference"
        lines.append(f"{what}: {', '.join(name for name in CAUSES if causes[0].causes.get(name))} of {causes[0].stage}")
    return "\n".join(line for line in lines if line) + "\n"


def _names(step: Step) -> str:
    return step.names[0] if step.names[0] == step.names[1] else f"{step.names[0]} | {step.names[1]}"
