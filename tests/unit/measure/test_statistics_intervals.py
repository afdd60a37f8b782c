"""Intervals: coverage by simulation, degenerate data, invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headroom.measure.intervals import (
    crossed_interval,
    expanded_tail,
    page_interval,
    seed_interval,
    task_interval,
    two_way_error,
)
from headroom.measure.statistics import Clusters, clusters, equivalence

OPTIONS = {"confidence": 0.95, "draws": 2000, "seed": 7}


def study(
    generator: np.random.Generator, *, tasks: int, pages: int, mean: float, between: float, discordant: float
) -> tuple[Clusters, float]:
    """One clustered study: a task's difference is normal around ``mean``, clipped to what its discordance allows.

    Returns the data and the task effects' realised mean (the estimand for these tasks).
    """
    effects = np.clip(generator.normal(mean, between, tasks), -discordant, discordant)
    gained = generator.binomial(pages, (discordant + effects) / 2)
    lost = generator.binomial(pages - gained, ((discordant - effects) / 2) / (1 - (discordant + effects) / 2))
    values = np.concatenate(
        [np.repeat([1.0, -1.0, 0.0], [g, n, pages - g - n]) for g, n in zip(gained, lost, strict=True)]
    )
    return clusters(np.repeat([f"task-{t:02d}" for t in range(tasks)], pages).tolist(), values), float(effects.mean())


def coverage(studies: int, *, tasks: int, mean: float, between: float, discordant: float) -> float:
    """Share of 95% intervals that hold the population's mean effect."""
    generator = np.random.default_rng(20)
    truth = float(np.clip(generator.normal(mean, between, 10**6), -discordant, discordant).mean())
    hits = 0
    for _ in range(studies):
        data, _ = study(generator, tasks=tasks, pages=25, mean=mean, between=between, discordant=discordant)
        bounds = task_interval(data, **OPTIONS)
        hits += bounds.low <= truth <= bounds.high
    return hits / studies


DESIGNS = {
    "no effect, no clustering": {"mean": 0.0, "between": 0.0, "discordant": 0.1},
    "harm that differs between tasks": {"mean": -0.15, "between": 0.2, "discordant": 0.4},
    "headroom gain that differs between tasks": {"mean": 0.22, "between": 0.2, "discordant": 0.5},
    "small gain": {"mean": 0.02, "between": 0.05, "discordant": 0.1},
}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_task_interval_covers_in_eleven_tasks_of_twenty_five_pages(design: str) -> None:
    assert 0.92 <= coverage(800, tasks=11, **DESIGNS[design]) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 10, 11, 20])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_task_interval_covers_in_many_designs(design: str, tasks: int) -> None:
    """With five tasks, Student's t on the larger of two standard errors overcovers where tasks do not differ."""
    assert 0.93 <= coverage(4000, tasks=tasks, **DESIGNS[design]) <= (0.97 if tasks > 5 else 1.0)


def test_the_plain_percentile_interval_would_undercover() -> None:
    """The reason for the expanded percentile: the same simulation, read at alpha/2."""
    generator, hits, weights = np.random.default_rng(20), 0, None
    for _ in range(800):
        data, _ = study(generator, tasks=11, pages=25, mean=0.0, between=0.1, discordant=0.4)
        weights = np.random.default_rng(7).multinomial(11, np.full(11, 1 / 11), 2000) if weights is None else weights
        low, high = np.quantile(weights @ data.sums / 275, [0.025, 0.975])
        hits += low <= 0.0 <= high
    assert hits / 800 < 0.93


def test_the_equivalence_test_keeps_its_error_rate_on_the_margin() -> None:
    generator = np.random.default_rng(3)
    wrong = sum(
        equivalence(study(generator, tasks=11, pages=25, mean=0.05, between=0.05, discordant=0.3)[0], 0.05) <= 0.05
        for _ in range(1500)
    )
    assert wrong / 1500 <= 0.07  # nominal .05, simulation error .006; some mass of the clipped effect is inside


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 6])
@pytest.mark.parametrize(("between_seeds", "between_tasks"), [(0.03, 0.03), (0.1, 0.02), (0.02, 0.1), (0.0, 0.0)])
def test_the_two_way_interval_covers_over_seeds_and_tasks(
    seeds: int, between_seeds: float, between_tasks: float
) -> None:
    generator, hits = np.random.default_rng(4), 0
    for _ in range(3000):
        table = (
            generator.normal(0, between_seeds, (seeds, 1))
            + generator.normal(0, between_tasks, (1, 11))
            + generator.normal(0, 0.07, (seeds, 11))
        )
        error, freedom = two_way_error(table)
        hits += abs(table.mean()) <= stats.t.ppf(0.975, freedom) * error
    assert hits / 3000 >= 0.93


@pytest.mark.slow
def test_the_seed_interval_covers_over_seeds() -> None:
    generator = np.random.default_rng(5)
    bounds = [seed_interval(generator.normal(0.1, 0.05, 6), 0.95) for _ in range(4000)]
    assert np.mean([b.low <= 0.1 <= b.high for b in bounds]) == pytest.approx(0.95, abs=0.012)


