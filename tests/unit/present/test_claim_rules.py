"""The rules one by one: each verdict from the smallest table that deserves it."""

from pathlib import Path

import pandas as pd
import pytest

from headroom.present.claim_inside import (
    agreement_order,
    mostly_invalid,
    moved_less,
    moved_most,
    rank_apart,
    rank_falls_late,
    rank_rises,
    rank_tracks,
    repairs_partly,
)
from headroom.present.claim_success import collapsed, equal, gain, headroom_decides, null_over_seeds
from headroom.present.claim_tables import Tables

REGIMES = {"supervised": ["sft"], "degrade": ["d1", "d2"], "collapse": ["c1", "c2"]}
YES, NO, OPEN = "reproduced", "not reproduced", "inconclusive"


def tables(**frames: pd.DataFrame) -> Tables:
    return Tables({name: Path(f"{name}.csv") for name in frames}, 0.05, REGIMES, _read=dict(frames))


def cell(low: float, high: float, *, tasks: str = "mastered", level: str = "low", seeds: int = 6) -> dict[str, object]:
    return {
        **{"learning_rate_level": level, "tasks_trained": tasks, "task_set": tasks, "mode": "greedy", "init": "sft"},
        **{"schedule": "constant", "seeds": seeds, "pairs": 600, "difference": (low + high) / 2},
        **{"ci_low": low, "ci_high": high, "equivalent": low > -0.05 and high < 0.05, "tost_p": 0.01},
        **{"minimum_detectable_effect": 0.03, "reference_success": 0.5, "policy_success": 0.5},
    }


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.02, 0.02, YES),
        (0.01, 0.03, YES),
        (-0.2, -0.1, NO),
        (0.06, 0.2, NO),
        (-0.08, 0.02, OPEN),
    ],
)
def test_a_low_rate_changes_nothing_only_by_equivalence(low: float, high: float, verdict: str) -> None:
    assert equal(tables(replication=pd.DataFrame([cell(low, high)])), level="low").verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.08, 0.4, YES), (-0.02, 0.3, OPEN), (-0.1, 0.04, NO), (0.01, 0.04, OPEN)],
)
def test_a_gain_is_above_zero_and_no_gain_is_below_the_margin(low: float, high: float, verdict: str) -> None:
    found = gain(tables(replication=pd.DataFrame([cell(low, high, tasks="headroom")])), level="low", tasks="headroom")
    assert found.verdict == verdict
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))


def test_a_single_seed_stands_in_where_no_setting_was_repeated() -> None:
    run = pd.DataFrame([cell(0.1, 0.3, tasks="headroom") | {"family": "headroom", "policy": "headroom-01"}])
    empty = run.drop(columns=["family", "policy"]).iloc[:0]
    found = gain(tables(replication=empty, contrasts=run), level="low", tasks="headroom")
    assert found.verdict == YES
    assert found.n.startswith("1 seed")


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        ([cell(-0.01, 0.02), cell(-0.3, -0.1, level="middle")], YES),
        ([cell(-0.01, 0.07), cell(-0.3, -0.1, level="middle")], OPEN),
        ([cell(0.02, 0.2), cell(-0.3, -0.1, level="middle")], NO),
        ([cell(-0.01, 0.02), cell(-0.3, -0.1, level="middle", seeds=5)], OPEN),
        ([cell(-0.01, 0.02)], OPEN),
    ],
)
def test_a_null_over_seeds_needs_six_of_them_at_every_level(cells: list[dict[str, object]], verdict: str) -> None:
    none = pd.DataFrame([cell(0, 0) | {"family": "grid"}]).iloc[:0]
    found = null_over_seeds(tables(replication=pd.DataFrame(cells), contrasts=none), levels=["low", "middle"], seeds=6)
    assert found.verdict == verdict


@pytest.mark.parametrize(("success", "verdict"), [([0.0, 0.04], YES), ([0.0, 0.3], OPEN), ([0.2, 0.3], NO)])
def test_a_collapse_is_judged_over_all_runs_of_the_level(success: list[float], verdict: str) -> None:
    rows = [
        cell(-0.9, -0.8, level="high") | {"policy": f"r{place}", "family": "grid", "policy_success": value}
        for place, value in enumerate(success)
    ]
    assert collapsed(tables(contrasts=pd.DataFrame(rows)), level="high").verdict == verdict


