"""What a record says about where it ran is what is true here."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

from headroom.provenance import environment


def test_the_listed_packages_are_the_installed_ones() -> None:
    listed = environment.packages().installed
    known = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
    assert listed == known


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Snakefile").write_text("")
    (tmp_path / "code.py").write_text("x = 1\n")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_clean_tree_is_its_commit(repository: Path) -> None:
    state = environment.git()
    assert state is not None
    assert (state.dirty, state.diff, state.diff_sha256) == (False, None, None)
    assert re.fullmatch("[0-9a-f]{40}", state.commit)


def test_an_uncommitted_change_is_in_the_record_without_the_places_of_this_machine(repository: Path) -> None:
    (repository / "code.py").write_text(f"x = '{repository}/secret'\n")
    state = environment.git()
    assert state is not None
    assert state.dirty
    assert "+x = 'secret'" in (state.diff or "")
    assert str(repository) not in (state.diff or "")


def test_a_long_diff_is_cut_and_says_so(repository: Path) -> None:
    (repository / "code.py").write_text("x\n" * environment.DIFF_LIMIT)
    state = environment.git()
    assert state is not None
    assert state.diff_truncated
    assert len(state.diff or "") == environment.DIFF_LIMIT


def test_outside_of_a_repository_there_is_no_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment.git() is None


def test_a_cluster_job_is_known_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert environment.scheduler() is None
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    state = environment.scheduler()
    assert state is not None
    assert (state.job, state.restarts) == ("17", 2)


def test_a_preempted_job_counts_its_own_starts_and_no_other_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    state = environment.scheduler([{"scheduler_job": "16"}, {"scheduler_job": "17"}, {"scheduler_job": None}, {}])
    assert state is not None
    assert state.restarts == 1