def test_resampling_tasks_inside_seeds_afresh_would_hide_the_task_effects() -> None:
    """The reason for the crossed bootstrap: a task effect that all seeds share does not average away."""
    table = np.tile(np.linspace(-0.3, 0.3, 11), (6, 1))
    crossed = crossed_interval(table, **OPTIONS)
    by_task = np.std(table[0]) / math.sqrt(11)
    assert crossed.high - crossed.low == pytest.approx(2 * 1.96 * by_task, rel=0.1)


data_lists = st.lists(
    st.tuples(st.sampled_from([f"t{n}" for n in range(9)]), st.sampled_from([-1.0, -0.125, 0.0, 0.5, 1.0])),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(data_lists, st.randoms(use_true_random=False))
def test_the_interval_holds_its_estimate_stays_in_range_and_ignores_order(
    data: list[tuple[str, float]], random: object
) -> None:
    values = clusters([t for t, _ in data], [v for _, v in data])
    bounds = task_interval(values, confidence=0.95, draws=300, seed=1)
    if len(data) > 1:
        assert -1.0 <= bounds.low <= values.mean <= bounds.high <= 1.0
    shuffled = list(data)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = task_interval(
        clusters([t for t, _ in shuffled], [v for _, v in shuffled]), confidence=0.95, draws=300, seed=1
    )
    assert (again.low, again.high) == (bounds.low, bounds.high)


def test_equal_seeds_give_equal_intervals_and_other_seeds_other_ones() -> None:
    data, _ = study(np.random.default_rng(0), tasks=11, pages=25, mean=0.1, between=0.1, discordant=0.4)
    one, two, other = (task_interval(data, confidence=0.95, draws=500, seed=seed) for seed in (1, 1, 2))
    assert one == two != other


def test_the_bootstrap_leaves_the_global_random_state_alone() -> None:
    before = np.random.get_state()[1].copy()
    data, _ = study(np.random.default_rng(0), tasks=11, pages=5, mean=0.1, between=0.1, discordant=0.4)
    task_interval(data, confidence=0.95, draws=501, seed=99)
    assert (np.random.get_state()[1] == before).all()


def test_no_discordant_pair_gives_the_binomial_bound_not_a_point() -> None:
    bounds = task_interval(clusters([f"t{n % 11}" for n in range(275)], [0.0] * 275), **OPTIONS)
    assert bounds.method == "exact"
    assert bounds.high == -bounds.low == pytest.approx(1 - 0.025 ** (1 / 275))


def test_a_total_collapse_is_bounded_by_minus_one() -> None:
    bounds = task_interval(clusters([f"t{n % 11}" for n in range(275)], [-1.0] * 275), **OPTIONS)
    assert bounds.low == -1.0
    assert -1.0 < bounds.high < -0.96


def test_tasks_that_agree_exactly_fall_back_on_their_pages() -> None:
    tasks = [f"t{n // 4}" for n in range(40)]
    bounds = task_interval(clusters(tasks, [1.0, 0.0, 0.0, 0.0] * 10), **OPTIONS)
    assert bounds.method == "t"
    assert bounds.low < 0.25 < bounds.high


def test_few_tasks_use_student_t() -> None:
    bounds = task_interval(clusters(list("aabbcc"), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]), **OPTIONS)
    assert bounds.method == "t"
    assert bounds.low < 0.0 < bounds.high


def test_one_page_says_almost_nothing() -> None:
    bounds = task_interval(clusters(["a"], [0.0]), **OPTIONS)
    assert bounds.high - bounds.low > 1.9


def test_the_page_interval_is_the_task_interval_of_one_page_a_task() -> None:
    values = np.random.default_rng(2).choice([-1.0, 0.0, 1.0], 25)
    pages = page_interval(values, **OPTIONS)
    tasks = task_interval(clusters([f"t{n:02d}" for n in range(25)], values), **OPTIONS)
    assert (pages.low, pages.high) == pytest.approx((tasks.low, tasks.high))


def test_without_pages_there_is_no_interval() -> None:
    assert math.isnan(page_interval([], **OPTIONS).low)


def test_the_expanded_tail_tends_to_the_nominal_one() -> None:
    tails = [expanded_tail(0.95, size) for size in (6, 11, 100, 100_000)]
    assert tails == sorted(tails)
    assert tails[-1] == pytest.approx(0.025, abs=1e-5)


def test_a_single_seed_has_no_seed_interval() -> None:
    assert math.isnan(seed_interval([0.1], 0.95).low)
    assert math.isnan(two_way_error([[0.1, 0.2]])[0])


def test_seeds_that_agree_leave_the_task_error_and_its_degrees_of_freedom() -> None:
    row = np.random.default_rng(3).normal(0, 0.1, 11)
    assert two_way_error(np.tile(row, (6, 1))) == pytest.approx((row.std(ddof=1) / math.sqrt(11), 10))


def test_tasks_that_agree_leave_the_seed_error_and_its_degrees_of_freedom() -> None:
    column = np.random.default_rng(3).normal(0, 0.1, 6)
    assert two_way_error(np.tile(column[:, None], (1, 11))) == pytest.approx((column.std(ddof=1) / math.sqrt(6), 5))


def test_equal_cells_have_no_two_way_error() -> None:
    assert two_way_error(np.full((6, 11), 0.1)) == (0.0, 5)
