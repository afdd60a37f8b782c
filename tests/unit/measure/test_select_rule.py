"""The selection rule as a pure function of the candidates' numbers."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_episodes import episode

from headroom.config.models import Tasks
from headroom.measure import episodes
from headroom.measure.select import candidates, choose


def rule(mastered: int = 2, headroom: int = 2, names: str = "abcdefgh") -> Tasks:
    return Tasks(candidates=tuple(names), mastered=mastered, headroom=headroom)


def numbers(**of: tuple[float, float]) -> pd.DataFrame:
    """task -> (greedy, sampled)."""
    return pd.DataFrame(
        [
            {"task": task, "pages": 20, "greedy": g, "sampled": s, "gap": s - g, "mixed_share": 0.5, "excluded": 0}
            for task, (g, s) in of.items()
        ]
    )


def chosen(table: pd.DataFrame, role: str) -> list[str]:
    return table.loc[table["chosen_as"] == role, "task"].tolist()


def test_the_mastered_set_is_the_window_nearest_to_its_mean_not_the_best_tasks() -> None:
    table = choose(numbers(a=(1, 1), b=(1, 1), c=(0.95, 0.9), d=(0.85, 0.8), e=(0.7, 0.6), f=(0.1, 0.3)), rule())
    assert chosen(table, "mastered") == ["c", "d"]  # mean .90; a and b have no errors left


def test_a_task_whose_errors_sampling_never_reaches_is_not_mastered_while_others_qualify() -> None:
    table = numbers(a=(1, 1), b=(0.9, 0.9), c=(0.9, 0.8), d=(0.85, 0.8), e=(0.1, 0.3), f=(0.1, 0.2))
    assert chosen(choose(table, rule()), "mastered") == ["b", "c"]
    table.loc[table["task"].isin(["a", "b"]), "mixed_share"] = 0.0
    of = choose(table, rule()).set_index("task")
    assert of.index[of["chosen_as"] == "mastered"].tolist() == ["c", "d"]
    assert "never reaches" in of.loc["b", "reason"]
    filled = choose(table, rule(mastered=4)).set_index("task")
    assert filled.index[filled["chosen_as"] == "mastered"].tolist() == ["a", "b", "c", "d"]  # a has no errors
    assert filled.index[filled["filled"] & (filled["chosen_as"] == "mastered")].tolist() == ["b"]


def test_the_headroom_set_has_the_largest_gaps_and_ties_go_by_name() -> None:
    table = choose(numbers(a=(0.9, 0.9), b=(0.9, 0.9), c=(0.2, 0.5), d=(0.3, 0.5), e=(0.1, 0.3), f=(0.0, 0.1)), rule())
    assert chosen(table, "headroom") == ["c", "d"]  # d and e tie at .2
    assert not table["filled"].any()
    assert "not among the 2 largest" in table.set_index("task").loc["e", "reason"]


def test_a_task_that_samples_below_greedy_is_not_headroom() -> None:
    table = choose(numbers(a=(0.9, 0.9), b=(0.9, 0.9), c=(0.5, 0.2), d=(0.3, 0.5), e=(0.1, 0.2)), rule())
    assert chosen(table, "headroom") == ["d", "e"]
    assert "not above it" in table.set_index("task").loc["c", "reason"]


def test_too_few_qualifying_tasks_are_filled_by_the_nearest_and_flagged() -> None:
    table = choose(numbers(a=(0.6, 0.6), b=(0.5, 0.4), c=(0.9, 0.9), d=(0.1, 0.1)), rule(names="abcd"))
    assert chosen(table, "mastered") == ["a", "c"]
    assert chosen(table, "headroom") == ["b", "d"]
    flags = table.set_index("task")["filled"].to_dict()
    assert flags == {"a": True, "b": True, "c": False, "d": True}


def test_a_task_without_scored_episodes_comes_last() -> None:
    table = choose(
        numbers(a=(math.nan, math.nan), b=(0.0, 0.0), c=(0.9, 0.9), d=(0.1, 0.2), e=(0.3, 0.2)),
        rule(mastered=1, headroom=3, names="abcde"),
    )
    assert chosen(table, "headroom") == ["b", "d", "e"]
    assert table.set_index("task").loc["a", "reason"] == "no scored episodes"


shares = st.integers(0, 20).map(lambda successes: successes / 20)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(shares, shares), min_size=8, max_size=8),
    st.permutations(range(8)),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_the_sets_are_disjoint_full_reasoned_and_independent_of_order(
    of: list[tuple[float, float]], order: list[int], mastered: int, headroom: int
) -> None:
    table = numbers(**dict(zip("abcdefgh", of, strict=True)))
    first = choose(table, rule(mastered, headroom))
    assert (len(chosen(first, "mastered")), len(chosen(first, "headroom"))) == (mastered, headroom)
    assert (first["reason"].str.len() > 0).all()
    proper = first[~first["filled"]]
    assert (proper.loc[proper["chosen_as"] == "mastered", "greedy"] >= 0.7).all()
    headroom_rows = proper[proper["chosen_as"] == "headroom"]
    assert ((headroom_rows["greedy"] <= 0.7) & (headroom_rows["gap"] > 0)).all()
    pd.testing.assert_frame_equal(choose(table.iloc[list(order)], rule(mastered, headroom)), first)


def test_candidates_are_counted_from_episodes_and_infrastructure_failures_left_out() -> None:
    greedy = [episode("a", 1), episode("a", 2, success=False), episode("a", 3, broken=True)]
    sampled = [episode("a", seed, sample, success=sample == 0) for seed in (1, 2) for sample in range(4)]
    frame = pd.concat(
        [
            episodes.table(greedy, policy="sft", mode="greedy"),
            episodes.table(sampled, policy="sft", mode="sampled"),
        ]
    )
    row = candidates(frame, ("a", "b")).set_index("task")
    assert row.loc["a"].to_dict() == pytest.approx(
        {"pages": 2, "greedy": 0.5, "sampled": 0.25, "gap": -0.25, "mixed_share": 1.0, "excluded": 1}
    )
    assert math.isnan(row.loc["b", "greedy"])
