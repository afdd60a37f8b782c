"""The dark room's claims: every rule gives each of its verdicts from made-up arms, and says on what they rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint
from typer.testing import CliRunner

from headroom.cli import app
from headroom.config.judging import JUDGED_BY
from headroom.config.resolve import resolve
from headroom.files import write_csv, write_text
from headroom.present import claim_dark_groups as groups
from headroom.present import claim_dark_room as dark
from headroom.present.claim_arms import difference, share
from headroom.present.claim_tables import NOT_RUN, Tables
from headroom.present.claims import NOT_TESTABLE, RULES, UNTESTED, main, read_claims, verdicts
from headroom.present.claims_page import readme, restructured
from headroom.provenance.verify import figure_files

PROJECT = Path(__file__).resolve().parents[3]
CLAIMS = PROJECT / "workflow/data/claims.yaml"
MARGIN = 0.05
EPISODES = 32
NEVER = math.nan
YES, NO, OPEN = "reproduced", "not reproduced", "inconclusive"

Ends = dict[str, list[float]]
"""Arm -> the endpoint of each training seed, from 0."""


def study(ends: Ends, *, listed: tuple[str, ...] = (), episodes: int = EPISODES, **more: Any) -> Tables:
    """Tables of arms that exist in memory alone; ``more``: a column of dark_room.csv -> arm -> values, or a table."""
    columns = {name: more.pop(name, {}) for name in ("prediction_score", "horizon_share", "warning_step")}
    rows = [
        {"row": "run", "run": f"{arm} {seed}", "arm": arm, "seed": seed, "episodes": episodes, "success": value}
        | {name: values.get(arm, [NEVER] * len(own))[seed] for name, values in columns.items()}
        for arm, own in ends.items()
        for seed, value in enumerate(own)
    ]
    runs = pd.DataFrame({"arm": [*ends, *listed], "signal": "prediction", "advantage_scale": "group_std"})
    frames = {"arms": pd.DataFrame(rows), "runs": runs, **more}
    return Tables(
        {name: Path(f"{name}.csv") for name in frames}, MARGIN, {}, draws=500, study="dark room", _read=frames
    )


def courses(**arms: list[list[float]]) -> pd.DataFrame:
    """``validation.csv``: arm -> the successes of each seed, a validation every 5 steps."""
    rows = [
        {
            "run": f"{arm} {seed}",
            "arm": arm,
            "seed": seed,
            "step": 5 * n,
            "episodes": EPISODES,
            "excluded": 0,
            "success": value,
        }
        for arm, runs in arms.items()
        for seed, values in enumerate(runs)
        for n, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


BASE = {"baseline": [0.50, 0.51, 0.49]}
DARK = {"prediction": [0.0, 0.001, 0.0]}
SURE: dict[str, Any] = {"prediction_score": {"baseline": [0.5, 0.5, 0.5], "prediction": [0.97, 0.98, 0.99]}}


def collapse(ends: Ends, scores: list[float]) -> str:
    given = {"baseline": [0.5, 0.5, 0.5], "prediction": scores}
    return dark.arm_collapses(
        study(BASE | ends, prediction_score=given), arm="prediction", baseline="baseline", seeds=3
    ).verdict


def test_a_collapse_is_no_success_and_better_predictions_over_three_seeds() -> None:
    right = [0.97, 0.98, 0.99]
    assert collapse(DARK, right) == YES
    assert collapse({"prediction": [0.0, 0.0, 0.0]}, right) == YES
    assert collapse({"prediction": [0.5, 0.45, 0.52]}, right) == NO
    assert collapse(DARK, [0.1, 0.12, 0.11]) == NO, "worse predictions are another collapse"
    assert collapse({"prediction": [0.0, 0.0, 0.2]}, right) == OPEN
    assert collapse(DARK, [0.4, 0.6, 0.9]) == OPEN
    assert collapse({"prediction": [0.0, 0.0]}, right[:2]) == OPEN, "two seeds are not three"
    assert collapse(DARK, [NEVER] * 3) == OPEN


RULE_CASES: list[tuple[str, Callable[[Tables], Any], list[tuple[Ends, str]]]] = [
    (
        "dark-normaliser",
        lambda t: dark.restored(t, arm="centred", baseline="baseline", worse="prediction"),
        [
            ({"centred": [0.50, 0.515, 0.49], **DARK}, YES),
            ({"centred": [0.30, 0.31, 0.285], **DARK}, NO),
            ({"centred": [0.0, 0.002, 0.0], **DARK}, NO),
            ({"centred": [0.30, 0.61, 0.485], **DARK}, OPEN),
            ({"centred": [0.50], **DARK}, OPEN),
        ],
    ),
    (
        "dark-cause",
        lambda t: dark.arm_equal(t, arm="centred", baseline="baseline"),
        [
            ({"centred": [0.50, 0.515, 0.49]}, YES),
            ({"centred": [0.30, 0.31, 0.285]}, NO),
            ({"centred": [0.40, 0.61, 0.485]}, OPEN),
            ({"centred": [0.0]}, NO),
            ({"centred": [0.5]}, OPEN),
        ],
    ),
    (
        "dark-decoupled",
        lambda t: dark.lies_between(t, arm="decoupled", lower="prediction", upper="baseline"),
        [
            ({"decoupled": [0.30, 0.32, 0.28], **DARK}, YES),
            ({"decoupled": [0.60, 0.615, 0.59], **DARK}, NO),
            ({"decoupled": [0.0, 0.0, 0.0], "prediction": [0.001, 0.002, 0.001]}, OPEN),
            ({"decoupled": [0.001, 0.003, 0.002], "prediction": [0.04, 0.043, 0.041]}, NO),
            ({"decoupled": [0.48, 0.52, 0.5], **DARK}, OPEN),
            ({"decoupled": [0.30, 0.32, 0.28], "prediction": [0.1, 0.1, 0.11]}, OPEN),
        ],
    ),
    (
        "dark-safe-signals",
        lambda t: dark.no_arm_harms(t, arms=["confidence", "anchor"], baseline="baseline"),
        [
            ({"confidence": [0.5, 0.505, 0.49], "anchor": [0.6, 0.61, 0.595]}, YES),
            ({"confidence": [0.5, 0.505, 0.49], "anchor": [0.3, 0.31, 0.295]}, NO),
            ({"confidence": [0.5, 0.505, 0.49], "anchor": [0.4, 0.61, 0.495]}, OPEN),
            ({"confidence": [0.5], "anchor": [0.5]}, OPEN),
        ],
    ),
    (
        "dark-placebo",
        lambda t: dark.no_arm_harms(t, arms=["shuffled"], baseline="auxiliary"),
        [
            ({"auxiliary": [0.69], "shuffled": [0.95]}, YES),
            ({"auxiliary": [0.69], "shuffled": [0.2]}, NO),
            ({"auxiliary": [0.69], "shuffled": [0.69]}, OPEN),
        ],
    ),
    (
        "dark-auxiliary",
        lambda t: dark.arm_raises(t, arm="auxiliary", baseline="baseline"),
        [
            ({"auxiliary": [0.70, 0.72, 0.71]}, YES),
            ({"auxiliary": [0.30, 0.32, 0.29]}, NO),
            ({"auxiliary": [0.45, 0.72, 0.5]}, OPEN),
            ({"auxiliary": [0.9]}, YES),
            ({"auxiliary": [0.55]}, OPEN),
        ],
    ),
    (
        "dark-noise",
        lambda t: dark.noise_tells(t, noise="noise", baseline="baseline", signal="prediction"),
        [
            ({"noise": [0.0, 0.001, 0.0], **DARK}, YES),
            ({"noise": [0.50, 0.515, 0.49], **DARK}, YES),
            ({"noise": [0.50, 0.515, 0.49], "prediction": [0.5, 0.5, 0.51]}, OPEN),
            ({"noise": [0.30, 0.32, 0.29], **DARK}, OPEN),
        ],
    ),
]


@pytest.mark.parametrize(
    ("rule", "ends", "verdict"),
    [(rule, ends, verdict) for _, rule, cases in RULE_CASES for ends, verdict in cases],
    ids=[f"{name}-{n}" for name, _, cases in RULE_CASES for n in range(len(cases))],
)
def test_arms_that_differ_so_give_this_verdict(rule: Callable[[Tables], Any], ends: Ends, verdict: str) -> None:
    found = rule(study(BASE | ends))
    assert found.verdict == verdict, found.detail
    assert "training seed" in found.detail, "the detail says what the intervals are over"


def test_the_noise_says_whose_fault_it_is() -> None:
    def said(noise: list[float]) -> str:
        tables = study(BASE | DARK | {"noise": noise})
        return dark.noise_tells(tables, noise="noise", baseline="baseline", signal="prediction").detail

    assert said([0.0, 0.001, 0.0]).startswith("the normaliser is at fault")
    assert said([0.50, 0.515, 0.49]).startswith("predictability is at fault")
    assert said([0.3, 0.3, 0.31]).startswith("undecided")


@pytest.mark.parametrize(
    ("course", "verdict"),
    [
        ([[0.5, 0.0, 0.001, 0.0], [0.5, 0.0, 0.0, 0.001], [0.5, 0.0, 0.002, 0.0]], YES),
        ([[0.5, 0.0, 0.5, 0.0], [0.5, 0.0, 0.52, 0.001], [0.5, 0.0, 0.48, 0.0]], NO),
        ([[0.5, 0.0, 0.2, 0.0], [0.5, 0.0, 0.0, 0.001], [0.5, 0.0, 0.0, 0.0]], OPEN),
        ([[0.5, 0.4, 0.5, 0.5], [0.5, 0.4, 0.5, 0.52], [0.5, 0.4, 0.5, 0.48]], NO),
        ([[0.5, 0.0, 0.0, 0.0]], OPEN),
    ],
)
def test_an_annealed_arm_stays_in_the_dark_only_if_no_later_validation_leaves_it(
    course: list[list[float]], verdict: str
) -> None:
    tables = study({"annealed": [run[-1] for run in course]}, validation=courses(annealed=course))
    found = dark.stays_collapsed(tables, arm="annealed")
    assert found.verdict == verdict, found.detail
    if len(course) == 1:
        assert "Wilson" in found.detail, "one validation of 32 games cannot exclude 5%"


def test_a_placebo_explains_a_gain_only_where_there_is_one() -> None:
    def said(auxiliary: list[float]) -> str:
        ends = BASE | {"auxiliary": auxiliary, "shuffled": [value + 0.001 for value in auxiliary]}
        ends["shuffled"][0] += 0.001
        return dark.no_arm_harms(study(ends), arms=["shuffled"], baseline="auxiliary", over="baseline").verdict

    assert said([0.70, 0.72, 0.69]) == YES
    assert said([0.0, 0.001, 0.0]) == OPEN
    assert said([0.50, 0.52, 0.49]) == OPEN


def test_a_validation_of_a_policy_that_can_play_no_more_counts_as_lost() -> None:
    course = courses(annealed=[[0.5, 0.0, 0.0, 0.0]] * 3)
    course.loc[course["step"] == 15, "episodes"] = 0
    tables = study({"annealed": [0.0, 0.0, 0.0]}, validation=course)
    assert dark.stays_collapsed(tables, arm="annealed").verdict == YES


def test_nothing_is_a_collapse_where_the_baseline_has_none_to_fall_from() -> None:
    assert collapse({"baseline": [0.04, 0.02, 0.03]} | DARK, [0.97, 0.98, 0.99]) == OPEN
    tables = study({"baseline": [0.04, 0.02, 0.03], "noise": [0.0, 0.001, 0.0]} | DARK)
    found = dark.noise_tells(tables, noise="noise", baseline="baseline", signal="prediction")
    assert (found.verdict, "itself ends at 3.0" in found.detail) == (OPEN, True)


@pytest.mark.parametrize(
    ("ends", "lengths", "verdict"),
    [
        (DARK, [0.99, 0.985, 0.995], YES),
        (DARK, [0.5, 0.52, 0.51], NO),
        (DARK, [0.9, 0.99, 0.96], OPEN),
        ({"prediction": [0.5, 0.5, 0.5]}, [0.99, 0.985, 0.995], OPEN),
    ],
)
def test_length_is_pinned_above_95_per_cent_and_the_baselines(ends: Ends, lengths: list[float], verdict: str) -> None:
    given = {"baseline": [0.4, 0.41, 0.39], "prediction": lengths}
    found = dark.pinned(study(BASE | ends, horizon_share=given), arm="prediction", baseline="baseline")
    assert found.verdict == verdict, found.detail


def test_a_baseline_that_is_pinned_too_refutes_it() -> None:
    given = {"baseline": [1.0, 1.0, 0.999], "prediction": [0.99, 0.985, 0.991]}
    found = dark.pinned(study(BASE | DARK, horizon_share=given), arm="prediction", baseline="baseline")
    assert found.verdict == NO


def failing(doubled: float, *, seeds: int = 2, count: int = 20, noise: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    size = rng.uniform(0.7, 0.9, (seeds, count))
    rows = [
        {"run": f"prediction {seed}", "arm": "prediction", "seed": seed, "step": step, "spread": 0.01}
        | {"advantage": size[seed, step], "signal_advantage": size[seed, step]}
        | {"signal_advantage_doubled": size[seed, step] * (doubled + noise * rng.normal())}
        for seed in range(seeds)
        for step in range(count)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(("doubled", "noise", "verdict"), [(1.0, 0.01, YES), (2.0, 0.01, NO), (1.05, 0.3, OPEN)])
def test_the_coefficient_cancels_where_twice_of_it_makes_no_larger_advantage(
    doubled: float, noise: float, verdict: str, seeds: int
) -> None:
    tables = study(DARK, failing_groups=failing(doubled, seeds=seeds, noise=noise))
    found = groups.coefficient_cancels(tables, arm="prediction")
    assert found.verdict == verdict, found
    assert ("steps of one run" in found.detail) == (seeds == 1)


def test_without_an_all_fail_group_nothing_is_said_of_them() -> None:
    tables = study(DARK, failing_groups=failing(1.0).iloc[:0])
    assert groups.coefficient_cancels(tables, arm="prediction").verdict == OPEN
    assert groups.advantage_vanishes(tables, arm="prediction").verdict == OPEN
    dead = failing(1.0).assign(signal_advantage=0.0, signal_advantage_doubled=0.0)
    assert groups.coefficient_cancels(study(DARK, failing_groups=dead), arm="prediction").verdict == OPEN


def spread_and_size(kind: str) -> pd.DataFrame:
    count = 40 if kind == "few" else 400
    spread = np.tile(np.linspace(0.0, 0.1, count), 2)
    size = {
        "falls": np.where(spread < 0.012, 0.0, 8 * spread),
        "few": np.where(spread < 0.012, 0.0, 8 * spread),
        "rises": 0.8 - 5 * spread,
        "floor": 0.4 + 4 * spread,
    }[kind]
    return failing(1.0, seeds=2, count=count).assign(spread=spread, advantage=size)


@pytest.mark.parametrize(("kind", "verdict"), [("falls", YES), ("few", OPEN), ("rises", NO), ("floor", NO)])
def test_the_advantage_vanishes_where_it_falls_with_the_spread_to_nothing(kind: str, verdict: str) -> None:
    tables = study(DARK, failing_groups=spread_and_size(kind))
    found = groups.advantage_vanishes(tables, arm="prediction")
    assert found.verdict == verdict, found
    rho = stats.spearmanr(tables["failing_groups"]["spread"], tables["failing_groups"]["advantage"]).statistic
    assert found.effect == pytest.approx(rho)
    assert found.low <= found.effect <= found.high


def warnings(triple: dict[str, list[float]], entropy: dict[str, list[float]]) -> str:
    ends = {"baseline": [0.5, 0.5], "prediction": [0.0, 0.0]}
    course = courses(baseline=[[0.5, 0.52, 0.5, 0.5]] * 2, prediction=[[0.5, 0.3, 0.0, 0.0], [0.5, 0.5, 0.1, 0.0]])
    signs = pd.DataFrame(
        [
            {"run": f"{arm} {seed}", "arm": arm, "entropy_step": v}
            for arm, vs in entropy.items()
            for seed, v in enumerate(vs)
        ]
    )
    tables = study(ends, warning_step=triple, validation=course, signs=signs)
    return dark.warned_in_time(tables, baseline="baseline").verdict


def test_a_warning_is_in_time_before_success_leaves_the_baselines_interval() -> None:
    alarm = {"baseline": [20.0, NEVER], "prediction": [4.0, 9.0]}
    calm = {"baseline": [NEVER, NEVER]}
    assert warnings(calm | {"prediction": [4.0, 9.0]}, alarm) == YES
    assert warnings(calm | {"prediction": [4.0, 10.0]}, alarm) == NO, "at the step itself is too late"
    assert warnings(calm | {"prediction": [4.0, NEVER]}, alarm) == NO
    assert warnings({"baseline": [30.0, NEVER], "prediction": [4.0, 9.0]}, alarm) == NO, "a false alarm"
    assert warnings(calm | {"prediction": [4.0, 9.0]}, alarm | calm) == NO, "the entropy alone would do"


def test_a_run_that_never_left_the_baselines_interval_cannot_be_warned_of_in_time() -> None:
    signs = pd.DataFrame(
        {"run": ["baseline 0", "prediction 0"], "arm": ["baseline", "prediction"], "entropy_step": 5.0}
    )
    ends = {"baseline": [0.2], "prediction": [0.0]}
    warned = {"prediction": [44.0]}
    low = courses(baseline=[[0.2, 0.0, 0.0]], prediction=[[0.2, 0.0, 0.0]])
    found = dark.warned_in_time(study(ends, warning_step=warned, validation=low, signs=signs), baseline="baseline")
    assert (found.verdict, "never leaves" in found.detail) == (OPEN, True)
    # A run that ended between two validations is held to the one before: it fell at 5, long before the warning.
    fell = courses(baseline=[[0.6, 0.6, 0.6, 0.6]], prediction=[[0.6, 0.0, 0.0]])
    fell.loc[(fell["arm"] == "prediction") & (fell["step"] == 10), "step"] = 12
    found = dark.warned_in_time(study(ends, warning_step=warned, validation=fell, signs=signs), baseline="baseline")
    assert found.verdict == NO


def test_without_a_collapse_there_is_nothing_to_warn_of() -> None:
    tables = study(BASE, signs=pd.DataFrame({"run": [], "arm": [], "entropy_step": []}))
    assert dark.warned_in_time(tables, baseline="baseline").verdict == OPEN


@pytest.mark.parametrize(("order", "verdict"), [(1, YES), (-1, NO), (0, OPEN)])
def test_what_a_signal_costs_goes_with_its_spread_in_failing_groups(order: int, verdict: str) -> None:
    names = [f"arm {n}" for n in range(8)]
    lost = {1: range(8), -1: range(8, 0, -1), 0: [3, 6, 1, 4, 4, 1, 6, 3]}[order]
    ends = {"baseline": [0.9]} | {name: [0.9 - 0.1 * n] for name, n in zip(names, lost, strict=True)} | {"other": [0.9]}
    rows = [{"run": f"{arm} 0", "arm": arm, "signal_in_failing": 0.01 * n} for n, arm in enumerate(names)]
    rows += [{"run": "other 0", "arm": "other", "signal_in_failing": 5.0}]
    tables = study(ends, signs=pd.DataFrame(rows))
    tables["runs"].loc[tables["runs"]["arm"] == "other", "advantage_scale"] = "none"
    found = groups.spread_costs(tables, baseline="baseline")
    assert found.verdict == verdict, found
    assert "other" not in found.detail, "an arm that is only centred is no test of dividing"


def test_an_arms_interval_is_students_or_wilsons_and_says_so() -> None:
    tables = study({"a": [0.4, 0.5, 0.6], "b": [0.25], "c": [0.0, 0.0, 0.0]})
    several = share(tables, "a")
    assert (several.low, several.high) == pytest.approx(stats.t.interval(0.95, 2, 0.5, stats.sem([0.4, 0.5, 0.6])))
    assert "Student's t over 3 training seeds" in several.said
    one = share(tables, "b")
    assert (one.low, one.high) == pytest.approx(proportion_confint(8, EPISODES, method="wilson"))
    assert "Wilson's interval of one validation of 1 training seed" in one.said
    alike = share(tables, "c")
    assert (alike.low, alike.high) == pytest.approx(proportion_confint(0, 3 * EPISODES, method="wilson"), abs=1e-12)


def test_a_difference_is_paired_by_seed_and_of_one_seed_newcombes() -> None:
    tables = study({"a": [0.4, 0.5, 0.6], "b": [0.3, 0.45, 0.4], "c": [0.25], "d": [0.5, 0.6, 0.7]})
    paired = difference(tables, "a", "b")
    expected = stats.ttest_rel([0.4, 0.5, 0.6], [0.3, 0.45, 0.4]).confidence_interval()
    assert (paired.low, paired.high) == pytest.approx((expected.low, expected.high))
    single = difference(tables, "a", "c")
    assert single.value == pytest.approx(0.15), "seed 0 against seed 0"
    one = confint_proportions_2indep(0.4 * 32, 32, 8, 32, method="newcomb", compare="diff")
    assert (single.low, single.high) == pytest.approx(one)
    alike = difference(tables, "a", "d")
    pooled = confint_proportions_2indep(48, 96, 0.6 * 96, 96, method="newcomb", compare="diff")
    assert (alike.low, alike.high) == pytest.approx(pooled), "seeds that agree exactly leave Student's t no width"
    tables["arms"].loc[tables["arms"]["arm"] == "c", "seed"] = 7
    assert math.isnan(difference(tables, "a", "c").low)


def test_differences_that_agree_but_for_rounding_take_the_interval_of_their_episodes() -> None:
    ends = {"baseline": [8 / 80, 4 / 80, 16 / 80], "arm": [12 / 80, 8 / 80, 20 / 80]}
    values = [one - other for one, other in zip(ends["arm"], ends["baseline"], strict=True)]
    assert 0 < np.ptp(values) < 1e-15
    found = difference(study(ends, episodes=80), "arm", "baseline")
    assert found.method == "newcombe"
    assert found.high - found.low > 0.1


def test_a_claim_about_an_arm_that_is_not_there_was_not_run_and_says_which() -> None:
    found = dark.arm_raises(study(BASE), arm="auxiliary", baseline="baseline")
    assert (found.verdict, found.detail) == (NOT_RUN, "The run table has no arm 'auxiliary'.")
    found = dark.arm_raises(study(BASE, listed=("auxiliary",)), arm="auxiliary", baseline="baseline")
    assert (found.verdict, found.detail) == (NOT_RUN, "This scale makes no run of the arm 'auxiliary'.")


def whole() -> Tables:
    ends = (
        BASE | DARK | {"prediction, centred": [0.5, 0.515, 0.49], "baseline, centred": [0.5], "noise": [0.0, 0.0, 0.01]}
    )
    ends |= {"prediction, annealed": [0.0], "prediction, decoupled": [0.3]}
    validation = courses(**{arm: [[0.5, v, v] for v in values] for arm, values in ends.items()})
    signs = pd.DataFrame(
        [
            {"run": f"{arm} {seed}", "arm": arm, "entropy_step": NEVER, "signal_in_failing": 0.01}
            for arm, values in ends.items()
            for seed in range(len(values))
        ]
    )
    return study(ends, validation=validation, signs=signs, failing_groups=failing(1.0), **SURE | {
        "prediction_score": SURE["prediction_score"],
        "horizon_share": {"baseline": [0.4, 0.4, 0.41], "prediction": [0.99, 0.98, 0.985]},
    })  # fmt: skip


def test_every_dark_claim_is_judged_at_its_scales_and_no_claim_of_the_gate_is() -> None:
    found = verdicts(read_claims(CLAIMS), whole(), "dark-room-tiny").set_index("id")
    assert found.loc["dark-collapse", "verdict"] == found.loc["dark-normaliser", "verdict"] == YES
    assert found.loc["dark-collapse", "files"] == "arms.csv runs.csv"
    assert found.loc["dark-sizes", "verdict"] == NOT_TESTABLE
    absent = found.loc[["dark-safe-signals", "dark-auxiliary", "dark-placebo", "dark-random-vocabulary"]]
    assert (absent["verdict"] == NOT_RUN).all()
    assert absent["detail"].str.contains("run table has no arm").all()
    other = found[found["study"] == "gate"]
    assert set(other["verdict"]) == {NOT_TESTABLE, NOT_RUN}
    assert "the gate: judged at the scales tiny, small, paper" in other.loc["gate-null", "detail"]
    assert found.loc[~found["verdict"].isin([YES, NO]), "detail"].str.len().min() > 20, "each says why"


@pytest.mark.parametrize("scale", ["dark-room-smoke", "smoke"])
def test_smoke_arms_never_get_a_verdict(scale: str) -> None:
    found = verdicts(read_claims(CLAIMS), whole(), scale)
    own = found[found["study"] == "dark room"]
    assert set(found["verdict"]) == {NOT_TESTABLE, NOT_RUN}
    assert own[own["verdict"] == NOT_TESTABLE]["detail"].str.contains("evidence of nothing|one scale").all()


def test_every_rule_of_the_dark_room_belongs_to_a_claim_of_it() -> None:
    own = {claim.statistic for claim in read_claims(CLAIMS) if claim.study == "dark room"} - set(UNTESTED)
    modules = {"headroom.present.claim_dark_room", "headroom.present.claim_dark_groups"}
    assert own == {name for name, rule in RULES.items() if rule.__module__ in modules}


def test_the_readme_shows_each_study_from_its_own_scale_and_mixes_none(tmp_path: Path) -> None:
    text = "<!-- claims:begin -->\n<!-- claims:end -->\n<!-- deviations:begin -->\n<!-- deviations:end -->\n"
    with pytest.raises(OSError, match=r"no claims\.csv of tiny"):
        readme(text, tmp_path)
    committed = pd.read_csv(PROJECT / "figures/tiny/data/claims.csv")
    judged = verdicts(read_claims(CLAIMS), whole(), "dark-room-tiny")
    chosen = pd.DataFrame({"setting": ["a"], "paper": ["b"], "ours": ["c"], "reason": ["d"]})
    for scale, table in (("tiny", committed), ("dark-room-tiny", judged), ("small", judged)):
        (tmp_path / scale / "data").mkdir(parents=True)
        table.to_csv(tmp_path / scale / "data/claims.csv", index=False)
        chosen.to_csv(tmp_path / scale / "data/deviations.csv", index=False)
    shown = readme(text, tmp_path)
    gate, dark_room = shown.split("**The dark room, scale `dark-room-tiny`**")
    assert "**The gate, scale `tiny`**" in gate
    for part, study_of in ((gate, "gate"), (dark_room, "dark room")):
        for claim in read_claims(CLAIMS):
            assert (claim.claim in part) == (claim.study == study_of), claim.id


@pytest.mark.parametrize("scale", ["tiny", "dark-room-tiny"])
def test_the_table_of_claims_is_a_result_that_verify_and_stale_look_for(scale: str) -> None:
    assert f"figures/{scale}/data/claims.csv" in figure_files(PROJECT, scale)


def test_arms_without_an_endpoint_are_left_out_of_the_criterion() -> None:
    ends = {"baseline": [0.9]} | {f"arm {n}": [0.9 - 0.1 * n] for n in range(6)} | {"lost": [NEVER]}
    rows = [{"run": f"{arm} 0", "arm": arm, "signal_in_failing": 0.01 * n} for n, arm in enumerate(ends)]
    found = groups.spread_costs(study(ends, signs=pd.DataFrame(rows)), baseline="baseline")
    assert found.n == "7 arms"
    assert "lost" not in found.detail


def test_the_reports_first_screen_speaks_of_its_own_study() -> None:
    found = verdicts(read_claims(CLAIMS), whole(), "dark-room-tiny")
    text = restructured(found, "dark-room-tiny", "dark room")
    assert text.count("\n- ") == 6
    assert "Of 16 claims" in text
    assert "supervised policy on tasks" not in text


def test_the_stage_judges_the_study_whose_settings_it_is_given_and_asks_for_its_tables(tmp_path: Path) -> None:
    for name, text in resolve({"scale": "dark-room-tiny"}, PROJECT).files.items():
        write_text(tmp_path / name, text)
    tables = whole()
    paths = {name: tmp_path / f"{name}.csv" for name in JUDGED_BY["dark room"]}
    for name, path in paths.items():
        write_csv(path, tables[name])
    output = tmp_path / "figures/dark-room-tiny/data/claims.csv"
    given: dict[str, Path] = {
        **{"claims": CLAIMS, "deviations": PROJECT / "workflow/data/deviations.yaml", "output": output},
        **{"settings": tmp_path / "results/dark-room-tiny/config"},
    }
    main(**given, **paths)
    found = pd.read_csv(output).set_index("id")
    assert found.loc["dark-collapse", "verdict"] == YES
    assert found.loc["dark-collapse", "files"].split() == [str(paths["arms"]), str(paths["runs"])]
    assert "tiny scale" in (tmp_path / "figures/dark-room-tiny/claims.html").read_text(encoding="utf-8")
    assert (tmp_path / "figures/dark-room-tiny/records/claims.data.run.json").is_file()
    del paths["signs"]
    with pytest.raises(SystemExit, match="the dark room, whose claims also need --signs"):
        main(**given, **paths)


def test_the_command_shows_its_own_studys_claims_and_the_others_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    noise, null = "A potential of random noise", "In a grid of 18 runs"
    for scale, own, other in (("hidden-rule-tiny", noise, null), ("tiny", null, noise)):
        said = CliRunner().invoke(app, ["claims", "--scale", scale]).output
        assert own in said
        assert other not in said
        assert "--all" in said
        every = CliRunner().invoke(app, ["claims", "--scale", scale, "--all"]).output
        assert own in every
        assert other in every
