"""The fit and its error."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headroom.plan import cost, figure
from headroom.plan.work import Work

PROJECT = Path(__file__).parents[3]


def table(noise: float = 0.0, rows: int = 12) -> pd.DataFrame:
    chance = np.random.default_rng(3)
    flops, calls = chance.uniform(1e8, 1e10, rows), chance.integers(10, 500, rows).astype(float)
    seconds = (flops / 5e10 + calls * 1e-3) * np.exp(noise * chance.standard_normal(rows))
    return pd.DataFrame({"phase": "update", "flops": flops, "calls": calls, "cpu_seconds": seconds})


def test_the_rates_that_made_the_numbers_are_found_again() -> None:
    fit = cost.fit(table(), "update")
    assert fit.rate == pytest.approx(5e10)
    assert fit.launch == pytest.approx(1e-3)
    assert fit.low == pytest.approx(1)
    assert fit.high == pytest.approx(1)


def test_the_error_is_that_of_rows_left_out_in_turn() -> None:
    rows, ratios = table(noise=0.2), []
    for left in range(len(rows)):
        per_flop, launch = cost.coefficients(
            *(rows.drop(left)[c].to_numpy() for c in ("flops", "calls", "cpu_seconds"))
        )
        out = rows.loc[left]
        ratios.append(out["cpu_seconds"] / (per_flop * out["flops"] + launch * out["calls"]))
    fit = cost.fit(rows, "update")
    logs = np.log(ratios)
    expected = stats.t.interval(
        0.95, len(logs) - 1, loc=logs.mean(), scale=logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs))
    )
    assert np.log([fit.low, fit.high]) == pytest.approx(expected)
    assert fit.worst == pytest.approx(np.exp(np.abs(logs).max()))


def test_the_interval_holds_as_many_new_rows_as_it_says() -> None:
    chance, held = np.random.default_rng(5), 0
    for _ in range(2000):
        known, new = np.exp(0.3 * chance.standard_normal(10)), math.exp(0.3 * chance.standard_normal())
        low, high = cost.interval(known)
        held += low <= new <= high
    assert 0.93 < held / 2000 < 0.97


def test_no_coefficient_is_negative() -> None:
    rows = table()
    rows["cpu_seconds"] = rows["flops"] / 5e10
    assert min(cost.coefficients(*(rows[c].to_numpy() for c in ("flops", "calls", "cpu_seconds")))) >= 0


def test_too_few_rows_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"2 rows of phase 'update'; type: python benchmarks/cost\.py"):
        cost.fit(table(rows=2), "update")


def test_the_committed_measurements_give_an_error_below_a_factor_two() -> None:
    measured = pd.read_csv(PROJECT / "benchmarks/cost.csv")
    for phase in cost.PHASES:
        fit = cost.fit(measured, phase)
        assert fit.rows >= 20
        assert 0.5 < fit.low < 1 < fit.high < 2
    runs = pd.read_csv(PROJECT / "benchmarks/cost_runs.csv")
    whole = cost.whole(runs)
    assert whole.rows >= 20
    assert 0.5 < whole.low < 1 < whole.high < 2
    ratios = runs["cpu_seconds"] / whole.seconds(runs["model_seconds"], runs["world_seconds"])
    inside = (ratios > whole.low) & (ratios < whole.high)
    assert np.mean(inside) > 0.85


def test_more_processes_take_less_but_launches_are_not_shared() -> None:
    rates = cost.assumed(cost.GPUS["a100-80gb"], {"update": cost.fit(table(), "update")}, low_precision=True)
    work = Work(generate_flops=1e15, update_flops=1e16, generate_calls=100, update_calls=100)
    one, many = (cost.seconds(work, rates, weight_bytes=8e9, processes=n) for n in (1, 10**9))
    assert many == pytest.approx(200 * cost.LAUNCH, rel=1e-3)
    assert one > 10 * many


def test_decoding_is_never_faster_than_reading_the_weights() -> None:
    rates = cost.assumed(cost.GPUS["a100-80gb"], {"update": cost.fit(table(), "update")}, low_precision=True)
    seconds = cost.seconds(Work(weight_reads=1000), rates, weight_bytes=8e9)
    assert seconds == pytest.approx(1000 * 8e9 / (cost.BANDWIDTH_SHARE * 2.04e12))


def test_the_figure_is_drawn_from_its_tables_with_bands_that_are_named(tmp_path: Path) -> None:
    measured, growth = (pd.read_csv(PROJECT / "benchmarks" / name) for name in ("cost.csv", "cost_paper.csv"))
    fits = {phase: cost.fit(measured, phase) for phase in cost.PHASES}
    figure.draw(measured, fits, growth, tmp_path / "cost.pdf")
    assert (tmp_path / "cost.pdf").read_bytes()[:5] == b"%PDF-"
    assert (tmp_path / "cost.png").stat().st_size > 20_000
    assert set(growth["axis"]) == {"runs", "group size", "turns an episode", "billion parameters", "GPUs"}
    assert (growth["gpu_hours_low"] < growth["gpu_hours"]).all()
    assert (growth["gpu_hours"] < growth["gpu_hours_high"]).all()
