"""What goes wrong on a cluster ends early, says why and where to look, and leaves the study to go on from there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow]
TARGETS = ("results/smoke/demonstrations/manifest.json", "results/smoke/overlap/manifest.json")


@pytest.fixture(scope="module")
def starved(sent) -> subprocess.CompletedProcess[str]:
    """Two jobs: one asked for a GPU that no program can use here, the other for more disk than there is."""
    asked = ("demonstrations:gpu=1", "overlap:disk_mb=999999999")
    return sent.snakemake(
        *TARGETS, "--retries", "0", "--slurm-init-seconds-before-status-checks", "5", "--set-resources", *asked
    )


def test_a_job_without_the_gpu_it_asked_for_stops_with_both_numbers(starved) -> None:
    assert starved.returncode != 0
    text = starved.stdout + starved.stderr
    assert re.search(r"train\.demonstrations: asked for 1 GPU, torch sees 0 \(.*CUDA_VISIBLE_DEVICES '\d'\)", text)
    assert "--set-resources demonstrations:gpu=0" in text


def test_a_job_without_the_disk_it_asked_for_stops_with_both_numbers(starved) -> None:
    text = starved.stdout + starved.stderr
    assert re.search(r"measure\.overlap: asked for 999999999 MB of free disk, \d+ MB are free", text)


def test_the_logs_of_failed_jobs_are_named_and_there(starved, sent) -> None:
    text = starved.stdout + starved.stderr
    for rule in ("demonstrations", "overlap"):
        assert f"Error in rule {rule}:" in text
        assert f"results/smoke/logs/{rule}.log" in text
        named = re.findall(rf"\S*\.snakemake/slurm_logs/rule_{rule}/\d+\.log", text)
        assert named
        assert "asked for" in Path(named[0]).read_text()
    assert not (sent.folder / TARGETS[0]).exists()


def test_a_missing_partition_is_the_sites_word_for_it_and_sends_nothing(sent) -> None:
    before = len(sent.cluster.jobs())
    done = sent.snakemake(TARGETS[0], "--retries", "0", "--default-resources", "slurm_partition=nowhere")
    assert done.returncode != 0
    assert "invalid partition specified: nowhere" in done.stdout + done.stderr
    assert len(sent.cluster.jobs()) == before
