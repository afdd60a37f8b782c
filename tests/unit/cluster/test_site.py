"""Slurm's answers are read as Slurm writes them, and a machine without Slurm is told so."""

from __future__ import annotations

import shutil
from math import inf
from pathlib import Path

import pytest
import yaml

from headroom.cluster import profile as profiles
from headroom.cluster.check import check, file_system
from headroom.cluster.site import Site, minutes, number
from headroom.cluster.start import before_jobs
from headroom.config.models import Resources

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("written", "value"),
    [("infinite", inf), ("2-00:00:00", 2880), ("1-12:30:00", 2190), ("12:00:00", 720), ("30:00", 30), ("0:30", 0.5)],
)
def test_time_limits_are_read_as_minutes(written: str, value: float) -> None:
    assert minutes(written) == value


def test_a_count_of_unequal_nodes_is_their_least() -> None:
    assert (number("64+"), number("7"), number("(null)")) == (64, 7, 0)


def test_a_folder_lies_on_the_innermost_mount(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"disk / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nother {tmp_path}y ext4 rw 0 0\n")
    assert file_system(tmp_path / "project", table) == "nfs4"
    assert file_system(Path("/etc"), table) == "ext4"
    assert file_system(Path("/etc"), tmp_path / "none") == "?"


def test_without_slurms_commands_the_rest_is_still_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = {finding.about: finding for finding in check(PROJECT, "smoke", PROJECT / "slurm")}
    assert found["slurm"].state == "missing"
    assert "sbatch" in found["slurm"].text
    assert "login node" in found["slurm"].remedy
    assert found["profile"].state == found["plugin"].state == found["disk"].state == "ok"
    assert "partition" not in found
    assert Site().version.ok is False


def test_a_start_without_slurms_commands_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    before_jobs("local")
    with pytest.raises(SystemExit, match=r"executor slurm: not on the PATH: sinfo.*login node.*make slurm-check"):
        before_jobs("slurm", "sacct")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such profile"),
        ("executor: local", "'local' is not 'slurm'"),
        ("- a", "holds no keys"),
        ("executor: slurm\ndefault-resources: [a=1]", "default-resources: write it as NAME: VALUE"),
        ("executor: slurm\nslurm-partition-config: config.yaml", "has no table `partitions`"),
        ("a: b: c", "mapping values are not allowed"),
    ],
)
def test_a_profile_that_cannot_work_is_one_line(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(profiles.ProfileError) as refused:
        profiles.load(tmp_path)
    assert words in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path.name}/config.yaml: ")


def test_a_job_without_a_gpu_leaves_the_gpu_partition_by_itself(tmp_path: Path) -> None:
    written = {
        "executor": "slurm", "slurm-partition-config": "config.yaml", "slurm-requeue": True,
        "partitions": {"cpu": {"max_runtime": "2d"}, "gpu": {"max_gpu": 4, "max_runtime": "2d"}},
        "default-resources": {"slurm_account": "'mine'"},
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    profile = profiles.load(tmp_path)
    large, small = Resources(threads=16, mem_mb=9000, runtime=90, gpu=4), Resources(threads=16, mem_mb=9000, runtime=90)
    assert profile.partition_of(profile.job("grpo", large)) == "gpu"
    assert profile.partition_of(profile.job("grpo", small)) == "cpu"
    command = profile.submission(profile.job("grpo", large), tmp_path)
    assert command[0] == "sbatch"
    for words in (["-A", "mine"], ["-p", "gpu"], ["-t", "90"], ["--mem", "9000"], ["-D", str(tmp_path)]):
        assert command[command.index(words[0]) + 1] == words[1]
    assert {"--requeue", "--cpus-per-task=16", "--gpus=4"} <= set(command)
