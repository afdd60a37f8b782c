"""pass@k and the mixed share against enumeration of all subsets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.measure.passk import mixed_share, pass_at_k


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int]:
    samples = draw(st.integers(1, 8))
    return samples, draw(st.integers(0, samples)), draw(st.integers(1, samples))


@given(counts())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case: tuple[int, int, int]) -> None:
    samples, successes, k = case
    subsets = list(combinations([True] * successes + [False] * (samples - successes), k))
    assert pass_at_k(samples, successes, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@given(counts())
def test_the_mixed_share_is_the_share_of_subsets_with_both(case: tuple[int, int, int]) -> None:
    samples, successes, k = case
    subsets = list(combinations([True] * successes + [False] * (samples - successes), k))
    both = sum(any(s) and not all(s) for s in subsets)
    assert mixed_share(samples, successes, k) == pytest.approx(both / len(subsets))


@given(counts())
def test_pass_at_k_grows_with_k(case: tuple[int, int, int]) -> None:
    samples, successes, k = case
    assert pass_at_k(samples, successes, 1) == pytest.approx(successes / samples)
    if k > 1:
        assert pass_at_k(samples, successes, k) >= pass_at_k(samples, successes, k - 1)


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not() -> None:
    chance, samples, k = 0.2, 8, 4
    successes = np.random.default_rng(0).binomial(samples, chance, 40_000)
    truth = 1 - (1 - chance) ** k
    ours = np.mean([pass_at_k(samples, int(c), k) for c in successes])
    plug_in = np.mean(1 - (1 - successes / samples) ** k)
    assert ours == pytest.approx(truth, abs=0.006)
    assert plug_in < truth - 0.02


@pytest.mark.parametrize("case", [(8, 9, 1), (8, -1, 1), (8, 2, 9), (8, 2, 0)])
def test_impossible_counts_are_refused(case: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        pass_at_k(*case)
