"""A real Slurm for the session, and the smoke study sent through it by ``snakemake --profile slurm``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from cluster import Cluster, obstacle

from headroom.provenance import attempts

PROJECT = Path(__file__).parents[2]
BLOCK = re.compile(r"^# ---- This site.*?^# -{60,}$", re.MULTILINE | re.DOTALL)
RULES = (
    "demonstrations",
    "sft",
    "select",
    "reading",
    "grpo",
    "evaluate",
    "probe",
    "rank",
    "graft",
    "contrast",
    "figure",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder takes part in ``-m slurm``."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm of this machine alone, stopped afterwards."""
    if reason := obstacle():
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    try:
        made.start()
        yield made
    finally:
        killed = made.stop()
    assert killed == [], "the cluster was not stopped cleanly"


@dataclass
class Sent:
    """A copy of the project whose profile knows the cluster."""

    folder: Path
    cluster: Cluster
    seen: dict[str, str] = field(default_factory=dict)
    """Run id of the killed controller, and what the recovery printed."""

    def environment(self) -> dict[str, str]:
        """As a user has it who activated the project's environment."""
        path = f"{self.folder}/.venv/bin{os.pathsep}{os.environ['PATH']}"
        return {**self.cluster.environment, "PATH": path}

    def snakemake(self, *options: str) -> subprocess.CompletedProcess[str]:
        """``snakemake --profile slurm`` with options, to its end."""
        return subprocess.run(
            ["snakemake", "--profile", "slurm", *options],
            cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=900,
        )  # fmt: skip

    def controller(self, *options: str) -> subprocess.Popen[bytes]:
        """The same, left running; its words go to ``screen.txt``."""
        with (self.folder / "screen.txt").open("wb") as screen:
            return subprocess.Popen(
                ["snakemake", "--profile", "slurm", *options],
                cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL, stdout=screen, stderr=screen,
                # A shell starts what it puts into the background deaf to ctrl-c, and that is handed down to here.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def started(self) -> set[str]:
        """Outputs whose jobs have begun to work."""
        log = self.folder / "results" / "smoke" / attempts.NAME
        return {line["output"] for line in attempts.read(log) if line["event"] == "started"} if log.is_file() else set()

    def wait_for(self, what: Callable[[], object], controller: subprocess.Popen[bytes]) -> None:
        """Wait until ``what`` is true; fail with the screen when the controller ends before."""
        for _ in range(600):
            if what():
                return
            assert controller.poll() is None, (self.folder / "screen.txt").read_text()[-4000:]
            time.sleep(0.5)
        controller.kill()
        pytest.fail((self.folder / "screen.txt").read_text()[-4000:])


def preempt(sent: Sent, comment: str) -> None:
    """Take a running job off its node and queue it again, as a partition with PreemptMode=REQUEUE does."""
    (job,) = (job["JobId"] for job in sent.cluster.jobs() if job["Comment"] == comment)
    sent.cluster.ask("scontrol", "requeue", job)
    for _ in range(120):
        if sent.cluster.ask("squeue", "-h", "-j", job, "-o", "%T").strip() == "PENDING":
            break
        time.sleep(0.5)
    sent.cluster.ask("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm itself waits two minutes


def for_this_site(profile: str) -> str:
    """The profile with the lines of its site block uncommented, and this site's names in them."""
    match = BLOCK.search(profile)
    assert match is not None
    lines = [line.removeprefix("# ") for line in match[0].splitlines()[1:-1]]
    kept = [line for line in lines if not re.match(r"  (slurm_account|slurm_partition|constraint)|slurm-qos", line)]
    text = "\n".join(kept).replace("'a100'", "'h200'").replace("max_gpu: 4", "max_gpu: 8")
    text = text.replace("cpu: {", "cpu: {max_threads: 8, ").replace("checks: 20", "checks: 3")
    return profile[: match.start()] + text + profile[match.end() :]


@pytest.fixture(scope="session")
def sent(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, copy_project: Callable[[Path], Path]) -> Sent:
    """A fresh copy at scale smoke, each rule with memory and minutes of its own, before any job."""
    folder = copy_project(tmp_path_factory.mktemp("sent") / "headroom")
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    settings = folder / "config.yaml"
    settings.write_text(settings.read_text().replace("scale: tiny", "scale: smoke"))
    profile = folder / "slurm" / "config.yaml"
    profile.write_text(for_this_site(profile.read_text()))
    numbers = folder / "workflow" / "scales" / "smoke.yaml"
    resources = {rule: {"mem_mb": 2000 + 10 * index, "runtime": 61 + index} for index, rule in enumerate(RULES)}
    numbers.write_text(numbers.read_text() + yaml.safe_dump({"resources": resources}))
    return Sent(folder, cluster)


@pytest.fixture(scope="session")
def finished(sent: Sent) -> Sent:
    """The whole smoke study by Slurm: a job was preempted, the controller killed and recovered as the docs say."""
    controller = sent.controller()
    sent.wait_for(lambda: sent.started() >= {"results/smoke/sft/sft", "results/smoke/sft/base"}, controller)
    preempt(sent, "rule_sft_wildcards_base")
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    screen = (sent.folder / "screen.txt").read_text()
    sent.seen["run"] = re.findall(r"SLURM run ID: (\S+)", screen)[-1]
    sent.seen["left at work"] = sent.cluster.ask("squeue", "-h", "--name", sent.seen["run"], "-o", "%k")
    guide = (PROJECT / "slurm" / "README.md").read_text()
    recipe = re.search(r"<!-- recovery:begin -->\n```bash\n(.*?)```", guide, re.DOTALL)
    assert recipe is not None
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", recipe[1]],
        cwd=sent.folder, env=sent.environment(), text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as recovery:  # fmt: skip
        try:
            sent.seen["recovery"] = recovery.communicate()[0]
        except BaseException:  # the test's own time limit: no controller may outlive it
            os.killpg(recovery.pid, signal.SIGKILL)
            raise
    assert recovery.returncode == 0, sent.seen["recovery"][-6000:]
    return sent
