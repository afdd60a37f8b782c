"""Our update against TRL's on the same batch and model, in the same process: a ratio, never an absolute time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch


@pytest.mark.slow
def test_our_update_is_at_least_as_fast_as_that_of_trl() -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "grpo_step.py"
    spec = importlib.util.spec_from_file_location("grpo_step", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    torch.set_num_threads(1)
    for row in benchmark.compare(groups=4, size=8):
        assert row["trl_over_ours"] >= 1.0, row
