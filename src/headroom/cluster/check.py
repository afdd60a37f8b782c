"""What is missing on this site before ``snakemake --profile slurm`` can work: one finding a line, with the remedy.

The requests are the ones that the executor plugin would make (its own functions write them), and Slurm judges them
itself with ``sbatch --test-only``: no job is sent.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from headroom.cluster import profile as profiles
from headroom.cluster.site import WITHOUT_ACCOUNTING, Site, ask
from headroom.config.models import Resources
from headroom.config.resolve import ConfigError, resolve, scale_content
from headroom.config.workflow import VLLM

PLUGINS = ("snakemake", "snakemake-executor-plugin-slurm", "snakemake-executor-plugin-slurm-jobstep")
LOCK = "requirements/main.txt"
LONGEST_WAIT = 180
"""Seconds between two questions of the plugin about its jobs, at most."""
OF_ONE_MACHINE = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay"}
State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the answer."""

    state: State
    about: str
    text: str
    remedy: str = ""


def check(project: Path, scale: str, folder: Path) -> Iterator[Finding]:
    """Everything that can be known before a job is sent, in the order in which it would fail."""
    site = Site()
    profile: profiles.Profile | None = None
    try:
        resolved = resolve({"scale": scale}, project)
        yield Finding("ok", "settings", f"scale {scale}")
        if resolved.by_vllm and not (project / VLLM / "python").exists():
            yield Finding(
                "note", "vllm", f"samples the rollouts, and is not in {VLLM}", "make setup-vllm, or --sdm conda"
            )
    except ConfigError as error:
        yield Finding("missing", "settings", str(error))
    table = _table(project, scale)
    try:
        profile = profiles.load(folder)
        yield Finding("ok", "profile", f"{folder.name}/config.yaml")
    except profiles.ProfileError as error:
        yield Finding("missing", "profile", str(error))
    yield from _plugins(project)
    yield from _slurm(site)
    if profile is not None and site.version.ok:
        yield from _partitions(site, profile)
        yield from _requests(site, profile, table, scale, project)
        yield from _account(site, profile)
        yield from _accounting(site, profile)
    yield from _folders(project, site)
    yield from _disk(project, table)
    yield from _torch(table)
    yield _chromium(project)


def _table(project: Path, scale: str) -> dict[str, Resources]:
    """Rule -> what its jobs ask for; judged even where another setting of the scale is wrong."""
    try:
        content = scale_content(project, scale)
        table = content.get("resources") if isinstance(content, dict) else None
        return {"default": Resources(), **TypeAdapter(dict[str, Resources]).validate_python(table or {})}
    except ValueError:  # said already, with the key
        return {}


def _plugins(project: Path) -> Iterator[Finding]:
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)$", (project / LOCK).read_text(encoding="utf-8"), re.MULTILINE))
    for name in PLUGINS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding("missing", "plugin", f"{name} is not installed", "./setup.sh")
            continue
        if version == locked.get(name):
            yield Finding("ok", "plugin", f"{name} {version}")
        else:
            yield Finding(
                "missing", "plugin", f"{name} {version} is not the {locked.get(name)} of {LOCK}", "./setup.sh"
            )


def _slurm(site: Site) -> Iterator[Finding]:
    if site.absent:
        yield Finding(
            "missing", "slurm", f"not on the PATH: {', '.join(site.absent)}; the cluster itself was not looked at",
            "work on a login node (or `module load slurm`)",
        )  # fmt: skip
    elif not site.version.ok:
        yield Finding(
            "missing", "slurm", f"the controller does not answer: {site.version.last_line}",
            "ask the site whether Slurm is up; SLURM_CONF, if set, must name its configuration",
        )  # fmt: skip
    else:
        name, version = site.settings.get("ClusterName", "?"), site.settings.get("SLURM_VERSION", "?")
        yield Finding("ok", "slurm", f"cluster {name}, Slurm {version}, {len(site.nodes)} node(s)")


