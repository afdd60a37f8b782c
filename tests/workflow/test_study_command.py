"""The command that runs the study: how many jobs it runs at once, and what it does when one before it was killed."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parents[2]
JOB_LOCK = "results/smoke/.scratch/results_smoke_grpo_grid-05.lock"
HOLDER = """
import fcntl, sys
handle = open(sys.argv[1], "w")
fcntl.flock(handle, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
SNAKEMAKE = """#!/usr/bin/env bash
echo "$$ $*" >>started
if [ -p gate ]; then cat gate >/dev/null; fi
"""

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="the command locks by flock(1)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose snakemake only notes that it was started, and goes on when the pipe ``gate`` is opened."""
    (tmp_path / "tools").mkdir()
    for name in ("study.sh", "progress.py"):
        shutil.copy2(PROJECT / "tools" / name, tmp_path / "tools")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    python = f'#!/usr/bin/env bash\nexec "{sys.executable}" "$@"\n'
    for name, text in (("snakemake", SNAKEMAKE), ("headroom", "#!/bin/sh\n"), ("python", python)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / JOB_LOCK).parent.mkdir(parents=True)
    return tmp_path


def command(folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["tools/study.sh", "smoke", "figures/smoke/gate.pdf"], cwd=folder, text=True, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def job_at_work(folder: Path) -> Iterator[Callable[[], None]]:
    """A process that holds the lock of an output, as an orphaned job does; the function ends it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder / JOB_LOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    def end() -> None:
        holder.communicate()

    yield end
    end()


def test_a_job_that_outlived_its_study_is_waited_for_by_name(folder: Path, job_at_work: Callable[[], None]) -> None:
    again = command(folder)
    assert again.stderr is not None
    assert "results_smoke_grpo_grid-05" in again.stderr.readline()
    assert not (folder / "started").exists()
    job_at_work()
    rest = again.communicate()[1]
    assert again.returncode == 0, rest
    assert len((folder / "started").read_text().splitlines()) == 1


@pytest.mark.parametrize("asked", [None, 5])
def test_there_are_more_jobs_than_processors_as_far_as_memory_goes(folder: Path, asked: int | None) -> None:
    processors = os.sysconf("SC_NPROCESSORS_ONLN")
    assert command(folder, JOBS=str(asked or "")).wait() == 0
    _, *words = (folder / "started").read_text().split()
    given = dict(itertools.pairwise(words))
    assert int(given["--cores"]) == (asked or processors + processors // 2)
    assert 0 < int(given["--resources"].removeprefix("mem_mb=")) <= psutil.virtual_memory().total // 2**20
    assert words.index("--resources") < words.index("figures/smoke/gate.pdf") < words.index("--nolock")


def test_settings_and_limits_of_the_user_stand_beside_those_of_the_command(folder: Path) -> None:
    given = ["figures/smoke/gate.pdf", "--config", "tier=tables", "--resources", "gpu=1", "-n", "--config=x=1"]
    subprocess.run(["tools/study.sh", "smoke", *given], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    text = (folder / "started").read_text().strip()
    assert text.endswith(" --config tier=tables x=1 scale=smoke")
    assert " gpu=1 --scheduler greedy --max-jobs-per-timespan 1000/10s figures/smoke/gate.pdf -n --nolock " in text
    assert text.count("--config") == text.count("--resources") == 1


@pytest.mark.parametrize("jobs", ["0", "-1", "abc", "2.5"])
def test_a_number_of_jobs_that_is_none_is_refused_at_once(folder: Path, jobs: str) -> None:
    done = command(folder, JOBS=jobs)
    assert f"JOBS={jobs}: is no number of jobs" in done.communicate()[1]
    assert done.returncode == 2
    assert not (folder / "started").exists()


def test_locks_that_nobody_holds_are_passed_by(folder: Path) -> None:
    (folder / JOB_LOCK).touch()
    done = command(folder)
    said = done.communicate()[1]
    assert done.returncode == 0
    assert "waiting" not in said
    assert (folder / "started").exists()


def test_a_snakemake_whose_command_was_killed_still_keeps_a_second_one_out(folder: Path) -> None:
    gate = folder / "gate"
    os.mkfifo(gate)
    first = command(folder)
    writer = gate.open("wb", buffering=0)  # returns when the stand-in for snakemake has opened the other end
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = command(folder)
    assert "another run of the study" in second.communicate(timeout=60)[1]
    assert second.returncode == 1
    assert len((folder / "started").read_text().splitlines()) == 1
    gate.unlink()
    writer.close()  # the stand-in ends, and with it its lock; until then, the answer is the same
    for _ in range(1000):
        third = command(folder)
        said = third.communicate()[1]
        if "another run" not in said:
            break
    assert third.returncode == 0, said
    assert len((folder / "started").read_text().splitlines()) == 2
