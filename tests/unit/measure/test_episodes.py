"""Episode tables and pairing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_episodes import episode

from headroom.agent.episode import Episode
from headroom.files import write_parquet
from headroom.measure import episodes


def table(*played: Episode, policy: str = "p") -> pd.DataFrame:
    return episodes.table(played, policy=policy, mode="greedy")


def test_a_row_says_what_happened() -> None:
    row = episodes.table([episode()], policy="sft", mode="greedy", task_sets={"mastered": ["a"]}).iloc[0]
    assert row[["policy", "task", "task_set", "seed", "mode", "sample"]].tolist() == [
        "sft", "a", "mastered", 1, "greedy", 0,
    ]  # fmt: skip
    assert (row["turns"], row["invalid"], row["success"], row["ending"]) == (2, 1, True, "done")
    assert row["actions"] == ['click button "Ok"', "??"]
    assert row["outcomes"] == ["ok", "malformed"]


def test_a_task_outside_the_sets_has_no_set_and_one_in_both_is_refused() -> None:
    assert episodes.table([episode("z")], policy="p", mode="greedy")["task_set"].tolist() == [""]
    with pytest.raises(ValueError, match="belongs to one"):
        episodes.table([], policy="p", mode="greedy", task_sets={"mastered": ["a"], "headroom": ["a"]})


def test_an_empty_table_has_the_columns_and_types() -> None:
    empty = table()
    assert list(empty.columns) == episodes.COLUMNS
    assert empty["success"].dtype == bool
    assert empty["raw_reward"].dtype == np.float32


def test_the_order_of_play_does_not_change_the_bytes(tmp_path: Path) -> None:
    played = [episode(task, seed) for task in "cab" for seed in (3, 1, 2)]
    write_parquet(tmp_path / "one.parquet", table(*played))
    write_parquet(tmp_path / "two.parquet", table(*reversed(played)))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_an_episode_that_occurs_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="occur twice"):
        table(episode(), episode())


def test_pairs_hold_both_outcomes_on_the_same_page() -> None:
    reference = table(episode(seed=1, success=True), episode(seed=2, success=False))
    policy = table(episode(seed=2, success=True), episode(seed=1, success=False))
    pairs, excluded = episodes.pair(reference, policy)
    assert pairs[["seed", "reference", "policy"]].to_numpy().tolist() == [[1, True, False], [2, False, True]]
    assert excluded == 0


def test_unequal_episodes_are_refused_with_what_is_missing_on_each_side() -> None:
    reference, policy = table(episode(seed=1), episode(seed=2)), table(episode(seed=2), episode(seed=3))
    with pytest.raises(ValueError) as error:
        episodes.pair(reference, policy)
    assert "1 episodes ((a, 1, greedy, 0)) missing from the policy" in str(error.value)
    assert "1 episodes ((a, 3, greedy, 0)) missing from the reference" in str(error.value)


def test_a_long_list_of_missing_episodes_is_cut() -> None:
    with pytest.raises(ValueError, match=r"30 episodes .*\.\.\.\) missing from the policy, none missing from the ref"):
        episodes.pair(table(*(episode(seed=seed) for seed in range(31))), table(episode(seed=0)))


@pytest.mark.parametrize("side", ["reference", "policy", "both"])
def test_an_infrastructure_failure_on_either_side_drops_the_pair_with_a_count(side: str) -> None:
    reference = table(episode(seed=1, broken=side != "policy"), episode(seed=2))
    policy = table(episode(seed=1, broken=side != "reference"), episode(seed=2))
    pairs, excluded = episodes.pair(reference, policy)
    assert pairs["seed"].tolist() == [2]
    assert excluded == 1


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_pairs_and_exclusions_add_up_and_swapping_sides_swaps_columns(rows: list[tuple[bool, bool, bool]]) -> None:
    left = table(*(episode(seed=n, success=a, broken=broken) for n, (a, _, broken) in enumerate(rows)))
    right = table(*(episode(seed=n, success=b) for n, (_, b, _) in enumerate(rows)))
    forth, dropped = episodes.pair(left, right)
    back, dropped_back = episodes.pair(right, left)
    assert len(forth) + dropped == len(rows)
    assert dropped == dropped_back == sum(broken for *_, broken in rows)
    assert forth["reference"].tolist() == back["policy"].tolist()


def test_a_missing_or_foreign_file_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="run the evaluation"):
        episodes.read(tmp_path)
    write_parquet(tmp_path / "episodes.parquet", pd.DataFrame({"task": ["a"]}))
    with pytest.raises(SystemExit, match="lacks the columns policy"):
        episodes.read(tmp_path)


def test_a_table_survives_the_file(tmp_path: Path) -> None:
    frame = table(episode(), episode(seed=2, success=False))
    write_parquet(tmp_path / "episodes.parquet", frame)
    again = episodes.read(tmp_path)
    assert [list(actions) for actions in again["actions"]] == frame["actions"].tolist()
    pd.testing.assert_frame_equal(
        again.drop(columns=["actions", "outcomes"]), frame.drop(columns=["actions", "outcomes"])
    )
