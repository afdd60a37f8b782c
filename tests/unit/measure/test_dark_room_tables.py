"""The dark room's tables: endpoints, their intervals, and the first warning."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from headroom.config.jobs import DarkRoomArm, DarkRoomJob, dump_job
from headroom.config.models import Statistics
from headroom.files import write_parquet, write_text
from headroom.measure import dark_room
from headroom.measure.failing_groups import GROUPS, group_rows, signs
from headroom.measure.shares import newcombe, wilson
from headroom.train.dark_room import FAILING


def steps(count: int = 20, *, collapsing: bool = False) -> pd.DataFrame:
    number = np.arange(count)
    fall = (number >= count // 2) if collapsing else np.zeros(count, dtype=bool)
    return pd.DataFrame(
        {
            "step": number,
            "entropy": np.where(fall, 0.1, 1.0),
            "prediction_score": np.where(fall, 0.95, 0.4),
            "horizon_share": np.where(fall, 1.0, 0.3),
            "spread_failing_prediction": 0.04,
            "all_fail_groups": 0.5,
        }
    )


def validation(successes: list[float | None], every: int = 5, episodes: int = 32) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": [every * number for number in range(len(successes))],
            "episodes": [episodes if value is not None else 0 for value in successes],
            "success": successes,
            "turns": [10.0 if value is not None else None for value in successes],
            "invalid_share": [0.1 if value is not None else None for value in successes],
            "prediction_score": [0.5 if value is not None else None for value in successes],
            "anchor_score": [0.75 if value is not None else None for value in successes],
            "confidence": [0.25 if value is not None else None for value in successes],
            "excluded": [0] * len(successes),
        }
    )


@pytest.mark.parametrize(("hits", "episodes"), [(0, 32), (16, 32), (32, 32), (1, 7)])
def test_the_interval_of_a_run_is_statsmodels_wilson(hits: int, episodes: int) -> None:
    found = wilson(hits / episodes, episodes, 0.95)
    assert (found.low, found.high) == pytest.approx(proportion_confint(hits, episodes, method="wilson"), abs=1e-12)
    assert found.low <= hits / episodes <= found.high


def test_no_episode_has_no_interval() -> None:
    assert math.isnan(wilson(math.nan, 0, 0.95).low)
    assert math.isnan(newcombe(0.5, 32, math.nan, 0, 0.95).low)


@pytest.mark.parametrize("counts", [(0, 32, 16, 32), (32, 32, 0, 32), (3, 40, 9, 24), (0, 32, 0, 32)])
def test_the_interval_of_two_runs_is_statsmodels_newcombe(counts: tuple[int, int, int, int]) -> None:
    one, first, two, second = counts
    found = newcombe(one / first, first, two / second, second, 0.95)
    expected = confint_proportions_2indep(one, first, two, second, method="newcomb", compare="diff")
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)


def test_the_entropy_alone_warns_when_its_window_has_fallen_whatever_the_other_signs() -> None:
    whole = steps(40, collapsing=True)
    first = signs(whole)["entropy_step"]
    assert 21 <= first <= dark_room.warned(whole)
    assert signs(whole.assign(prediction_score=0.0, horizon_share=0.0))["entropy_step"] == first
    assert math.isnan(signs(steps(40))["entropy_step"])
    assert math.isnan(signs(steps(9, collapsing=True))["entropy_step"]), "there are not two windows"


def test_the_signals_spread_counts_as_much_as_there_are_failing_groups() -> None:
    table = steps(4).assign(all_fail_groups=[1.0, 0.5, 0.0, 0.0], spread_failing_prediction=[0.1, 0.1, None, None])
    assert signs(table)["signal_in_failing"] == pytest.approx((0.1 + 0.05) / 4)


def test_each_failing_group_has_its_row_and_a_run_without_a_signal_none(tmp_path: Path) -> None:
    lists = [[0.1, 0.2], [], [0.3]]
    table = steps(3).assign(**{name: [[10 * k + v for v in row] for row in lists] for k, name in enumerate(FAILING)})
    write_parquet(tmp_path / "steps.parquet", table)
    found = group_rows(pd.read_parquet(tmp_path / "steps.parquet"))
    assert list(found.columns) == GROUPS
    assert found["step"].tolist() == [0, 0, 2]
    assert found["spread"].tolist() == [0.1, 0.2, 0.3]
    assert found["signal_advantage_doubled"].tolist() == pytest.approx([30.1, 30.2, 30.3])
    assert group_rows(steps(3)).empty
    assert group_rows(steps(2).assign(**{name: [[], []] for name in FAILING})).empty


def test_the_endpoint_is_the_mean_of_the_last_validations_with_the_interval_of_one_of_them() -> None:
    course = dark_room.curve(steps(), validation([0.9, 0.1, 0.2, 0.3, 0.4]))
    found = dark_room.endpoint(course, math.nan, 2, 0.95)
    assert found["success"] == pytest.approx(0.35)
    assert found["episodes"] == 32
    assert (found["success_low"], found["success_high"]) == pytest.approx(
        tuple(proportion_confint(0.35 * 32, 32, method="wilson"))
    )
    assert (found["prediction_score"], found["anchor_score"], found["confidence"]) == (0.5, 0.75, 0.25)
    assert dark_room.endpoint(course, math.nan, 99, 0.95)["validations"] == 5


def test_a_policy_that_can_play_no_more_counts_as_failure_and_not_as_missing() -> None:
    course = dark_room.curve(steps(), validation([0.5, 0.5, None, None]))
    assert course["success"].tolist() == [0.5, 0.5, 0.0, 0.0]
    assert dark_room.endpoint(course, math.nan, 2, 0.95)["success"] == 0.0


def test_what_a_run_was_before_it_lost_its_probabilities_is_no_part_of_its_end() -> None:
    course = dark_room.curve(steps(), validation([0.5, 0.5, 0.5, 0.5, None]))
    found = dark_room.endpoint(course, math.nan, 4, 0.95)
    assert (found["success"], found["success_low"]) == (0.0, 0.0)
    assert found["success_high"] == pytest.approx(dark_room.wilson(0.0, 32, 0.95).high)


def test_an_infrastructure_failure_is_no_silence() -> None:
    table = validation([0.5, None]).assign(excluded=[0, 32])
    assert math.isnan(dark_room.curve(steps(), table)["success"].iloc[1])


def test_training_between_two_validations_belongs_to_the_later_one() -> None:
    own = steps(10).assign(entropy=np.arange(10.0))
    course = dark_room.curve(own, validation([0.1, 0.2, 0.3]))
    assert math.isnan(course["entropy"].iloc[0]), "the first comes before any step"
    assert course["entropy"].tolist()[1:] == [2.0, 7.0]


def test_a_warning_needs_all_three_signs_at_once() -> None:
    whole = steps(40, collapsing=True)
    first = dark_room.warned(whole)
    assert 21 <= first <= 26
    for name in dark_room.SIGNS:
        assert math.isnan(dark_room.warned(whole.assign(**{name: steps(40)[name]}))), name
    assert math.isnan(dark_room.warned(whole.assign(prediction_score=None))), "a run that predicts nothing"


ARMS = {
    "arm-01": DarkRoomArm(arm="baseline", seed=0, last=2),
    "arm-02": DarkRoomArm(arm="baseline", seed=1, last=2),
    "arm-03": DarkRoomArm(arm="baseline", seed=2, last=2),
    "arm-04": DarkRoomArm(arm="prediction", seed=0, last=2),
}


def test_an_arm_with_seeds_has_an_interval_over_them_and_one_without_that_of_its_run() -> None:
    courses = {
        run: dark_room.curve(steps(), validation([0.5, value, value]))
        for run, value in zip(ARMS, (0.4, 0.5, 0.6, 0.0), strict=True)
    }
    table, curves = dark_room.tabulate(ARMS, courses, {**dict.fromkeys(ARMS, math.nan), "arm-04": 15.0}, 0.95)
    assert table["row"].tolist() == ["run"] * 4 + ["arm"] * 2
    baseline, prediction = (
        table[(table["row"] == "arm") & (table["arm"] == arm)].iloc[0] for arm in table["arm"].unique()
    )
    assert (baseline["success"], baseline["seeds"], baseline["interval_method"]) == (pytest.approx(0.5), 3, "seeds")
    assert baseline["success_high"] - 0.5 == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    run = table[table["run"] == "arm-04"].iloc[0]
    assert (prediction["success_low"], prediction["success_high"]) == (run["success_low"], run["success_high"])
    assert (prediction["interval_method"], prediction["warned"], prediction["warning_step"]) == ("wilson", 1, 15.0)
    assert len(curves) == 12


def test_seeds_that_agree_exactly_have_the_interval_of_their_episodes() -> None:
    rows = [dark_room.endpoint(dark_room.curve(steps(), validation([0.5, 0.0])), math.nan, 1, 0.95) for _ in range(3)]
    found = dark_room.arm_row(pd.DataFrame(rows), 0.95)
    expected = dark_room.wilson(0.0, 96, 0.95)
    assert (found["success_low"], found["success_high"]) == (expected.low, expected.high)
    assert found["interval_method"] == "wilson"


def test_the_stage_writes_its_tables_and_refuses_a_run_that_is_not_named(tmp_path: Path) -> None:
    results = tmp_path / "results" / "dark-room-smoke"
    folders = [results / "grpo" / run for run in ARMS]
    for folder in folders:
        own = steps() if folder.name != "arm-04" else steps().assign(**{name: [[0.5]] * 20 for name in FAILING})
        write_parquet(folder / "steps.parquet", own)
        write_parquet(folder / "validation.parquet", validation([0.5, 0.25]))
    config = results / "config" / "dark_room.json"
    write_text(config, dump_job(DarkRoomJob(arms=ARMS, statistics=Statistics())))
    dark_room.main(folders, config, results / "dark_room")
    assert len(pd.read_csv(results / "dark_room" / "dark_room.csv")) == 6
    assert len(pd.read_csv(results / "dark_room" / "validation.csv")) == 8
    assert pd.read_csv(results / "dark_room" / "signs.csv")["run"].tolist() == list(ARMS)
    groups = pd.read_csv(results / "dark_room" / "failing_groups.csv")
    assert (groups["run"].unique().tolist(), len(groups)) == (["arm-04"], 20)
    with pytest.raises(SystemExit, match="no directory of arm-04"):
        dark_room.main(folders[:3], config, results / "dark_room")
    (folders[0] / "validation.parquet").unlink()
    with pytest.raises(SystemExit, match=r"validation\.parquet: cannot be read"):
        dark_room.main(folders, config, results / "dark_room")