def _named(profile: profiles.Profile) -> list[str]:
    fixed = profile.defaults.get("slurm_partition")
    return [str(fixed)] if fixed else [str(name) for name in profile.partitions]


def _partitions(site: Site, profile: profiles.Profile) -> Iterator[Finding]:
    there = ", ".join(site.partitions) or "none"
    for name in _named(profile):
        if name not in site.partitions:
            yield Finding(
                "missing", "partition", f"{name} does not exist; this cluster has: {there}",
                f"correct it in {profile.folder.name}/config.yaml",
            )  # fmt: skip
        elif not site.partitions[name].up:
            yield Finding("missing", "partition", f"{name} is not up", "wait for the site, or name another one")
        else:
            yield Finding("ok", "partition", f"{name}: {site.partitions[name].largest}")
    if not _named(profile):
        default = [item for item in site.partitions.values() if item.default]
        if default:
            yield Finding("ok", "partition", f"{default[0].name}, the default: {default[0].largest}")
        else:
            yield Finding(
                "missing", "partition", f"none is named, and this cluster has no default; it has: {there}",
                f"name one in {profile.folder.name}/config.yaml",
            )  # fmt: skip


def said(resources: Resources) -> str:
    """A request in words."""
    gpus = f", {resources.gpu} GPU(s)" if resources.gpu else ""
    return f"{resources.threads} CPU(s), {resources.mem_mb} MB, {resources.runtime} min{gpus}"


def _requests(
    site: Site, profile: profiles.Profile, table: dict[str, Resources], scale: str, project: Path
) -> Iterator[Finding]:
    for rule, resources in table.items():
        about = "other rules" if rule == "default" else rule
        less = f"ask for less in workflow/scales/{scale}.yaml (resources: {rule}), or name another partition"
        job = profile.job(rule, resources)
        try:
            partition = profile.partition_of(job)
            command = profile.submission(job, project)
        except Exception as error:
            yield Finding("missing", about, f"the plugin refuses it: {' '.join(str(error).split())}")
            continue
        if partition is None and profile.partitions:
            yield Finding("missing", about, f"{said(resources)}: fits none of {', '.join(profile.partitions)}", less)
            continue
        there = site.partitions.get(partition) if partition else next(
            (item for item in site.partitions.values() if item.default), None
        )  # fmt: skip
        if partition is not None and there is None:
            continue  # said already
        answer = ask([*command, "--test-only", "--wrap", "true"])
        where = f" on {there.name}" if there else ""
        if not answer.ok:
            reason = answer.last_line.removeprefix("allocation failure: ").removeprefix("sbatch: error: ")
            has = f" (largest node: {there.largest})" if there and "configuration" in reason else ""
            yield Finding("missing", about, f"{said(resources)}{where}: {reason}{has}", less)
        elif there is not None and resources.runtime > there.minutes:
            yield Finding("missing", about, f"{said(resources)}{where}: its limit is {there.minutes:.0f} min", less)
        else:
            yield Finding("ok", about, f"{said(resources)}{where}")


def _account(site: Site, profile: profiles.Profile) -> Iterator[Finding]:
    named = [part for part in re.split(r"[,\s]+", str(profile.defaults.get("slurm_account") or "")) if part]
    if site.accounts is None:
        text = f"{', '.join(named)}: cannot be checked" if named else "none named; the site keeps no accounts"
        yield Finding("note" if named else "ok", "account", text)
    elif unknown := [name for name in named if name.lower() not in site.accounts]:
        yield Finding(
            "missing", "account", f"{', '.join(unknown)}: not yours; you have: {', '.join(site.accounts) or 'none'}",
            f"correct slurm_account in {profile.folder.name}/config.yaml",
        )  # fmt: skip
    else:
        yield Finding("ok", "account", ", ".join(named) or f"none named: the plugin takes one of {site.accounts}")


