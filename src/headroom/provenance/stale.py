"""What an edit in the working tree makes stale, before anything runs.

Every record holds digests of what its job depended on: settings, sources, pinned environment, inputs. They are held
against the tree as it is now; what rests on a stale result is stale too. Snakemake decides what runs; this says why,
in a second and without a lock, also where its own notes are gone. Of a rule itself (its command line) no record
knows: ``snakemake -n`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headroom.provenance import closure
from headroom.provenance.digest import sha256_file, sha256_text
from headroom.provenance.manifest import MANIFEST
from headroom.provenance.schema import Input
from headroom.provenance.walk import Node, Project

TIER_OF = {
    "scratch": ("demonstrations", "overlap", "sft", "grpo"),
    "checkpoints": ("select", "reading", "evaluate", "probe", "rank", "graft"),
    "evals": ("contrast", "mechanism", "failures", "filmstrip", "dark_room", "figure_data", "claims"),
    "tables": ("figure",),
}
"""Tier -> the rules that exist from it on upwards; what is not named here belongs to ``evals``."""

BETWEEN = ("demonstrations", "sft", "select", "probe", "rank", "graft", "figure_data")
"""Rules whose results nothing but other rules asks for."""

ABOVE = {
    "sft": ("demonstrations",), "select": ("sft",), "grpo": ("sft", "select"), "reading": ("sft", "select"),
    "evaluate": ("sft", "select"), "probe": ("sft", "select"), "rank": ("sft", "probe"),
    "graft": ("sft", "select", "probe"), "mechanism": ("probe", "rank", "graft"), "contrast": ("select",),
    "failures": ("select",), "filmstrip": ("select",), "overlap": ("demonstrations", "select"),
    "figure": ("figure_data",),
}  # fmt: skip
"""Rule -> those of ``BETWEEN`` that it reads: what a job that was never made rests on, since it has no record."""


@dataclass(frozen=True)
class Stale:
    """One job that would run."""

    name: str
    """The result folder, or the file of a figure."""
    job: str
    """Rule and wildcard, as Snakemake names them."""
    reasons: tuple[str, ...]


def stale(project: Project, scale: str, tier: str = "scratch") -> list[Stale]:
    """Jobs that would run now, what comes first first.

    Raises:
        LookupError: the settings are wrong; the message is the one that Snakemake would give.
    """
    from headroom.config.resolve import SETTINGS_FILE, ConfigError, load_yaml, resolve
    from headroom.config.workflow import TIERS

    try:
        content = load_yaml(project.folder / SETTINGS_FILE, SETTINGS_FILE)
        base = content if isinstance(content, dict) else {}
        resolved = resolve({**base, "scale": scale, "tier": tier}, project.folder)
    except ConfigError as error:
        raise LookupError(str(error)) from error
    made = TIERS[TIERS.index(tier) :]
    rules = {rule for name in made for rule in TIER_OF[name]}
    known = {rule for names in TIER_OF.values() for rule in names}
    members = {
        "evaluate": resolved.policies, "grpo": tuple(run.run for run in resolved.runs),
        "rank": resolved.mechanism.ranked, "graft": tuple(resolved.mechanism.grafted),
    }  # fmt: skip
    pinned = _environments(project.folder, by_vllm=resolved.by_vllm, world=resolved.study.world.kind)
    look = _Look(project, scale, resolved.files, members, pinned)
    jobs = {name: job for name, job in look.jobs().items() if job.split()[0] in rules or job.split()[0] not in known}
    return look.stale(jobs)


def _needed(job: str, jobs: Mapping[str, str]) -> Iterator[str]:
    """Results that a job without a record would read, by its rule."""
    rule, _, wildcard = job.partition(" ")
    for name, other in jobs.items():
        kind, _, which = other.partition(" ")
        if kind in ABOVE.get(rule, ()) and (kind != "figure_data" or which == wildcard):
            yield name


class _Look:
    def __init__(
        self,
        project: Project,
        scale: str,
        files: Mapping[str, str],
        members: Mapping[str, tuple[str, ...]],
        environments: Mapping[str, str],
    ) -> None:
        self.project, self.scale, self.files, self.members = project, scale, files, members
        self.source = project.folder / "src"
        self.environments = environments
        self.sources = cache(self._sources)

    def jobs(self) -> dict[str, str]:
        """Result -> job, for everything that the study makes."""
        from headroom.provenance.verify import figure_files

        top = f"results/{self.scale}"
        found = {}
        for name in self.files:
            inside = name.removeprefix(f"{top}/config/").removesuffix(".json")
            found[f"{top}/{inside}"] = inside.replace("/", " ")
        for name in figure_files(self.project.folder, self.scale):
            rule = "figure_data" if "/data/" in name else "figure"
            found[name] = "claims" if name.endswith("/claims.csv") else f"{rule} {Path(name).stem}"
        return found

    def stale(self, jobs: Mapping[str, str]) -> list[Stale]:
        nodes: dict[str, Node | None] = {}
        for name in jobs:
            node = self.project.owner(name)
            nodes[name] = node if node is not None and node.name == name else None
        order = [node.name for node in self.project.ancestors([node for node in nodes.values() if node is not None])]
        order = [*(name for name in jobs if nodes[name] is None), *(name for name in order if name in jobs)]
        gone = {name: tuple(self._gone(name, nodes[name])) for name in order}
        # What is gone and no target is made again only where something that rests on it runs.
        wanted = {name for name in order if gone[name] and jobs[name].split()[0] not in BETWEEN}
        while True:
            found: dict[str, tuple[str, ...]] = {}
            for name in order:
                node = nodes[name]
                reasons = [*(gone[name] if name in wanted else ()), *(self._reasons(node, found) if node else ())]
                if reasons:
                    found[name] = tuple(dict.fromkeys(reasons))
            above = {one for name in found for one in self._above(nodes[name])}
            above |= {one for name in found if nodes[name] is None for one in _needed(jobs[name], jobs)}
            more = {name for name in above if gone.get(name)} - wanted
            if not more:
                return [Stale(name, jobs[name], found[name]) for name in order if name in found]
            wanted |= more

    def _above(self, node: Node | None) -> set[str]:
        """Results that a run read."""
        if node is None:
            return set()
        pairs = self.project.parents(node)
        return {parent.name if parent else _folder_of(item.path, self.scale) or "" for item, parent in pairs}

    def _reasons(self, node: Node, above: Mapping[str, object]) -> Iterator[str]:
        yield from self._settings(node)
        yield from self._code(node)
        yield from self._pins(node)
        for item, parent in self.project.parents(node):
            yield from self._input(item, parent, above)
        yield from self._members(node)

    def _gone(self, name: str, node: Node | None) -> Iterator[str]:
        if node is None:
            yield "was never made, or is gone"
            return
        for file in [*node.files(), *([f"{node.base}/{MANIFEST}"] if node.is_directory else [])]:
            inside = file.removeprefix(f"{name}/") if node.is_directory else ""
            if not self.project.path(file).exists() and "/" not in inside:
                yield f"{file} is gone"

    def _settings(self, node: Node) -> Iterator[str]:
        config = node.run.config
        if config is not None and config.path in self.files and sha256_text(self.files[config.path]) != config.sha256:
            yield f"settings: {config.path} would change"

    def _sources(self, stage: str, world: str | None) -> dict[str, str]:
        try:
            return closure.digests(stage, self.source, world)
        except (ValueError, SyntaxError, OSError):
            return {}

    def _code(self, node: Node) -> Iterator[str]:
        config = node.run.config
        now = self.sources(node.run.stage, closure.world_of(config.content) if config is not None else None)
        then = node.run.sources.files
        for name in sorted(now.keys() | then.keys()):
            if now.get(name) != then.get(name):
                yield f"source: {name}"

    def _pins(self, node: Node) -> Iterator[str]:
        name = self.environments.get(node.run.stage) or self.environments.get(node.run.stage.split(".")[0])
        path = self.project.folder / (name or "")
        if name is None or not path.is_file():
            return
        recorded = node.run.packages.environments.get(name)
        if recorded is not None and recorded != sha256_file(path):
            yield f"pins: {name}"
        elif recorded is None and (other := _other_pins(path, node.run.packages.installed)):
            yield f"pins: {name}: {other[0]}"

    def _input(self, item: Input, parent: Node | None, above: Mapping[str, object]) -> Iterator[str]:
        if parent is not None:
            if parent.name in above:
                yield f"rests on {parent.name}"
            elif item.kind == "directory" and not self._same(item, parent):
                yield f"input: {item.path} was made again"
            elif item.kind == "file" and self._digest(item.path) != item.sha256:
                yield f"input: {item.path} changed"
            return
        owner = _folder_of(item.path, self.scale)
        if owner is not None and owner in above:
            yield f"rests on {owner}"
        elif item.kind == "file":
            digest = sha256_text(self.files[item.path]) if item.path in self.files else self._digest(item.path)
            if digest != item.sha256:
                yield f"input: {item.path} changed"

    def _same(self, item: Input, parent: Node) -> bool:
        """The inputs' files, as their maker's record lists them now."""
        prefix = "" if item.path == parent.base else item.path.removeprefix(f"{parent.base}/") + "/"
        now = {
            name.removeprefix(prefix): entry for name, entry in parent.run.outputs.items() if name.startswith(prefix)
        }
        return all(now.get(name) == entry for name, entry in item.files.items()) and len(item.files) <= len(now)

    def _digest(self, name: str) -> str:
        try:
            return self.project.hasher.entry(self.project.path(name)).sha256
        except OSError:
            return ""

    def _members(self, node: Node) -> Iterator[str]:
        """A run that a table of many runs does not have yet, or has no longer."""
        read: dict[str, set[str]] = {}
        for item in node.run.inputs:
            parts = item.path.split("/")
            if "." in item.name and len(parts) > 3 and parts[0] == "results" and parts[2] in self.members:
                read.setdefault(parts[2], set()).add(parts[3])
        stage = node.run.stage
        for kind, names in read.items():
            wanted = set(
                self.members["rank"] if stage == "measure.mechanism" and kind == "evaluate" else self.members[kind]
            )
            if stage in ("measure.contrast", "measure.mechanism", "measure.dark_room") or (
                stage.startswith("present.") and kind == "grpo"
            ):
                yield from (f"input: {kind}/{name} is new" for name in sorted(wanted - names))
                yield from (f"input: {kind}/{name} is no longer in the study" for name in sorted(names - wanted))


def _folder_of(name: str, scale: str) -> str | None:
    """The result folder that a path would lie in."""
    parts = name.split("/")
    if parts[:2] == ["figures", scale]:
        return name
    if parts[:2] != ["results", scale] or len(parts) < 4 or parts[2] == "config":
        return None
    deep = parts[2] in ("sft", "grpo", "evaluate", "rank", "graft")
    return "/".join(parts[: 4 if deep else 3])


def _environments(folder: Path, *, by_vllm: bool, world: str = "miniwob") -> dict[str, str]:
    """Stage -> its pinned environment file, as the rules pair them; ``present`` stands for every figure.

    ``by_vllm``: whether vLLM samples the rollouts; ``world``: the kind of the scale's world. A rule that opens a world
    names a kind of job, ``WORKFLOW.environment("train")``.
    """
    from headroom.config.workflow import environment

    named = re.compile(r'environment=(?:"(envs/[\w.-]+)"|WORKFLOW\.environment\("(\w+)"(, samples=True)?\))')
    found = {}
    for path in sorted((folder / "workflow/rules").glob("*.smk")):
        for body in re.split(r"\n\s*rule \w+:", path.read_text(encoding="utf-8")):
            pinned = named.search(body)
            stage = re.search(r'closure\.sources\(\s*f?"(\w+)\.(\w+)?', body)
            if "WORKFLOW.environment(" in body and (pinned is None or not pinned[2]):
                raise ValueError(
                    f"{path}: the environment of a rule is not written as it is read here; mend _environments"
                )
            if pinned and stage:
                file = pinned[1] or environment(pinned[2], world, by_vllm=bool(pinned[3]) and by_vllm)
                found[f"{stage[1]}.{stage[2]}" if stage[2] else stage[1]] = file
    return found


def _other_pins(path: Path, installed: Mapping[str, str]) -> list[str]:
    """Pins of an environment that the record's packages do not have."""
    pins = re.findall(r"^\s*- ([A-Za-z0-9_.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    named = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}
    return [
        f"{name} {installed[name]} -> {version}"
        for name, version in sorted(named.items())
        if name in installed and installed[name].partition("+")[0] != version
    ]


def render(found: list[Stale], scale: str, limit: int = 3) -> str:
    """One line a job with its reasons; a consequence is shorter than a cause."""
    if not found:
        return "nothing is stale\n"
    width = max(len(item.job) for item in found)
    lines = []
    for item in found:
        causes = [reason for reason in item.reasons if not reason.startswith("rests on")] or list(item.reasons)
        more = f", and {len(causes) - limit} more" if len(causes) > limit else ""
        lines.append(f"{item.job:<{width}}  {', '.join(causes[:limit])}{more}")
    return (
        "\n".join([*lines, f"{len(found)} jobs would run; see for yourself: snakemake -n --config scale={scale}"])
        + "\n"
    )
