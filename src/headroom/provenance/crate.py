"""A finished study as a Workflow Run RO-Crate (Provenance Run profile), for tools that know nothing of headroom.

What goes in is decided by a whitelist: the files of a release, the sources that records name, and the few files below;
never whatever lies about. Files that are too large for the level are named with their digest and are not inside.

Profiles: https://w3id.org/ro/wfrun/provenance/0.5 and the ones that it extends.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

from headroom.provenance import release, verify
from headroom.provenance.digest import sha256_text
from headroom.provenance.manifest import FileEntry
from headroom.provenance.project import making
from headroom.provenance.walk import Node, Project

ALWAYS = ("Snakefile", "config.yaml", "LICENSE", "README.md", "CITATION.cff", "pyproject.toml", "requirements/main.txt")
"""Besides the release and the recorded sources; what is not there is left out."""

PATTERNS = (
    "workflow/rules/*.smk",
    "workflow/scales/*.yaml",
    "workflow/data/*",
    "workflow/schemas/*.json",
    "envs/*",
)

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
TERMS = {
    "sha256": "https://w3id.org/ro/terms/workflow-run#sha256",
    "resourceUsage": "https://w3id.org/ro/terms/workflow-run#resourceUsage",
}
FORMATS = {
    ".parquet": "application/vnd.apache.parquet", ".jsonl": "application/jsonl", ".yaml": "application/yaml",
    ".tsv": "text/tab-separated-values", ".csv": "text/csv", ".safetensors": "application/octet-stream",
    ".py": "text/x-python", ".smk": "text/plain",
}  # fmt: skip


def whitelist(project: Project, scale: str, level: str, nodes: Sequence[Node]) -> list[str]:
    """Paths that the crate holds, sorted."""
    found = set(release.files(project, scale, level))
    found.update(name for name in ALWAYS if project.path(name).is_file())
    for pattern in PATTERNS:
        found.update(project.name(path) for path in project.folder.glob(pattern) if path.is_file())
    for node in nodes:
        found.update(name for name in node.run.sources.files if project.path(name).is_file())
    return sorted(name for name in found if not any(part.startswith(".") for part in name.split("/")))


def export(project: Project, scale: str, level: str, output: Path) -> int:
    """Write the crate as a new folder; the number of its files.

    Raises:
        ValueError: a file is not as recorded or holds what must not be published, or the folder is not empty.
    """
    if output.exists() and any(output.iterdir()):
        raise ValueError(f"{output}: is not empty; give a new folder")
    if faults := verify.verify_scale(project, scale).faults():
        raise ValueError(f"{faults[0].line()}; a crate is made from results that are as recorded")
    nodes = project.records(scale)
    if not nodes:
        raise ValueError(f"nothing was made at scale {scale} yet; type: {making(scale)}")
    names = whitelist(project, scale, level, nodes)
    for name in names:
        if found := release.leaks(name, project.path(name).read_bytes()):
            raise ValueError(f"{name}: holds {found[0]}; nothing was written")
    _Writer(project, scale, nodes, names).crate().write(output)
    return len(names)


class _Writer:
    def __init__(self, project: Project, scale: str, nodes: Sequence[Node], names: Sequence[str]) -> None:
        self.project, self.scale, self.nodes, self.names = project, scale, nodes, names
        self.made = ROCrate(version="1.1")
        self.entities: dict[str, Any] = {}
        stages = dict.fromkeys(node.run.stage for node in project.ancestors(nodes))
        self.modules = {stage: f"src/headroom/{stage.replace('.', '/')}.py" for stage in stages}
        self.ended = max(node.run.usage.ended for node in nodes)

    def crate(self) -> ROCrate:
        """Everything, in an order that depends on the paths alone."""
        self.made.metadata.extra_terms.update(TERMS)
        self._root()
        for name in self.names:
            self._file(name)
        engine = self._add(
            "#snakemake-engine", "SoftwareApplication", name="Snakemake", version=self._version("snakemake")
        )
        tools = self._tools()
        actions = [self._action(node, tools[node.run.stage]) for node in self.nodes]
        controls = [
            self._add(f"#control-{node.run.attempt}", "ControlAction", name=f"step that made {node.name}",
                      instrument={"@id": f"#step-{node.run.stage}"}, object={"@id": action.id})
            for node, action in zip(self.nodes, actions, strict=True)
        ]  # fmt: skip
        whole = self._add(
            "#study", "CreateAction", name=f"The study at scale {self.scale}", instrument={"@id": "Snakefile"},
            startTime=min(node.run.usage.started for node in self.nodes), endTime=self.ended,
            object=[{"@id": name} for name in self.names if name.startswith(("config.yaml", "workflow/scales/"))],
            result=[{"@id": name} for name in self.names if name.startswith(f"figures/{self.scale}/")],
            actionStatus={"@id": "http://schema.org/CompletedActionStatus"},
        )  # fmt: skip
        self._add(
            "#orchestration", "OrganizeAction", name="The run of the workflow engine", instrument={"@id": engine.id},
            result={"@id": whole.id}, object=[{"@id": control.id} for control in controls],
        )  # fmt: skip
        self.made.root_dataset["mentions"] = [{"@id": item.id} for item in (whole, *actions)]
        return self.made

    def _add(self, identity: str, kind: str | list[str], **properties: Any) -> Any:
        if identity not in self.entities:
            kept = {key: value for key, value in properties.items() if value not in (None, [], "")}
            entity = ContextEntity(self.made, identity, properties={"@type": kind, **kept})
            self.entities[identity] = self.made.add(entity)
        return self.entities[identity]

    def _root(self) -> None:
        root = self.made.root_dataset
        root["name"] = f"headroom: the study at scale {self.scale}"
        root["description"] = (
            "What GRPO does to a supervised agent: results, figures, claims, and the run of every job."
        )
        root["datePublished"] = self.ended
        root["license"] = {"@id": "https://spdx.org/licenses/MIT"}
        self._add("https://spdx.org/licenses/MIT", "CreativeWork", name="MIT License")
        for identity, (name, version) in PROFILES.items():
            self._add(identity, "CreativeWork", name=name, version=version)
        root["conformsTo"] = [{"@id": identity} for identity in PROFILES]

    def _file(self, name: str) -> None:
        entry = self.project.hasher.entry(self.project.path(name))
        suffix = Path(name).suffix
        properties: dict[str, Any] = {
            "name": name, "contentSize": str(entry.size), "sha256": entry.sha256,
            "encodingFormat": FORMATS.get(suffix) or mimetypes.guess_type(name)[0] or "text/plain",
        }  # fmt: skip
        if name == "Snakefile":
            properties["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
        elif name in self.modules.values():
            properties["@type"] = ["File", "SoftwareSourceCode"]
        self.entities[name] = self.made.add_file(self.project.path(name), name, properties=properties)

    def _version(self, package: str) -> str:
        return next((run.packages.installed[package] for run in self._runs() if package in run.packages.installed), "")

    def _runs(self) -> Iterator[Any]:
        return (node.run for node in self.nodes)

    def _tools(self) -> dict[str, str]:
        """Stage -> id of its module; the workflow's description of its steps."""
        tools: dict[str, str] = {}
        steps = []
        for position, (stage, name) in enumerate(self.modules.items(), 1):
            if name in self.entities:
                self.entities[name]["description"] = f"The stage {stage}: python -m headroom.{stage}"
            else:
                self._add(f"#tool-{stage}", "SoftwareApplication", name=f"headroom.{stage}")
                name = f"#tool-{stage}"
            tools[stage] = name
            step = self._add(
                f"#step-{stage}", "HowToStep", name=stage, position=str(position), workExample={"@id": name}
            )
            steps.append({"@id": step.id})
        workflow = self.entities["Snakefile"]
        workflow["name"] = "headroom"
        workflow["hasPart"] = [{"@id": name} for name in tools.values()]
        workflow["step"] = steps
        self._add(
            "https://w3id.org/workflowhub/workflow-ro-crate#snakemake", "ComputerLanguage", name="Snakemake",
            identifier="https://snakemake.github.io", url="https://snakemake.github.io",
            version=self._version("snakemake"),
        )  # fmt: skip
        workflow["programmingLanguage"] = {"@id": "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"}
        self.made.root_dataset["mainEntity"] = {"@id": "Snakefile"}
        return tools

    def _action(self, node: Node, tool: str) -> Any:
        run = node.run
        inputs = [self._thing(name, entry) for name, entry in _inputs(node)]
        if run.config is not None and run.config.path in self.entities:
            inputs.append({"@id": run.config.path})
        for name, seed in sorted(run.seeds.items()):
            self._add(f"#seed-{run.attempt}-{name}", "PropertyValue", name=f"seed {name}", value=str(seed))
            inputs.append({"@id": f"#seed-{run.attempt}-{name}"})
        usage = {
            "cpuSeconds": run.usage.cpu_seconds, "peakMemoryBytes": run.usage.peak_memory_bytes,
            "gpuHours": run.usage.gpu_hours,
        }  # fmt: skip
        spent = [
            self._add(f"#{name}-{run.attempt}", "PropertyValue", name=name, value=str(value),
                      propertyID=f"https://w3id.org/ro/terms/headroom#{name}")
            for name, value in usage.items()
        ]  # fmt: skip
        commit = f"commit {run.git.commit}" + (" with uncommitted changes" if run.git.dirty else "") if run.git else ""
        return self._add(
            f"#run-{run.attempt}", "CreateAction", name=f"{run.stage}: {node.name}", description=" ".join(run.command),
            instrument={"@id": tool}, startTime=run.usage.started, endTime=run.usage.ended,
            object=list({item["@id"]: item for item in inputs}.values()),
            result=[self._thing(name, entry) for name, entry in zip(node.files(), run.outputs.values(), strict=True)],
            actionStatus={"@id": "http://schema.org/CompletedActionStatus"},
            resourceUsage=[{"@id": item.id} for item in spent], disambiguatingDescription=commit,
        )  # fmt: skip

    def _thing(self, name: str, entry: FileEntry) -> dict[str, str]:
        """A file of the crate, or the name and digest of one that is not inside."""
        if name in self.entities:
            return {"@id": name}
        identity = f"#{entry.sha256[:16]}-{sha256_text(name)[:8]}"
        self._add(identity, "CreativeWork", name=name, sha256=entry.sha256, description="not in this crate")
        return {"@id": identity}


def _inputs(node: Node) -> Iterator[tuple[str, FileEntry]]:
    for item in node.run.inputs:
        if item.kind == "file":
            yield item.path, FileEntry(sha256=item.sha256, size=item.size)
        for name, entry in item.files.items():
            yield f"{item.path}/{name}", entry
