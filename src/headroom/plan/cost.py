"""Seconds of what is counted: a fit on measured steps, its error, and the rates of a GPU that nobody here measured.

A phase costs ``flops / rate + calls x launch``, both coefficients non-negative, fitted to relative errors on the rows
of ``benchmarks/cost.csv`` (processor seconds of a tiny model on one core). Its error is left-one-out: each row is
predicted by the fit of all others; the interval holds 95% of new rows if the logarithms of those ratios are normal.

The *form* of the cost (how it grows with group size, turns, prompts, model) is measured. The *rates* of a GPU are
assumed from its data sheet with a wide range, until the scale has runs of its own: then their records replace them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, stats

from headroom.plan.work import Work

if TYPE_CHECKING:
    import pandas as pd

PHASES = ("generate", "update")
LEVEL = 0.95


@dataclass(frozen=True)
class Fit:
    """Of one phase: ``flops`` a second, seconds a block pass, and the interval of measured over predicted."""

    rate: float
    launch: float
    low: float
    high: float
    rows: int
    worst: float

    def seconds(self, flops: float, calls: float) -> float:
        """Predicted."""
        return flops / self.rate + calls * self.launch

    def described(self) -> dict[str, float | int]:
        """For a JSON file."""
        return {key: float(f"{value:.4g}") for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Rates:
    """What a device does a second. ``low`` and ``high`` multiply seconds: 95% of the fit, or an assumed range."""

    generate_flops: float
    update_flops: float
    generate_launch: float
    update_launch: float
    bandwidth: float | None
    low: float
    high: float
    source: str


def coefficients(flops: np.ndarray, calls: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Seconds a floating-point operation and seconds a pass: the non-negative fit of least squared relative error."""
    design = np.column_stack([flops, calls]) / seconds[:, None]
    scale = design.max(axis=0)
    found, _ = optimize.nnls(design / scale, np.ones(len(seconds)))
    return tuple(found / scale)


def fit(table: pd.DataFrame, phase: str) -> Fit:
    """Fit one phase of the measured table, and leave each row out in turn.

    Raises:
        ValueError: fewer than four rows.
    """
    rows = table[table["phase"] == phase]
    flops, calls, seconds = (rows[name].to_numpy(float) for name in ("flops", "calls", "cpu_seconds"))
    if len(rows) < 4:
        raise ValueError(f"benchmarks/cost.csv: {len(rows)} rows of phase {phase!r}; type: python benchmarks/cost.py")
    ratios = []
    for left in range(len(rows)):
        kept = np.arange(len(rows)) != left
        per_flop, launch = coefficients(flops[kept], calls[kept], seconds[kept])
        ratios.append(seconds[left] / (flops[left] * per_flop + calls[left] * launch))
    low, high = interval(np.array(ratios))
    per_flop, launch = coefficients(flops, calls, seconds)
    worst = max(max(ratio, 1 / ratio) for ratio in ratios)
    return Fit(1 / per_flop if per_flop else math.inf, launch, low, high, len(rows), float(worst))


@dataclass(frozen=True)
class Whole:
    """Whole GRPO jobs of the tiny scale: ``start`` seconds, and how many times the counted seconds of model and world
    they really take. Equal turns of a group are computed and played once, and groups without an advantage teach
    nothing, so both are below 1; how far below depends on the policy. The interval is left-one-out."""

    start: float
    model: float
    world: float
    low: float
    high: float
    rows: int

    def seconds(self, model: float, world: float) -> float:
        """Predicted."""
        return self.start + self.model * model + self.world * world


def whole(table: pd.DataFrame) -> Whole:
    """Fit ``cpu_seconds`` of whole jobs on their ``model_seconds`` and ``world_seconds``.

    Raises:
        ValueError: fewer than six rows.
    """
    if len(table) < 6:
        raise ValueError(f"benchmarks/cost_runs.csv: {len(table)} rows are too few; python benchmarks/cost.py RESULTS")
    design = np.column_stack([np.ones(len(table)), table["model_seconds"], table["world_seconds"]])
    measured = table["cpu_seconds"].to_numpy(float)

    def fitted(kept: np.ndarray) -> np.ndarray:
        return optimize.nnls(design[kept] / measured[kept, None], np.ones(int(kept.sum())))[0]  # type: ignore[no-any-return]

    every = np.arange(len(table))
    ratios = np.array([measured[left] / (design[left] @ fitted(every != left)) for left in every])
    start, model, world = fitted(every >= 0)
    return Whole(float(start), float(model), float(world), *interval(ratios), len(table))


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """Where a new ratio falls with probability 95%, their logarithms taken as normal."""
    logarithms = np.log(ratios)
    spread = stats.t.ppf((1 + LEVEL) / 2, len(ratios) - 1) * logarithms.std(ddof=1) * math.sqrt(1 + 1 / len(ratios))
    return float(np.exp(logarithms.mean() - spread)), float(np.exp(logarithms.mean() + spread))


