"""What the benchmarks promise, held at a size that a test can afford."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_graft_and_a_control_peak_below_thirteen_tenths_of_the_largest_shard():
    found = benchmark("graft_memory").measure(160)
    for kind in ("graft", "control"):
        assert found[kind]["peak_over_largest_shard"] < 1.3


@pytest.mark.slow
def test_our_route_to_the_effective_rank_takes_a_quarter_of_the_cpu_time_of_an_svd_at_most():
    code = f"import json, sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import effective_rank; "
    code += "print(json.dumps(effective_rank.compare(repeats=3)))"
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | one_thread, capture_output=True, text=True, check=True
    )
    for name, row in json.loads(done.stdout).items():
        assert row["torch_float32_over_ours"] >= 4, name
        assert row["torch_float64_over_ours"] >= 4, name
        assert abs(row["ours_rank"] - row["torch_float64_rank"]) < 0.1, name