def _accounting(site: Site, profile: profiles.Profile) -> Iterator[Finding]:
    if profile.status_command != "squeue":
        if site.has_accounting:
            yield Finding("ok", "accounting", "sacct answers")
        else:
            yield Finding(
                "missing", "accounting", "sacct knows nothing (no slurmdbd): Snakemake would see no job end",
                WITHOUT_ACCOUNTING,
            )  # fmt: skip
        return
    needed = max(3 * profile.first_check, LONGEST_WAIT + 1)
    if site.remembers < needed:
        yield Finding(
            "missing", "accounting", f"squeue forgets a job {site.remembers} s after its end (MinJobAge), "
            f"{needed} s are needed with slurm-init-seconds-before-status-checks: {profile.first_check}",
            "ask for fewer seconds there, or the site for slurmdbd or a larger MinJobAge",
        )  # fmt: skip
    else:
        yield Finding("ok", "accounting", f"by squeue, which shows a job for {site.remembers} s after its end")


def _folders(project: Path, site: Site) -> Iterator[Finding]:
    try:
        with tempfile.NamedTemporaryFile(dir=project, prefix=".slurm-check-"):
            pass
    except OSError as error:
        yield Finding(
            "missing", "folder", f"the project cannot be written to: {error.strerror}", "move it, or chmod it"
        )
        return
    kind = file_system(project)
    alone = site.nodes == {socket.gethostname().partition(".")[0]}
    if kind in OF_ONE_MACHINE and not alone:
        yield Finding(
            "note", "folder", f"lies on {kind}, which is often this machine's own disk",
            "all nodes must see it under this path; if they do not, move it to the shared file system",
        )  # fmt: skip
    else:
        yield Finding("ok", "folder", f"writable, on {kind}")


def file_system(folder: Path, table: Path = Path("/proc/mounts")) -> str:
    """Type of the file system that holds a folder; ``?`` where the machine does not say."""
    try:
        mounts = [line.split(" ") for line in table.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "?"
    holders = [(Path(place.replace("\\040", " ")), kind) for _, place, kind, *_ in mounts]
    fitting = [(len(place.parts), kind) for place, kind in holders if folder.resolve().is_relative_to(place)]
    return max(fitting, key=lambda item: item[0], default=(0, "?"))[1]


def _disk(project: Path, table: dict[str, Resources]) -> Iterator[Finding]:
    if not table:
        return
    rule, most = max(table.items(), key=lambda item: item[1].disk_mb)
    free = shutil.disk_usage(project).free // 10**6
    text = f"{free} MB are free here; a job asks for up to {most.disk_mb} MB ({rule})"
    if free < most.disk_mb:
        yield Finding("missing", "disk", text, "free some, move the project, or lower disk_mb of the scale")
    else:
        yield Finding("ok", "disk", text)


def _torch(table: dict[str, Resources]) -> Iterator[Finding]:
    wanting = [rule for rule, resources in table.items() if resources.gpu]
    if not wanting:
        return
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        yield Finding("missing", "torch", "is not installed", "./setup.sh")
        return
    text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    version = dict(re.findall(r"^(__version__|cuda|hip)\b.*= '(.*)'$", text, re.MULTILINE))
    if "cuda" in version or "hip" in version:
        yield Finding("ok", "torch", f"{version['__version__']}, for GPUs")
    else:
        yield Finding(
            "missing", "torch", f"{version.get('__version__')} is for CPUs alone; would stop at its start: "
            f"{', '.join(wanting)}", "TORCH=cuda ./setup.sh",
        )  # fmt: skip


def _chromium(project: Path) -> Finding:
    from headroom.worlds.miniwob.chromium import ChromiumNotFound, find_chromium

    try:
        found = find_chromium()
    except ChromiumNotFound:
        return Finding("missing", "chromium", "none is here", "make setup (puts one into .tools/, which nodes see too)")
    if found.is_relative_to(project) and found.resolve().is_relative_to(project.resolve()):
        return Finding(
            "note", "chromium", "in .tools/, which nodes see too; its libraries on them cannot be known here"
        )
    return Finding(
        "note", "chromium", f"{found} here; whether the nodes have one cannot be known from here",
        "if a job says `no Chromium found`: export HEADROOM_CHROMIUM=/a/shared/path before snakemake",
    )  # fmt: skip