@pytest.mark.parametrize(
    ("reading", "gains", "verdict"),
    [
        ({"headroom": (0.1, 0.2), "mastered": (-0.03, 0.01)}, {"headroom": (0.1, 0.3), "mastered": (-0.02, 0.02)}, YES),
        ({"headroom": (0.1, 0.2), "mastered": (-0.03, 0.01)}, {"headroom": (-0.1, 0.02), "mastered": (0, 0)}, NO),
        ({"headroom": (0.1, 0.2), "mastered": (-0.03, 0.01)}, {"headroom": (0.1, 0.3), "mastered": (0.02, 0.1)}, NO),
        ({"headroom": (-0.1, 0.2), "mastered": (-0.03, 0.01)}, {"headroom": (0.1, 0.3), "mastered": (0, 0)}, OPEN),
    ],
)
def test_headroom_decides_only_if_reading_and_gain_agree_on_both_sets(
    reading: dict[str, tuple[float, float]], gains: dict[str, tuple[float, float]], verdict: str
) -> None:
    read = pd.DataFrame(
        [
            {"level": "set", "name": name, "headroom": low, "headroom_low": low, "headroom_high": high, "pages": 60}
            for name, (low, high) in reading.items()
        ]
    )
    cells = pd.DataFrame([cell(*bounds, tasks=name) for name, bounds in gains.items()])
    assert headroom_decides(tables(reading=read, replication=cells), level="low").verdict == verdict


def ranks(late: dict[str, float], early: dict[str, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                **{"policy": policy, "site": "block", "layer": layer, "tokens": "mean", "centred": True},
                **{"primary": layer == 1, "effective_rank": value, "ci_low": value - 1, "ci_high": value + 1},
                "episodes": 80,
            }
            for layer, values in ((0, early), (1, late))
            for policy, value in values.items()
        ]
    )


EVEN = {"sft": 10.0, "d1": 10.0, "d2": 10.5, "c1": 10.0, "c2": 10.0}


@pytest.mark.parametrize(
    ("late", "early", "verdict"),
    [
        ({**EVEN, "d1": 5, "d2": 4}, EVEN, YES),
        ({**EVEN, "d1": 5, "d2": 9.5}, EVEN, OPEN),
        ({**EVEN, "d1": 5, "d2": 4}, {**EVEN, "d1": 5}, OPEN),
        ({**EVEN, "d1": 15, "d2": 12}, EVEN, NO),
    ],
)
def test_rank_falls_late_in_every_run_while_the_first_block_stays(
    late: dict[str, float], early: dict[str, float], verdict: str
) -> None:
    assert rank_falls_late(tables(rank=ranks(late, early)), regime="degrade").verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict"), [((15, 16), YES), ((15, 10), OPEN), ((5, 6), NO), ((float("nan"), 6), OPEN)]
)
def test_rank_rises_in_every_run(values: tuple[float, float], verdict: str) -> None:
    late = {**EVEN, "c1": values[0], "c2": values[1]}
    assert rank_rises(tables(rank=ranks(late, EVEN)), regime="collapse").verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "tracks", "apart"),
    [
        (0.3, 0.8, YES, NO),
        (-0.15, 0.15, NO, YES),
        (-0.2, 0.5, OPEN, OPEN),
        (-0.6, 0.1, OPEN, OPEN),
        (-0.8, -0.3, NO, OPEN),
    ],
)
def test_rank_comes_apart_from_success_only_by_an_interval_close_to_zero(
    low: float, high: float, tracks: str, apart: str
) -> None:
    row = {
        **{"quantity": "effective_rank", "primary": "True", "subset": "alive", "checkpoints": 20},
        **{"spearman": (low + high) / 2, "spearman_ci_low": low, "spearman_ci_high": high},
    }
    table = tables(correlations=pd.DataFrame([row]))
    assert rank_tracks(table, subset="alive").verdict == tracks
    assert rank_apart(table, subset="alive").verdict == apart


