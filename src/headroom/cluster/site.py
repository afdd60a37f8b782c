"""Questions to the Slurm of this site; every answer is text that Slurm gave, and no job is ever sent."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

PROGRAMS = ("sinfo", "sbatch", "squeue", "scancel", "scontrol", "srun")
SECONDS = 30
WITHOUT_ACCOUNTING = (
    "uncomment both lines in slurm/config.yaml, or give --slurm-status-command squeue "
    "--slurm-init-seconds-before-status-checks 20"
)


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    ok: bool
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """The reason of a failure."""
        lines = (self.error or self.out).strip().splitlines()
        return lines[-1].strip() if lines else "no answer"


def ask(command: Sequence[str]) -> Answer:
    """Run a command; a missing or hanging one is an answer too."""
    try:
        done = subprocess.run(  # noqa: S603
            list(command), capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(False, "", f"{command[0]}: {error}")
    return Answer(done.returncode == 0, done.stdout, done.stderr)


@dataclass(frozen=True)
class Partition:
    """One line of ``sinfo``: the largest node of a partition, and how long a job may run there."""

    name: str
    up: bool
    default: bool
    minutes: float
    processors: int
    memory_mb: int
    gres: str

    @property
    def largest(self) -> str:
        """What its nodes have, for a message."""
        return f"{self.processors} CPUs, {self.memory_mb} MB, {self.gres if self.gres != '(null)' else 'no GPU'}"


class Site:
    """The cluster that this machine's Slurm commands talk to."""

    @cached_property
    def absent(self) -> list[str]:
        """Slurm's commands that are not on the PATH."""
        return [name for name in PROGRAMS if shutil.which(name) is None]

    @cached_property
    def version(self) -> Answer:
        """Whether the controller answers."""
        return ask(["scontrol", "--oneliner", "ping"]) if not self.absent else Answer(False, "", "no Slurm commands")

    @cached_property
    def partitions(self) -> dict[str, Partition]:
        """Name -> partition; of several kinds of nodes the last line with the most memory counts."""
        found: dict[str, Partition] = {}
        for line in ask(["sinfo", "-h", "-e", "-o", "%R|%a|%P|%l|%c|%m|%G"]).out.splitlines():
            name, up, mark, limit, processors, memory, gres = (part.strip() for part in line.split("|", 6))
            new = Partition(
                name, up == "up", mark.endswith("*"), minutes(limit), number(processors), number(memory), gres
            )
            if name not in found or new.memory_mb > found[name].memory_mb:
                found[name] = new
        return found

    @cached_property
    def nodes(self) -> set[str]:
        """Names of all nodes."""
        return set(ask(["sinfo", "-h", "-N", "-o", "%N"]).out.split())

    @cached_property
    def settings(self) -> dict[str, str]:
        """``scontrol show config``."""
        pairs = (line.partition("=") for line in ask(["scontrol", "show", "config"]).out.splitlines())
        return {key.strip(): value.strip() for key, _, value in pairs}

    @property
    def has_accounting(self) -> bool:
        """Whether ``sacct`` knows the jobs that ended."""
        return ask(["sacct", "-X", "-n", "-P", "--starttime", "now"]).ok

    @cached_property
    def accounts(self) -> list[str] | None:
        """The user's accounts; None where nobody keeps them."""
        answer = ask(["sacctmgr", "-n", "-s", "list", "user", getpass.getuser(), "format=account%256"])
        return sorted(set(answer.out.split())) if answer.ok and self.has_accounting else None

    @property
    def remembers(self) -> int:
        """Seconds for which ``squeue`` still shows a job that has ended."""
        return number(self.settings.get("MinJobAge", "").split(" ")[0])


def minutes(limit: str) -> float:
    """A time limit of ``sinfo`` in minutes: ``infinite``, ``2-00:00:00``, ``12:00:00``, ``30:00``."""
    if limit in ("infinite", "UNLIMITED", "n/a", ""):
        return inf
    days, _, clock = limit.rpartition("-")
    hours, mins, seconds = ([0, 0, 0] + [int(part) for part in clock.split(":")])[-3:]
    return int(days or 0) * 1440 + hours * 60 + mins + seconds / 60


def number(text: str) -> int:
    """A count of ``sinfo``, which writes ``128+`` for nodes of several sizes; 0 for none."""
    digits = text.rstrip("+")
    return int(digits) if digits.isdigit() else 0
