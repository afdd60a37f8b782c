"""Failure kinds: each failure has exactly one, the rules are the docstring's, shares add up."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.config.models import Statistics
from headroom.measure.failures import (
    INVALID_KINDS,
    KINDS,
    classify,
    ends_in_a_loop,
    failure_table,
    kind_of,
    shortest_successes,
)

OK, UNKNOWN, MALFORMED = "ok", "unknown target", "malformed"


def kind(ending, outcomes, actions=None, shortest=2):
    texts = actions if actions is not None else [str(i) for i in range(len(outcomes))]
    return kind_of(ending=ending, actions=texts, outcomes=outcomes, shortest=shortest)


def test_half_of_the_turns_invalid_is_an_invalid_failure_whatever_the_ending():
    assert kind("horizon", [OK, UNKNOWN]) == ("invalid", UNKNOWN)
    assert kind("done", [MALFORMED, MALFORMED, OK]) == ("invalid", MALFORMED)
    assert kind("done", [OK, OK, MALFORMED])[0] != "invalid"


def test_the_most_frequent_invalid_outcome_names_the_sub_kind_and_ties_go_by_order():
    assert kind("horizon", [MALFORMED, UNKNOWN, MALFORMED]) == ("invalid", MALFORMED)
    assert kind("horizon", [MALFORMED, UNKNOWN]) == ("invalid", UNKNOWN)


@pytest.mark.parametrize(
    ("actions", "loops"),
    [("abccc", True), ("abcc", False), ("xababab", True), ("ababa", False), ("abcabcabc", True), ("abcdabcd", False)],
)
def test_a_loop_is_a_short_cycle_played_three_times_at_the_end(actions, loops):
    assert ends_in_a_loop(list(actions)) == loops
    expected = "loop" if loops else "out of turns"
    assert kind("horizon", [OK] * len(actions), list(actions)) == (expected, "")


def test_stopping_before_any_success_could_is_premature_and_later_is_a_wrong_target():
    assert kind("done", [OK], shortest=2) == ("premature stop", "")
    assert kind("done", [OK, OK], shortest=2) == ("wrong target", "")
    assert kind("done", [OK, UNKNOWN, OK, OK], shortest=4) == ("premature stop", "")  # an invalid turn is no progress
    assert kind("done", [OK], shortest=None) == ("wrong target", "")


@given(
    st.sampled_from(["done", "horizon"]),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([OK, *INVALID_KINDS])), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_every_failure_has_exactly_one_kind_and_only_invalid_ones_a_sub_kind(ending, turns, shortest):
    found, sub = kind(ending, [o for _, o in turns], [a for a, _ in turns], shortest)
    assert found in KINDS
    assert (sub in INVALID_KINDS) == (found == "invalid")


def test_an_infrastructure_failure_is_refused():
    with pytest.raises(ValueError, match="no failure of the policy"):
        kind("infrastructure", [OK])


def row(policy, task, seed, success, ending="done", outcomes=(OK,), actions=None, mode="greedy"):
    return {
        "policy": policy,
        "task": task,
        "task_set": "mastered",
        "seed": seed,
        "mode": mode,
        "sample": 0,
        "success": success,
        "ending": ending,
        "turns": len(outcomes),
        "invalid": sum(o != OK for o in outcomes),
        "actions": list(actions or map(str, range(len(outcomes)))),
        "outcomes": list(outcomes),
    }


@pytest.fixture
def frame():
    return pd.DataFrame(
        [
            row("sft", "a", 0, True, outcomes=(OK, OK, UNKNOWN)),
            row("sft", "a", 1, True, outcomes=(OK,) * 5),
            row("sft", "b", 0, False, outcomes=(OK,)),
            row("rl", "a", 0, False, outcomes=(OK,)),
            row("rl", "a", 1, False, outcomes=(OK,) * 3),
            row("rl", "b", 0, False, "horizon", (UNKNOWN,) * 4),
            row("rl", "b", 1, False, "infrastructure", ()),
            row("rl", "b", 0, True, mode="sampled"),
        ]
    )


def test_the_shortest_success_is_by_page_and_then_by_task_and_counts_valid_turns(frame):
    pages, tasks = shortest_successes(frame)
    assert pages == {("a", 0): 2, ("a", 1): 5, ("b", 0): 1}
    assert tasks == {"a": 2, "b": 1}
    kinds = classify(frame).set_index(["policy", "task", "seed"])["kind"]
    assert kinds.loc[("rl", "a", 0)] == "premature stop"
    assert kinds.loc[("rl", "a", 1)] == "premature stop"
    assert kinds.loc[("sft", "b", 0)] == "wrong target"
    assert kinds.loc[("sft", "a", 0)] == ""


def test_infrastructure_and_sampled_episodes_are_not_classified(frame):
    assert len(classify(frame)) == 6


def test_shares_of_the_kinds_add_up_to_one_and_sub_kinds_to_invalid(frame):
    table = failure_table(classify(frame), {"sft": ["sft"], "collapse": ["rl"]}, {"rl": 1}, Statistics())
    for _, own in table.groupby("policy"):
        kinds = own[own["invalid_kind"] == ""]
        assert kinds["kind"].tolist() == list(KINDS)
        assert kinds["share_of_failures"].sum() == pytest.approx(1)
        subs = own[own["invalid_kind"] != ""]
        assert subs["count"].sum() == kinds.loc[kinds["kind"] == "invalid", "count"].sum()
        assert ((kinds["rate_ci_low"] <= kinds["rate"]) & (kinds["rate"] <= kinds["rate_ci_high"])).all()
    collapse = table[(table["policy"] == "rl") & (table["invalid_kind"] == "")].set_index("kind")
    assert collapse.loc["invalid", "share_of_failures"] == pytest.approx(1 / 3)
    assert (collapse["excluded"] == 1).all()
    assert (collapse["episodes"] == 3).all()


def test_a_regime_of_several_runs_has_a_row_over_all_of_them(frame):
    other = frame[frame["policy"] == "rl"].assign(policy="rl2")
    both = pd.concat([frame, other], ignore_index=True)
    table = failure_table(classify(both), {"collapse": ["rl", "rl2"]}, {}, Statistics())
    assert set(table["policy"]) == {"rl", "rl2", "all"}
    of = table[table["invalid_kind"] == ""].set_index(["policy", "kind"])["count"]
    for name in KINDS:
        assert of[("all", name)] == 2 * of[("rl", name)]
