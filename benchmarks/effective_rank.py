"""Effective rank by our route (float64 Gram eigenvalues) beside ``torch.linalg.svdvals``, same matrix, CPU time.

Three matrices of 1024 x 3072 (noise, a decaying spectrum, nearly rank one), each measured in turns on one thread;
the best of several, so that a busy machine does not decide. torch runs in float32, its fastest, and in float64, our
precision. Writes ``effective_rank.json`` beside this file.

    python benchmarks/effective_rank.py
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from headroom.files import write_json
from headroom.measure.spectrum import matrix_ranks, ranks

SHAPE, REPEATS = (1024, 3072), 5
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Matrix = npt.NDArray[np.float32]


def matrices() -> dict[str, Matrix]:
    """The matrices, from one seed."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(SHAPE)
    outer = np.outer(rng.standard_normal(SHAPE[0]), rng.standard_normal(SHAPE[1]))
    return {
        "noise": noise.astype(np.float32),
        "decaying": (noise * np.geomspace(1.0, 1e-4, SHAPE[1])).astype(np.float32),
        "nearly rank one": (1e-3 * noise + outer).astype(np.float32),
    }


def ours(matrix: Matrix) -> float:
    """Effective rank by the product's route."""
    return matrix_ranks(matrix).effective_rank


def torch_float32(matrix: Matrix) -> float:
    """Effective rank by torch, single precision."""
    return ranks(torch.linalg.svdvals(torch.from_numpy(matrix)).double().numpy() ** 2).effective_rank


def torch_float64(matrix: Matrix) -> float:
    """Effective rank by torch, double precision."""
    return ranks(torch.linalg.svdvals(torch.from_numpy(matrix).double()).numpy() ** 2).effective_rank


def compare(repeats: int = REPEATS) -> dict[str, dict[str, float]]:
    """Per matrix: effective rank and best CPU seconds of each route, and the ratios."""
    torch.set_num_threads(1)
    routes: dict[str, Callable[[Matrix], float]] = {
        "ours": ours,
        "torch_float32": torch_float32,
        "torch_float64": torch_float64,
    }
    found = {}
    for name, matrix in matrices().items():
        row: dict[str, float] = {f"{route}_seconds": float("inf") for route in routes}
        for _ in range(repeats):
            for route, measure in routes.items():
                began = time.process_time()
                row[f"{route}_rank"] = measure(matrix)
                row[f"{route}_seconds"] = min(row[f"{route}_seconds"], time.process_time() - began)
        for route in ("torch_float32", "torch_float64"):
            row[f"{route}_over_ours"] = row[f"{route}_seconds"] / row["ours_seconds"]
        found[name] = row
    return found


def main() -> None:
    """Measure, print and write."""
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):  # read by the libraries when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(ONE_THREAD, "1"))
    found = compare()
    for name, row in found.items():
        print(
            f"{name:16s} rank {row['ours_rank']:.3f} (float32 {row['torch_float32_rank']:.3f}, "
            f"float64 {row['torch_float64_rank']:.3f}); {row['ours_seconds']:.3f} CPU-s, torch "
            f"{row['torch_float32_over_ours']:.1f}x (float32), {row['torch_float64_over_ours']:.1f}x (float64)"
        )
    versions = {"numpy": np.__version__, "torch": torch.__version__, "machine": platform.machine()}
    write_json(Path(__file__).with_suffix(".json"), {"shape": SHAPE, "matrices": found, "versions": versions})


if __name__ == "__main__":
    main()
