"""A job that was given less than its rule asked for stops before it works, and says both numbers and the remedy."""

from __future__ import annotations

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headroom.provenance import allotment, record


@pytest.fixture(autouse=True)
def _devices_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def give(monkeypatch: pytest.MonkeyPatch, asked: str, *, devices: int = 0, memory: int = 80_000) -> None:
    """What the rule asked for, and a machine with so many GPUs of so many megabytes."""
    monkeypatch.setenv(allotment.VARIABLE, asked)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    card = SimpleNamespace(name="Card X", total_memory=memory * 10**6)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)


def test_fewer_gpus_than_asked_is_one_line_with_both_numbers_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give(monkeypatch, "grpo:gpu=4,gpu_mem_mb=0,disk_mb=1", devices=1)
    with pytest.raises(SystemExit) as stopped:
        allotment.require(tmp_path)
    text = str(stopped.value)
    assert "asked for 4 GPUs, torch sees 1" in text
    assert "CUDA_VISIBLE_DEVICES '0,1'" in text
    assert "--set-resources grpo:gpu=0" in text
    assert "\n" not in text


def test_a_smaller_gpu_than_asked_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, "grpo:gpu=2,gpu_mem_mb=75000,disk_mb=1", devices=2, memory=40_000)
    with pytest.raises(SystemExit, match="asked for 75000 MB on each GPU, Card X has 40000 MB"):
        allotment.require(tmp_path)


def test_less_free_disk_than_asked_is_said_for_the_folder_that_is_to_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give(monkeypatch, "grpo:gpu=0,disk_mb=200000")
    usage = namedtuple("usage", "total used free")(10**12, 10**12 - 5 * 10**9, 5 * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage if Path(path) == tmp_path else None)
    with pytest.raises(SystemExit) as stopped:
        allotment.require(tmp_path / "grpo" / "grid-05")
    text = str(stopped.value)
    assert "asked for 200000 MB of free disk, 5000 MB are free" in text
    assert "--set-resources grpo:disk_mb=N" in text


def test_what_was_asked_and_given_passes_and_the_devices_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, "grpo:gpu=2,gpu_mem_mb=75000,disk_mb=1", devices=2)
    allotment.require(tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_job_that_asked_for_no_gpu_sees_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, "grpo:gpu=0,disk_mb=1", devices=2)
    allotment.require(tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_a_job_started_by_hand_takes_what_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, "", devices=1)
    allotment.require(tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("text", ["grpo", "grpo:gpu=x", "grpo:gpu=1,disk_mb", "gpu=1", ":gpu=1", "grpo:gpu=1;rm"])
def test_a_variable_that_no_rule_wrote_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(allotment.VARIABLE, text)
    with pytest.raises(ValueError, match="HEADROOM_ASKED"):
        allotment.asked()


def test_the_attempt_is_logged_as_failed_with_the_line_and_the_resume_state_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    output = Path("results/tiny/grpo/x")
    monkeypatch.delenv(allotment.VARIABLE, raising=False)
    with record.job("train.reward", output) as job:
        state = job.scratch("steps") / "state"
        (output / "table.csv").write_text("x")
    state.parent.mkdir(parents=True)
    state.write_text("kept")
    give(monkeypatch, "grpo:gpu=1,disk_mb=1")
    worked = False
    with (
        pytest.raises(SystemExit, match=r"train\.reward: asked for 1 GPU, torch sees 0"),
        record.job("train.reward", output),
    ):
        worked = True
    assert not worked
    lines = [json.loads(line) for line in Path("results/tiny/attempts.jsonl").read_text().splitlines()]
    assert (lines[-1]["ending"], "torch sees 0" in lines[-1]["error"]) == ("failed", True)
    assert state.read_text() == "kept"
