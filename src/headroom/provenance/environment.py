"""What a job ran on and with: packages, lock, git state, machine, scheduler, time and memory."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headroom.provenance.digest import sha256_file, sha256_text
from headroom.provenance.project import relative, root, scrub
from headroom.provenance.schema import Git, Machine, Packages, Scheduler

LOCK = "requirements/main.txt"
DIFF_LIMIT = 65536
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH", "TZ")
"""Environment variables that can change a result, and hold no secret."""


def _output(*command: str) -> str | None:
    """Standard output of a command; None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, cwd=root(), capture_output=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def packages() -> Packages:
    """The distributions that are really installed, by the names of their metadata folders: no import, milliseconds."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        if not Path(folder).is_dir():
            continue
        for item in Path(folder).iterdir():
            if match := re.fullmatch(r"([^-]+)-([^-]+)\.(?:dist-info|egg-info)", item.name):
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    listing = dict(sorted(found.items()))
    lock = root() / LOCK
    return Packages(
        lock=LOCK if lock.is_file() else None,
        lock_sha256=sha256_file(lock) if lock.is_file() else None,
        installed=listing,
        installed_sha256=installed_digest(listing),
        environments={relative(path): sha256_file(path) for path in sorted((root() / "envs").glob("*.yaml"))},
    )


def installed_digest(listing: dict[str, str]) -> str:
    """One sha256 for a list of packages, name -> version."""
    return sha256_text("".join(f"{name}=={listing[name]}\n" for name in sorted(listing)))


def git() -> Git | None:
    """Commit and uncommitted changes of the project; None outside of a repository."""
    commit = _output("git", "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _output("git", "diff", "HEAD", "--no-color", "--no-ext-diff", "--", ".", ":(exclude)figures") or ""
    text = scrub(diff)
    return Git(
        commit=commit.strip(),
        dirty=bool(diff),
        diff_sha256=sha256_text(diff) if diff else None,
        diff=text[:DIFF_LIMIT] if diff else None,
        diff_truncated=len(text) > DIFF_LIMIT,
    )


@cache
def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> Machine:
    """CPU, GPUs and driver. The host's name is left out unless HEADROOM_RECORD_HOST=1 asks for it."""
    gpus: list[str] = []
    driver = None
    if shutil.which("nvidia-smi"):
        listing = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader") or ""
        for line in listing.strip().splitlines():
            name, _, driver = (part.strip() for part in line.rpartition(","))
            gpus.append(name)
    return Machine(
        host=socket.gethostname() if os.environ.get("HEADROOM_RECORD_HOST") == "1" else None,
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_processor(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        gpus=gpus,
        driver=driver,
        python=platform.python_version(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def scheduler(earlier: Sequence[Mapping[str, Any]] = ()) -> Scheduler | None:
    """The cluster job this process runs in; None when there is none.

    A job that was preempted keeps its id. Slurm's own count of restarts does not reach a job of Snakemake, so the
    attempts at the same output (``earlier``) under this id are counted too.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    restarts = sum(attempt.get("scheduler_job") == job for attempt in earlier)
    return Scheduler(kind="slurm", job=job, restarts=max(restarts, int(os.environ.get("SLURM_RESTART_COUNT", "0"))))


def cpu_seconds() -> float:
    """User and system time of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_memory() -> tuple[int, int]:
    """Peak resident bytes of this process, and of its largest ended child.

    ``ru_maxrss`` of a process keeps the peak of the parent that started it, so Linux' own high-water mark is read.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024, child
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, child


def gpu_count() -> int:
    """CUDA devices that this process opened; 0 when torch was not used on a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.device_count())
