"""Contrasts from synthetic episode tables."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_episodes import episode

from headroom.agent.episode import Ending
from headroom.config.models import Statistics
from headroom.files import write_csv
from headroom.measure import episodes
from headroom.measure.contrast import contrasts, page_pairs
from headroom.measure.passk import pass_at_k
from headroom.measure.run_table import read_runs
from headroom.measure.statistics import holm

STATISTICS = Statistics(bootstrap_draws=500)
SETS = {"mastered": tuple(f"m{n}" for n in range(7)), "headroom": tuple(f"h{n}" for n in range(6))}
RATES = {"low": 1e-4, "high": 3e-3}


def play(policy: str, chance: float, seed: int, *, samples: int = 0, sets: tuple[str, ...] = ("mastered",), broken=()):
    """A synthetic episode table: every task succeeds with ``chance``; ``samples`` > 0 adds sampled episodes."""
    random = np.random.default_rng(seed)
    frames = []
    for mode, count in (("greedy", 1), ("sampled", samples)):
        played = [
            episode(task, page, sample, success=bool(random.random() < chance), broken=(task, page) in broken)
            for name in sets
            for task in SETS[name]
            for page in range(10)
            for sample in range(count)
        ]
        frames.append(episodes.table(played, policy=policy, mode=mode, task_sets=SETS))  # type: ignore[arg-type]
    return episodes.ordered(pd.concat(frames))


def run_table(tmp_path: Path, rows: list[dict[str, object]]) -> pd.DataFrame:
    base = {
        "family": "grid", "tasks": "mastered", "init": "sft", "learning_rate": "low", "schedule": "constant",
        "kl_beta": 0.05, "clip_low": 0.2, "clip_high": 0.28, "group_size": 8, "seed": 0,
    }  # fmt: skip
    pd.DataFrame([{"run": f"grid-{n:02d}", **base, **row} for n, row in enumerate(rows, 1)]).to_csv(
        tmp_path / "runs.tsv", sep="\t", index=False
    )
    return read_runs(tmp_path / "runs.tsv", RATES)


def test_one_row_for_each_policy_set_and_mode_with_the_runs_settings(tmp_path: Path) -> None:
    runs = run_table(tmp_path, [{}, {"learning_rate": "high", "seed": 1}])
    both = ("mastered", "headroom")
    result = contrasts(
        play("sft", 0.8, 0, samples=4, sets=both),
        {
            "grid-02": play("grid-02", 0.3, 2),
            "grid-01": play("grid-01", 0.8, 1, samples=4, sets=both),
            "base": play("base", 0.5, 3),
        },
        runs,
        SETS,
        STATISTICS,
    )
    table = result["contrasts.csv"]
    assert table[["policy", "task_set", "mode"]].to_numpy().tolist() == [
        ["base", "mastered", "greedy"],
        ["grid-01", "mastered", "greedy"],
        ["grid-01", "mastered", "sampled"],
        ["grid-01", "headroom", "greedy"],
        ["grid-01", "headroom", "sampled"],
        ["grid-02", "mastered", "greedy"],
    ]
    last = table.iloc[-1]
    assert (last["learning_rate_level"], last["learning_rate"], last["seed"], last["pairs"]) == ("high", 3e-3, 1, 70)
    assert last["ci_high"] < 0 and not last["equivalent"]  # noqa: PT018
    assert last["difference"] == pytest.approx(last["policy_success"] - last["reference_success"])
    assert last["gained"] - last["lost"] == round(70 * last["difference"])
    assert pd.isna(table.iloc[0]["learning_rate"])


def test_sampled_rows_compare_page_means_and_leave_mcnemar_empty(tmp_path: Path) -> None:
    result = contrasts(
        play("sft", 0.5, 0, samples=8),
        {"grid-01": play("grid-01", 0.5, 1, samples=4)},  # fewer samples: the first four are compared
        run_table(tmp_path, [{}]),
        SETS,
        STATISTICS,
    )
    row = result["contrasts.csv"].set_index("mode").loc["sampled"]
    assert row["pairs"] == 70
    assert pd.isna(row["gained"])
    assert math.isnan(row["mcnemar_p"])
    assert math.isnan(row["holm_p"])
    assert not math.isnan(row["tost_p"])
    reference = play("sft", 0.5, 0, samples=8).query("mode == 'sampled' and sample < 4")
    assert row["reference_success"] == pytest.approx(reference["success"].mean())


def test_sampled_rows_hold_both_policies_pass_at_k_from_all_their_own_samples(tmp_path: Path) -> None:
    reference, policy = play("sft", 0.5, 0, samples=8), play("grid-01", 0.3, 1, samples=4)
    table = contrasts(reference, {"grid-01": policy}, run_table(tmp_path, [{}]), SETS, STATISTICS)["contrasts.csv"]
    rows = table.set_index("mode")
    assert [name for name in table if "policy_pass_at" in name] == [f"policy_pass_at_{k}" for k in (1, 2, 4)]
    for side, frame in (("reference", reference), ("policy", policy)):
        pages = frame.query("mode == 'sampled' and task_set == 'mastered'").groupby(["task", "seed"])["success"]
        for k in (1, 2, 4):
            expected = [pass_at_k(int(part.count()), int(part.sum()), k) for _, part in pages]
            assert rows.at["sampled", f"{side}_pass_at_{k}"] == pytest.approx(sum(expected) / len(expected))
            assert math.isnan(rows.at["greedy", f"{side}_pass_at_{k}"])
    assert rows.at["sampled", "policy_pass_at_1"] == pytest.approx(rows.at["sampled", "policy_success"])
    assert rows.at["sampled", "policy_pass_at_1"] < rows.at["sampled", "policy_pass_at_4"]


def test_a_page_with_too_few_scored_samples_counts_for_no_such_k_on_either_side(tmp_path: Path) -> None:
    reference, policy = play("sft", 0.5, 0, samples=4), play("grid-01", 0.5, 1, samples=4)
    first = (policy["mode"] == "sampled") & (policy["task"] == "m0") & (policy["seed"] == policy["seed"].min())
    policy.loc[first & (policy["sample"] == 3), "ending"] = str(Ending.INFRASTRUCTURE)
    pages, excluded = page_pairs(reference, policy, SETS["mastered"], "sampled")
    assert excluded == 1
    short = pages[(pages["task"] == "m0") & (pages["seed"] == pages["seed"].min())].iloc[0]
    assert pd.isna(short[["reference_pass_at_4", "policy_pass_at_4"]]).all()
    assert short[["reference_pass_at_2", "policy_pass_at_2"]].notna().all()
    assert pages["policy_pass_at_4"].isna().sum() == 1


def test_every_null_has_its_equivalence_and_its_detectable_effect(tmp_path: Path) -> None:
    reference = play("sft", 0.8, 0)
    same = reference.assign(policy="grid-01")
    row = contrasts(reference, {"grid-01": same}, run_table(tmp_path, [{}]), SETS, STATISTICS)["contrasts.csv"].iloc[0]
    assert (row["difference"], row["gained"], row["lost"], row["mcnemar_p"]) == (0.0, 0, 0, 1.0)
    assert row["ci_low"] < 0 < row["ci_high"]
    assert row["tost_p"] == pytest.approx(0.95**70)
    assert row["equivalent"]
    assert 0.08 < row["minimum_detectable_effect"] < 0.15


def test_holm_runs_within_a_family_over_greedy_rows_of_the_run_table(tmp_path: Path) -> None:
    runs = run_table(tmp_path, [{}, {"seed": 1}, {"seed": 2, "family": "collapse"}])
    policies = {name: play(name, 0.7, n) for n, name in enumerate(["grid-01", "grid-02", "grid-03", "base"], 1)}
    table = contrasts(play("sft", 0.8, 0), policies, runs, SETS, STATISTICS)["contrasts.csv"].set_index("policy")
    assert table.loc[["grid-01", "grid-02"], "holm_p"].tolist() == pytest.approx(
        holm(table.loc[["grid-01", "grid-02"], "mcnemar_p"]).tolist()
    )
    assert table.loc["grid-03", "holm_p"] == table.loc["grid-03", "mcnemar_p"]
    assert math.isnan(table.loc["base", "holm_p"])


def test_a_policy_evaluated_on_other_pages_is_refused_by_name(tmp_path: Path) -> None:
    short = play("grid-01", 0.8, 1).query("seed < 9")
    with pytest.raises(ValueError, match=r"policy grid-01, mastered greedy: .* 7 episodes"):
        contrasts(play("sft", 0.8, 0), {"grid-01": short}, run_table(tmp_path, [{}]), SETS, STATISTICS)


def test_excluded_pages_are_dropped_from_both_sides_and_counted(tmp_path: Path) -> None:
    broken = [("m0", page) for page in range(10)] + [("m1", 3)]
    result = contrasts(
        play("sft", 0.8, 0),
        {"grid-01": play("grid-01", 0.8, 1, broken=broken)},
        run_table(tmp_path, [{}]),
        SETS,
        STATISTICS,
    )
    row = result["contrasts.csv"].iloc[0]
    assert (row["pairs"], row["tasks"], row["excluded"]) == (59, 6, 11)


def test_a_policy_with_no_scored_page_has_a_row_that_decides_nothing(tmp_path: Path) -> None:
    every = [(task, page) for task in SETS["mastered"] for page in range(10)]
    result = contrasts(
        play("sft", 0.8, 0),
        {
            "grid-01": play("grid-01", 0.8, 1, broken=every),
            "grid-02": play("grid-02", 0.8, 2),
        },
        run_table(tmp_path, [{}, {"seed": 1}]),
        SETS,
        STATISTICS,
    )
    row = result["contrasts.csv"].iloc[0]
    assert (row["pairs"], row["excluded"], bool(row["equivalent"])) == (0, 70, False)
    assert len(result["replication.csv"]) == 0  # one seed with pages is no replication


def test_task_rows_average_to_the_set(tmp_path: Path) -> None:
    result = contrasts(
        play("sft", 0.8, 0), {"grid-01": play("grid-01", 0.6, 1)}, run_table(tmp_path, [{}]), SETS, STATISTICS
    )
    tasks = result["task_contrasts.csv"]
    assert len(tasks) == 7
    assert tasks["difference"].mean() == pytest.approx(result["contrasts.csv"]["difference"].iloc[0])
    assert ((tasks["ci_low"] <= tasks["difference"]) & (tasks["difference"] <= tasks["ci_high"])).all()


def test_seeds_of_equal_settings_are_joined_across_families(tmp_path: Path) -> None:
    runs = run_table(
        tmp_path,
        [{"seed": 0}, {"seed": 1}, {"seed": 2, "family": "replication"}, {"learning_rate": "high"}],
    )
    policies = {f"grid-{n:02d}": play(f"grid-{n:02d}", 0.5, n) for n in range(1, 5)}
    result = contrasts(play("sft", 0.8, 0), policies, runs, SETS, STATISTICS)
    row = result["replication.csv"].iloc[0]
    assert len(result["replication.csv"]) == 1
    assert (row["seeds"], row["tasks"], row["pairs"], row["learning_rate_level"]) == (3, 7, 210, "low")
    mean = result["contrasts.csv"].set_index("policy").loc[["grid-01", "grid-02", "grid-03"], "difference"].mean()
    assert row["difference"] == pytest.approx(mean)
    for name in ("seed", "ci", "bootstrap"):
        assert row[f"{name}_low"] <= row["difference"] <= row[f"{name}_high"]


def test_seeds_that_reproduce_the_reference_still_have_a_bounded_interval(tmp_path: Path) -> None:
    reference = play("sft", 0.8, 0)
    runs = run_table(tmp_path, [{"seed": 0}, {"seed": 1}])
    same = {name: reference.assign(policy=name) for name in runs.index}
    row = contrasts(reference, same, runs, SETS, STATISTICS)["replication.csv"].iloc[0]
    assert (row["difference"], row["seed_sd"]) == (0.0, 0.0)
    assert row["ci_low"] < 0 < row["ci_high"]
    assert row["equivalent"]
    assert row["minimum_detectable_effect"] > 0.05


def test_the_same_settings_and_seed_twice_are_refused(tmp_path: Path) -> None:
    policies = {name: play(name, 0.8, 1) for name in ("grid-01", "grid-02")}
    with pytest.raises(ValueError, match="grid-01, grid-02 have equal settings and a seed twice"):
        contrasts(play("sft", 0.8, 0), policies, run_table(tmp_path, [{}, {}]), SETS, STATISTICS)


def test_the_tables_do_not_depend_on_the_order_of_the_policies(tmp_path: Path) -> None:
    runs = run_table(tmp_path, [{}, {"seed": 1}])
    policies = {name: play(name, 0.6, n) for n, name in enumerate(["grid-01", "grid-02", "base"], 1)}
    reference = play("sft", 0.8, 0)
    for place, given in enumerate((policies, dict(reversed(policies.items())))):
        for name, table in contrasts(reference, given, runs, SETS, STATISTICS).items():
            write_csv(tmp_path / str(place) / name, table)
    for name in ("contrasts.csv", "task_contrasts.csv", "replication.csv", "init_contrasts.csv"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_a_run_table_with_faults_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="cannot be read"):
        read_runs(tmp_path / "none.tsv", RATES)
    (tmp_path / "runs.tsv").write_text("run\tfamily\na\tgrid\n")
    with pytest.raises(SystemExit, match="lacks the columns init"):
        read_runs(tmp_path / "runs.tsv", RATES)


def test_a_run_from_another_initialisation_is_also_compared_with_that_one(tmp_path: Path) -> None:
    runs = run_table(tmp_path, [{}, {"init": "base"}])
    base = play("base", 0.4, 3)
    policies = {"grid-01": play("grid-01", 0.8, 1), "grid-02": base.assign(policy="grid-02"), "base": base}
    result = contrasts(play("sft", 0.9, 0), policies, runs, SETS, STATISTICS)
    own = result["init_contrasts.csv"]
    assert own["policy"].tolist() == ["grid-02"]
    assert own["difference"].tolist() == [0.0]
    assert result["contrasts.csv"].set_index("policy").loc["grid-02", "ci_high"] < 0


def test_without_another_initialisation_that_table_is_empty_but_has_its_columns(tmp_path: Path) -> None:
    result = contrasts(
        play("sft", 0.9, 0), {"grid-01": play("grid-01", 0.8, 1)}, run_table(tmp_path, [{}]), SETS, STATISTICS
    )
    write_csv(tmp_path / "own.csv", result["init_contrasts.csv"])
    assert len(pd.read_csv(tmp_path / "own.csv")) == 0