@pytest.mark.parametrize(
    ("collapse", "degrade", "verdict"),
    [((0.0, 0.1), (0.7, 0.8), YES), ((0.0, 0.6), (0.65, 0.8), OPEN), ((0.8, 0.9), (0.5, 0.6), NO)],
)
def test_agreement_is_lower_in_every_collapsed_run(
    collapse: tuple[float, float], degrade: tuple[float, float], verdict: str
) -> None:
    values = dict(zip(("c1", "c2", "d1", "d2"), (*collapse, *degrade), strict=True))
    table = pd.DataFrame(
        [
            {
                **{"policy": policy, "measure": "argmax_agreement", "tokens": "action_tokens", "rows": 400},
                **{"value": value, "ci_low": value - 0.05, "ci_high": value + 0.05},
            }
            for policy, value in values.items()
        ]
    )
    assert agreement_order(tables(agreement=table), lower="collapse", higher="degrade").verdict == verdict


@pytest.mark.parametrize(
    ("collapse", "degrade", "verdict"),
    [((0.1, 0.2), (0.3, 0.4), YES), ((0.1, 0.35), (0.3, 0.4), OPEN), ((0.5, 0.6), (0.3, 0.4), NO)],
)
def test_movement_is_compared_run_by_run(
    collapse: tuple[float, float], degrade: tuple[float, float], verdict: str
) -> None:
    drift = pd.DataFrame(
        {"policy": ["c1", "c2", "d1", "d2"], "scope": "model", "relative_movement": [*collapse, *degrade]}
    )
    assert moved_less(tables(drift=drift), less="collapse", more="degrade").verdict == verdict


@pytest.mark.parametrize(("shares", "verdict"), [([0.6, 0.6], YES), ([0.6, 0.2], OPEN), ([0.3, 0.2], NO)])
def test_the_group_that_moved_most_does_so_in_every_run(shares: list[float], verdict: str) -> None:
    rows = [
        {"policy": run, "scope": "group", "group": group, "share_of_squared_movement": value}
        for run, share in zip(("d1", "c1"), shares, strict=True)
        for group, value in (("embedding", share), ("mlp", 1 - share))
    ]
    found = moved_most(tables(drift=pd.DataFrame(rows)), group="embedding", regimes=["degrade", "collapse"])
    assert found.verdict == verdict
    assert found.effect == pytest.approx(min(shares))


@pytest.mark.parametrize(
    ("share", "low", "high", "verdict"),
    [(0.4, 0.2, 0.6, YES), (0.9, 0.7, 1.1, OPEN), (1.2, 1.0, 1.4, NO), (-0.1, -0.2, 0.0, NO)],
)
def test_a_partial_repair_lies_strictly_between_none_and_all(
    share: float, low: float, high: float, verdict: str
) -> None:
    rows = []
    for run in ("d1", "d2"):
        shared = {"policy": run, "regime": "degrade", "pages": 80}
        rows.append(shared | {"kind": "endpoint", "graft": "rl", "sft_ci_high": -0.1})
        rows += [
            shared
            | {"kind": "group", "graft": f"necessity/{group}", "direction": "necessity", "groups": group}
            | {"share": share, "share_ci_low": low, "share_ci_high": high}
            for group in ("attention", "mlp")
        ]
    found = repairs_partly(tables(grafts=pd.DataFrame(rows)), regime="degrade", groups=["attention", "mlp"])
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("collapse", "degrade", "alone", "above"),
    [
        ((0.9, 1.0), (0.4, 0.6), YES, YES),
        ((0.6, 0.8), (0.5, 0.7), YES, OPEN),
        ((0.4, 0.8), (0.1, 0.2), OPEN, OPEN),
        ((0.1, 0.3), (0.0, 0.05), NO, NO),
    ],
)
def test_invalid_failures_are_a_majority_by_their_interval(
    collapse: tuple[float, float], degrade: tuple[float, float], alone: str, above: str
) -> None:
    rows = [
        {
            **{"regime": regime, "policy": policy, "task_set": "mastered", "kind": "invalid", "invalid_kind": None},
            **{"count": 10, "failures": 20, "episodes": 100, "share_of_failures": sum(bounds) / 2},
            **{"share_ci_low": bounds[0], "share_ci_high": bounds[1]},
        }
        for regime, bounds in (("collapse", collapse), ("degrade", degrade))
        for policy in ("all", "one")
    ]
    table = tables(failures=pd.DataFrame(rows))
    assert mostly_invalid(table, regime="collapse").verdict == alone
    assert mostly_invalid(table, regime="collapse", above="degrade").verdict == above
