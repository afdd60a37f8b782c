"""A throwaway Slurm of one machine: own keys, own ports on loopback, own folders; no systemd, cgroups or slurmdbd.

Processors, memory and GPUs are made up (``config_overrides``), so that the requests of a large study can be accepted
here; the GPUs are device files that Slurm hands out and no program can use.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
SYSTEM = Path("/etc/slurm")
"""Where Slurm looks by default. The plugin strips every SLURM_* variable from its inner srun, SLURM_CONF too."""
GPUS = 8

CONFIGURATION = """
ClusterName=headroom-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1,sched_min_interval=100000
PriorityType=priority/basic
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MinJobAge=3600
KillWait=5
InactiveLimit=0
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=128 Boards=1 SocketsPerBoard=1 CoresPerSocket=128 ThreadsPerCore=1 \
RealMemory=1000000 Gres=gpu:h200:{gpus} State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=2-00:00:00 MaxCPUsPerNode=8 State=UP DefMemPerCPU=256
PartitionName=gpu Nodes={host} Default=NO MaxTime=2-00:00:00 State=UP DefMemPerCPU=256
"""


def obstacle() -> str | None:
    """Why no Slurm can be started here; None where it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(missing)} (Debian, Ubuntu: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "a throwaway Slurm needs root"
    for name in ("slurm.conf", "gres.conf"):
        path = SYSTEM / name
        if path.is_symlink() and not path.exists():
            continue  # a test that was killed left it
        if path.is_symlink() or path.exists():
            return f"this machine has a Slurm of its own ({path})"
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """The running cluster."""

    folder: Path
    host: str = field(default_factory=lambda: socket.gethostname().partition(".")[0])

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for Slurm's commands."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a Slurm command prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def jobs(self, *options: str) -> list[dict[str, str]]:
        """Every job that the controller remembers, as ``scontrol`` shows it."""
        found = []
        for line in self.ask("scontrol", "--oneliner", "show", "job", *options).splitlines():
            pairs = (word.partition("=") for word in line.split(" ") if "=" in word)
            found.append({key: value for key, _, value in pairs})
        return [job for job in found if "JobId" in job]

    def start(self) -> None:
        """Start munge, controller and node, and wait for the node.

        Raises:
            RuntimeError: it did not come up; with the end of its logs.
        """
        for name in ("state", "spool", "log", "munge", "dev"):
            (self.folder / name).mkdir(parents=True)
        # munge refuses folders that others may write to, on the whole way
        self.folder.chmod(0o755)
        for device in range(GPUS):
            os.mknod(self.folder / "dev" / f"gpu{device}", 0o020666, os.makedev(1, 3))
        text = CONFIGURATION.format(
            folder=self.folder, host=self.host, gpus=GPUS, controller_port=_free_port(), node_port=_free_port()
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(
            f"NodeName={self.host} Name=gpu Type=h200 File={self.folder}/dev/gpu[0-{GPUS - 1}]\n"
        )
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        SYSTEM.mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf"):
            (SYSTEM / name).unlink(missing_ok=True)
            (SYSTEM / name).symlink_to(self.folder / name)
        munge = [f"--{name}={self.folder}/munge/{file}" for name, file in (
            ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("seed-file", "seed"), ("log-file", "log"),
        )]  # fmt: skip
        for command in (
            ["munged", "--force", "--num-threads=2", *munge],
            ["slurmctld", "-c"],
            ["slurmd", "-N", self.host],
        ):
            subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=60)
        for _ in range(120):
            state = subprocess.run(
                ["sinfo", "-h", "-p", "cpu", "-o", "%T"], env=self.environment, capture_output=True, text=True
            )
            if state.stdout.strip() == "idle":
                return
            time.sleep(0.5)
        logs = "".join(path.read_text()[-2000:] for path in sorted((self.folder / "log").iterdir()))
        raise RuntimeError(f"the throwaway Slurm did not come up:\n{logs}")

    def stop(self) -> list[str]:
        """Cancel all jobs and end all three daemons; the ones that had to be killed are named."""
        quiet = {"env": self.environment, "capture_output": True, "text": True}
        if (self.folder / "slurmctld.pid").is_file():
            subprocess.run(["scancel", "--user", "root"], **quiet)  # type: ignore[call-overload]
            for _ in range(60):
                if not subprocess.run(["squeue", "-h"], **quiet).stdout.strip():  # type: ignore[call-overload]
                    break
                time.sleep(0.5)
        killed = [name for name in ("slurmd.pid", "slurmctld.pid", "munge/pid") if not _end(self.folder / name)]
        for name in ("slurm.conf", "gres.conf"):
            if (SYSTEM / name).is_symlink() and (SYSTEM / name).readlink() == self.folder / name:
                (SYSTEM / name).unlink()
        return killed


def _end(file: Path) -> bool:
    """End the process of a pid file; False when it had to be killed."""
    try:
        process = int(file.read_text())
        os.kill(process, 15)
    except (OSError, ValueError):
        return True
    for _ in range(80):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.25)
    os.kill(process, 9)
    return False