def processor(fits: Mapping[str, Fit], whole: Whole | None = None) -> Rates:
    """One core, as measured; the interval is that of whole jobs where they were measured."""
    generate, update = fits["generate"], fits["update"]
    low, high = min(generate.low, update.low), max(generate.high, update.high)
    source = f"measured on one core, {generate.rows} + {update.rows} points"
    if whole is not None:
        low, high, source = whole.low, whole.high, f"{source} and {whole.rows} whole runs"
    rates = (generate.rate, update.rate, generate.launch, update.launch)
    return Rates(*rates, None, low, high, f"{source}, left-one-out")


@dataclass(frozen=True)
class Gpu:
    """A device by its data sheet; the shares of it that a job reaches are assumed, and so is their range."""

    name: str
    bfloat16_flops: float
    float32_flops: float
    bandwidth: float
    memory: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100-40gb", 312e12, 19.5e12, 1.56e12, 40e9),
        Gpu("a100-80gb", 312e12, 19.5e12, 2.04e12, 80e9),
        Gpu("h100-80gb", 989e12, 67e12, 3.35e12, 80e9),
        Gpu("h200-141gb", 989e12, 67e12, 4.8e12, 141e9),
    )
}
"""Dense peaks without sparsity, NVIDIA's data sheets."""

UPDATE_SHARE, GENERATE_SHARE, BANDWIDTH_SHARE, LAUNCH = 0.30, 0.15, 0.5, 3e-4
"""Assumed shares of the peak for an update and a prefill, of the bandwidth for a decoding pass, and seconds a block
pass takes to launch about twenty kernels."""
ASSUMED_RANGE = (0.5, 2.5)
"""Assumed: by how much the assumptions may be wrong, as a factor on seconds."""


def assumed(gpu: Gpu, fits: Mapping[str, Fit], *, low_precision: bool) -> Rates:
    """A GPU by assumption; the error of the form, which was measured, widens the assumed range."""
    peak = gpu.bfloat16_flops if low_precision else gpu.float32_flops
    low = ASSUMED_RANGE[0] * min(fit.low for fit in fits.values())
    high = ASSUMED_RANGE[1] * max(fit.high for fit in fits.values())
    return Rates(
        GENERATE_SHARE * peak, UPDATE_SHARE * peak, LAUNCH, LAUNCH, BANDWIDTH_SHARE * gpu.bandwidth, low, high,
        f"assumed from the data sheet of {gpu.name}",
    )  # fmt: skip


def seconds(work: Work, rates: Rates, *, weight_bytes: float, processes: int = 1) -> float:
    """Of the model's side of a job on ``processes`` devices: each takes its share of the episodes and turns.

    Launches are not shared: every process runs every pass, on fewer rows.
    """
    generate = work.generate_flops / rates.generate_flops / processes
    if rates.bandwidth is not None:  # a decoding pass is never faster than reading the weights
        generate += work.weight_reads * weight_bytes / rates.bandwidth
    update = work.update_flops / rates.update_flops / processes
    return generate + update + work.generate_calls * rates.generate_launch + work.update_calls * rates.update_launch


def recorded(results: Path) -> list[dict[str, float | str]]:
    """Stage, output, processor and wall seconds of every finished job under a folder of results, by its run record."""
    found: list[dict[str, float | str]] = []
    for path in sorted(results.rglob("run.json")):
        try:
            record = json.loads(path.read_bytes())
            usage = record["usage"]
            row = {
                "stage": record["stage"],
                "job": path.parent.relative_to(results).as_posix(),
                "cpu_seconds": float(usage["cpu_seconds"]),
                "wall_seconds": float(usage["wall_seconds"]),
                "host_bytes": float(usage["peak_memory_bytes"]),
            }
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if record.get("ending") in ("finished", "diverged") and not record.get("earlier_attempts"):
            found.append(row)
    return found
