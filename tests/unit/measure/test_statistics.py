"""Paired statistics: hand-worked numbers, degenerate data, and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.measure.statistics import (
    clusters,
    equivalence,
    holm,
    mcnemar_exact,
    minimum_detectable_effect,
    smallest_sign_test_effect,
)

DIFFERENCES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([-1.0, 0.0, 1.0])), min_size=2, max_size=40
)


def spread(gained: int, lost: int, pairs: int, tasks: int = 11) -> tuple[list[str], list[float]]:
    """``pairs`` differences dealt round-robin to tasks: gains first, then losses, then ties."""
    values = [1.0] * gained + [-1.0] * lost + [0.0] * (pairs - gained - lost)
    return [f"task-{place % tasks:02d}" for place in range(pairs)], values


def test_mcnemar_reproduces_the_published_p_values() -> None:
    assert mcnemar_exact(2, 0) == 0.5  # best run of the gate: 2:0 discordant
    assert mcnemar_exact(13, 2) == pytest.approx(0.00739, abs=1e-5)  # headroom control: 13:2


def test_mcnemar_without_discordant_pairs_is_one() -> None:
    assert mcnemar_exact(0, 0) == 1.0


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_symmetric_and_a_probability(gained: int, lost: int) -> None:
    p = mcnemar_exact(gained, lost)
    assert p == mcnemar_exact(lost, gained)
    assert 0.0 < p <= 1.0


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="negative"):
        mcnemar_exact(-1, 3)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert (adjusted >= np.asarray(p_values)).all()
    assert (adjusted <= 1.0).all()
    assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()


def test_holm_skips_missing_p_values() -> None:
    adjusted = holm([0.02, math.nan, 0.03])
    assert np.isnan(adjusted[1])
    assert adjusted[[0, 2]] == pytest.approx([0.04, 0.04])


def test_one_page_a_task_gives_the_ordinary_standard_error() -> None:
    values = np.array([1.0, 0.0, 0.0, -1.0, 1.0, 0.0])
    grouped = clusters(list("abcdef"), values)
    assert grouped.clustered_error == pytest.approx(values.std(ddof=1) / math.sqrt(6))
    assert grouped.clustered_error == pytest.approx(grouped.pooled_error)


def test_pages_that_agree_within_tasks_widen_the_standard_error() -> None:
    together = clusters(["a"] * 5 + ["b"] * 5 + ["c"] * 5, [1.0] * 5 + [0.0] * 10)
    assert together.clustered_error == pytest.approx(1 / 3)  # three tasks, means 1, 0, 0
    assert together.clustered_error > 2 * together.pooled_error


@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(data: list[tuple[str, float]], random: object) -> None:
    shuffled = list(data)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, two = (clusters([t for t, _ in d], [v for _, v in d]) for d in (data, shuffled))
    assert one.standard_error == pytest.approx(two.standard_error, abs=1e-15)
    assert one.mean == two.mean


@given(DIFFERENCES)
def test_swapping_the_policies_flips_the_sign_and_keeps_everything_else(data: list[tuple[str, float]]) -> None:
    tasks, values = [t for t, _ in data], np.array([v for _, v in data])
    forth, back = clusters(tasks, values), clusters(tasks, -values)
    assert forth.mean == -back.mean
    assert forth.standard_error == pytest.approx(back.standard_error)
    p, q = equivalence(forth, 0.1), equivalence(back, 0.1)
    assert (math.isnan(p) and math.isnan(q)) or p == pytest.approx(q)


@pytest.mark.parametrize("tasks", [["a"], ["a", "b"]])
def test_empty_or_unequal_or_infinite_data_are_refused(tasks: list[str]) -> None:
    with pytest.raises(ValueError, match="one value a task"):
        clusters(tasks, [])
    with pytest.raises(ValueError, match="not finite"):
        clusters(tasks, [math.nan] * len(tasks))


def test_no_discordant_pair_is_equivalent_only_with_enough_pages() -> None:
    many, few = clusters(*spread(0, 0, 275)), clusters(*spread(0, 0, 22))
    assert equivalence(many, 0.05) == pytest.approx(0.95**275)
    assert equivalence(few, 0.05) == pytest.approx(0.95**22)
    assert equivalence(few, 0.05) > 0.05


def test_a_difference_beyond_the_margin_is_never_equivalent() -> None:
    assert equivalence(clusters(*spread(40, 0, 275)), 0.05) > 0.5
    assert equivalence(clusters(["a", "b"], [1.0, 1.0]), 0.05) == 1.0


def test_the_equivalence_margin_must_be_positive() -> None:
    with pytest.raises(ValueError, match="margin"):
        equivalence(clusters(["a", "b"], [0.0, 0.0]), 0.0)


@given(st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_a_wider_margin_is_easier_to_meet(one: float, two: float) -> None:
    data = clusters(*spread(5, 3, 110))
    narrow, wide = sorted((one, two))
    assert equivalence(data, narrow) >= equivalence(data, wide)


def test_identical_policies_do_not_promise_to_detect_anything() -> None:
    same = clusters(*spread(0, 0, 275))
    effect = minimum_detectable_effect(same, 0.95, 0.8, binary=True)
    assert effect == smallest_sign_test_effect(275, 0.95, 0.8)
    assert 0.02 < effect < 0.04


def test_the_sign_test_floor_has_the_stated_power() -> None:
    effect = smallest_sign_test_effect(275, 0.95, 0.8)
    rejected = np.random.default_rng(1).binomial(275, effect, size=200_000) >= 6
    assert rejected.mean() == pytest.approx(0.8, abs=0.005)
    assert mcnemar_exact(6, 0) <= 0.05 < mcnemar_exact(5, 0)


def test_five_pages_can_never_detect_an_effect() -> None:
    assert math.isnan(smallest_sign_test_effect(5, 0.95, 0.8))


def test_more_noise_between_tasks_raises_the_detectable_effect() -> None:
    tasks = [f"task-{place // 25:02d}" for place in range(275)]
    even = np.resize([1.0, -1.0, 0.0, 0.0, 0.0], 275)
    lumpy = np.repeat([1.0, -1.0, 0.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0], 25)
    effects = [minimum_detectable_effect(clusters(tasks, values), 0.95, 0.8, binary=True) for values in (even, lumpy)]
    assert effects[1] > 4 * effects[0]


def test_one_task_falls_back_on_its_pages() -> None:
    alone = clusters(["a"] * 25, [1.0] * 5 + [0.0] * 20)
    assert math.isnan(alone.clustered_error)
    assert alone.standard_error == alone.pooled_error > 0
    assert alone.degrees_of_freedom == 24
    assert 0.0 < equivalence(alone, 0.5) < 0.05


def test_a_single_page_decides_nothing() -> None:
    single = clusters(["a"], [0.0])
    assert equivalence(single, 0.05) == pytest.approx(0.95)
    assert math.isnan(minimum_detectable_effect(single, 0.95, 0.8, binary=True))
