"""What goes wrong on a cluster ends early, says why and where to look, and leaves the study to go on from there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow]
TARGET = "results/smoke/demonstrations/manifest.json"
ONCE = ("--retries", "0", "--slurm-init-seconds-before-status-checks", "9")


@pytest.fixture(scope="module")
def without_gpu(sent) -> subprocess.CompletedProcess[str]:
    """A job that asked for a GPU: Slurm gives it one, and no program can use it here."""
    return sent.snakemake(TARGET, *ONCE, "--set-resources", "demonstrations:gpu=1")


def test_a_job_without_the_gpu_it_asked_for_stops_with_both_numbers(without_gpu) -> None:
    assert without_gpu.returncode != 0
    text = without_gpu.stdout + without_gpu.stderr
    assert re.search(r"train\.demonstrations: asked for 1 GPU, torch sees 0 \(.*CUDA_VISIBLE_DEVICES '\d'\)", text)
    assert "--set-resources demonstrations:gpu=0" in text


def test_the_logs_of_a_failed_job_are_named_and_there(without_gpu, sent) -> None:
    text = without_gpu.stdout + without_gpu.stderr
    assert "Error in rule demonstrations:" in text
    assert "results/smoke/logs/demonstrations.log" in text
    named = re.findall(r"\S*\.snakemake/slurm_logs/rule_demonstrations/\d+\.log", text)
    assert named
    assert "asked for 1 GPU" in Path(named[0]).read_text()
    assert not (sent.folder / TARGET).exists()


def test_a_job_without_the_disk_it_asked_for_stops_with_both_numbers(sent) -> None:
    done = sent.snakemake(TARGET, *ONCE, "--set-resources", "demonstrations:disk_mb=999999999")
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert re.search(r"train\.demonstrations: asked for 999999999 MB of free disk, \d+ MB are free", text)


def test_a_missing_partition_is_the_sites_word_for_it_and_sends_nothing(sent) -> None:
    before = len(sent.cluster.jobs())
    done = sent.snakemake(TARGET, *ONCE, "--default-resources", "slurm_partition=nowhere")
    assert done.returncode != 0
    assert "invalid partition specified: nowhere" in done.stdout + done.stderr
    assert len(sent.cluster.jobs()) == before


def test_asking_an_accounting_that_does_not_exist_is_refused_before_any_job(sent) -> None:
    before = len(sent.cluster.jobs())
    done = sent.snakemake(TARGET, *ONCE, "--slurm-status-command", "sacct")
    assert done.returncode != 0
    assert "no job would be seen to end: uncomment both lines in slurm/config.yaml" in done.stdout + done.stderr
    assert len(sent.cluster.jobs()) == before
