"""The run record: how, when, where and from what one result was made. Its JSON Schema is committed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headroom.provenance.manifest import FileEntry

SCHEMA_VERSION = 1

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Ending = Literal["finished", "diverged"]


class Part(BaseModel):
    """Base: unknown keys are refused, so that a record of another version is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(Part):
    """One thing a job read."""

    name: str = Field(description="The name the stage gives it; a list of inputs has name.0, name.1, ...")
    path: str = Field(description="Relative to the project.")
    kind: Literal["file", "directory"]
    sha256: Sha256 = Field(description="Of the file; of the manifest text for a directory.")
    size: int = Field(description="Bytes; the sum for a directory.")
    files: dict[str, FileEntry] = Field(description="Every file of a directory; empty for a file.")


class Parent(Part):
    """The run that made an input."""

    record: str = Field(description="Path of its run record, relative to the project.")
    stage: str
    attempt: str
    manifest_sha256: Sha256 | None


class Config(Part):
    """The resolved settings that the job read."""

    path: str
    sha256: Sha256
    content: Any


class Sources(Part):
    """The stage's source closure."""

    sha256: Sha256
    files: dict[str, Sha256]


class Git(Part):
    """State of the repository; the text has home and project paths removed, the digest is of the original."""

    commit: str
    dirty: bool
    diff_sha256: Sha256 | None
    diff: str | None
    diff_truncated: bool


class Packages(Part):
    """The lock and what is installed."""

    lock: str | None
    lock_sha256: Sha256 | None
    installed: dict[str, str]
    installed_sha256: Sha256
    environments: dict[str, Sha256] = Field(
        default_factory=dict, description="The pinned environment files of the rules: path -> sha256."
    )


class Machine(Part):
    """Hardware and interpreter."""

    host: str | None
    system: str
    architecture: str
    cpu: str
    cpus: int
    gpus: list[str]
    driver: str | None
    python: str
    variables: dict[str, str]


class Scheduler(Part):
    """Job of a cluster scheduler."""

    kind: Literal["slurm"]
    job: str
    restarts: int


class Usage(Part):
    """What the job cost."""

    started: str = Field(description="UTC, ISO 8601.")
    ended: str
    wall_seconds: float
    cpu_seconds: float = Field(description="Of the whole process, imports included, and its children.")
    peak_memory_bytes: int
    peak_child_memory_bytes: int = Field(
        description="The largest ended child; the kernel counts it as no smaller than this process was at its start."
    )
    gpu_hours: float


class Attempt(Part):
    """An earlier attempt at the same output."""

    attempt: str
    started: str
    ending: str


class RunRecord(Part):
    """``run.json``."""

    schema_version: Literal[1] = 1
    stage: str
    attempt: str = Field(description="Id of this attempt in the attempts log.")
    output: str
    command: list[str]
    ending: Ending
    config: Config | None
    seeds: dict[str, int]
    inputs: list[Input]
    parents: list[Parent]
    outputs: dict[str, FileEntry] = Field(description="Relative to the output directory, or to the project for a file.")
    manifest_sha256: Sha256 | None = Field(description="Of the output directory's manifest; null for a file output.")
    sources: Sources
    git: Git | None
    packages: Packages
    machine: Machine
    scheduler: Scheduler | None
    usage: Usage
    earlier_attempts: list[Attempt]
    notes: dict[str, Any]


def parse(content: bytes, name: str) -> RunRecord:
    """Read a record.

    Raises:
        ValueError: it is damaged or of another schema version; the message names it and the first fault.
    """
    try:
        return RunRecord.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "(file)"
        raise ValueError(f"{name}: not a run record of schema {SCHEMA_VERSION}: {place}: {first['msg']}") from error
