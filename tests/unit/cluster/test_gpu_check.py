"""``make gpu-check`` on a processor: the whole path on a tiny shape, and each of its checks made to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from headroom.cluster import gpu_check, gpu_parity
from headroom.cluster.gpu_parity import Check
from headroom.cluster.gpu_random import Codec, MadeUpPages, random_model, shape_config, supervised_turns
from headroom.measure.edit import Swap
from headroom.measure.graft import overlay
from headroom.measure.groups import select
from headroom.measure.weights import open_checkpoint

PROJECT = Path(__file__).parents[3]
PHASES = ["build", "sft step", "save, load", "rollout", "grpo step", "save", "graft", "rank", "parity"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(PROJECT / "src")}
    command = [sys.executable, "-m", "headroom.cluster.gpu_check", *options]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def config() -> dict[str, object]:
    return shape_config("tiny")


@pytest.fixture(scope="module")
def turns(config):
    return supervised_turns(MadeUpPages(), Codec(config["vocab_size"]))


def test_the_whole_path_runs_on_a_processor_and_writes_the_table_and_the_checks(tmp_path: Path) -> None:
    done = run("--shape", "tiny", "--device", "cpu", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    table = pd.read_csv(tmp_path / "gpu-check.csv")
    assert table["phase"].tolist() == PHASES
    assert table["seconds"].between(0, 600).all()
    assert table["peak_allocated_bytes"].isna().all(), "a processor has no allocator to ask"
    report = json.loads((tmp_path / "gpu-check.json").read_text())
    assert report["torch"] == torch.__version__
    assert report["trainer"]["precision"] == "bfloat16_masters"
    assert len(report["checks"]) == 13
    assert all(check["holds"] and np.isfinite(check["value"]) for check in report["checks"])


def test_without_a_gpu_it_ends_with_one_line_and_writes_nothing(tmp_path: Path) -> None:
    done = run("--output", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu-check: torch ")
    assert "sees no GPU here" in line
    assert list(tmp_path.iterdir()) == []


def test_odd_options_are_one_line_before_any_work(tmp_path: Path) -> None:
    for device in ("gpu", "cuda:1", ""):
        with pytest.raises(SystemExit, match="say cuda or cpu"):
            gpu_check.main("tiny", device, False, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"--output .*/file: cannot be written"):
        gpu_check.main("tiny", "cpu", False, tmp_path / "file")


def test_a_shape_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    done = run("--shape", "gpt-9", "--device", "cpu", "--output", str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu-check: --shape gpt-9: is none of tiny, qwen3-1.7b, qwen3-4b")


def test_a_gpu_that_is_too_small_is_refused_by_the_plan_before_anything_is_built(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    monkeypatch.setattr(gpu_check.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**11))
    full, adapters = gpu_check.paper_trainer(), gpu_check.paper_trainer(lora=True)
    shape = shape_config("qwen3-4b")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (39 * 2**30, 40 * 2**30))
    with pytest.raises(
        ValueError, match=r"Some GPU: 39 of 40 GiB are free, but .* \(update\) needs 7\d; take a larger"
    ):
        gpu_check.room("qwen3-4b", shape, full)
    gpu_check.room("qwen3-4b", shape, adapters)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (79 * 2**30, 80 * 2**30))
    gpu_check.room("qwen3-4b", shape, full)
    monkeypatch.setattr(gpu_check.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**10))
    with pytest.raises(ValueError, match=r"two checkpoints of qwen3-4b need 16 GB; set TMPDIR"):
        gpu_check.room("qwen3-4b", shape, full)


@pytest.mark.parametrize(("value", "holds"), [(0.1, True), (0.2, True), (0.3, False), (float("nan"), False)])
def test_a_check_holds_up_to_its_limit_and_never_for_what_is_no_number(value: float, holds: bool) -> None:
    assert Check("a", value, 0.2).holds is holds


def test_other_weights_on_one_side_break_both_parities(monkeypatch, config, turns) -> None:
    assert all(check.holds for check in gpu_parity.device_parity(config, "cpu", turns))
    made = iter(range(100))
    monkeypatch.setattr(gpu_parity, "random_model", lambda config, device: random_model(config, device, next(made)))
    assert not gpu_parity.device_parity(config, "cpu", turns)[0].holds
    assert not all(check.holds for check in gpu_parity.precision_parity(config, "cpu", turns))


def test_tensors_of_the_wrong_checkpoint_are_counted(config, tmp_path: Path) -> None:
    for name, seed in (("base", 0), ("donor", 1)):
        gpu_check.write(random_model(config, "cpu", seed), tmp_path / name)
    base, donor = open_checkpoint(tmp_path / "base"), open_checkpoint(tmp_path / "donor")
    model = random_model(config, "cpu", 2)
    assert gpu_check._misplaced(model, base, donor) == 4
    overlay(model, Swap(frozenset()), base, donor)
    assert gpu_check._misplaced(model, base, donor) == 2
    overlay(model, Swap(select(base, ["attention"])), base, donor)
    assert gpu_check._misplaced(model, base, donor) == 0
    assert gpu_check._misplaced(model, base, base) == 4, "a donor that moved nothing shows nothing"


def test_a_rank_outside_of_what_its_rows_allow_is_seen() -> None:
    assert gpu_check._outside(3.0, 6) == 0.0
    assert gpu_check._outside(0.5, 6) == 0.5
    assert gpu_check._outside(7.0, 6) == 1.0
    assert gpu_check._outside(float("nan"), 6) == float("inf")
