"""The rules one by one: each verdict from the smallest table that deserves it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
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
from headroom.present.claim_joint import dissociation, movement_unrelated
from headroom.present.claim_success import (
    collapsed,
    equal,
    gain,
    headroom_decides,
    no_gain,
    null_over_seeds,
    prediction,
)
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
        ({"headroom": (0.1, 0.2), "mastered": (-0.1, 0.1)}, {"headroom": (0.1, 0.3), "mastered": (0, 0)}, OPEN),
        ({"headroom": (0.1, 0.2), "mastered": (-0.03, 0.01)}, {"headroom": (0.1, 0.3), "mastered": (-0.1, 0.1)}, OPEN),
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


def ranks(late: dict[str, float], early: dict[str, float], half: tuple[float, float] = (1.0, 1.0)) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                **{"policy": policy, "site": "block", "layer": layer, "tokens": "mean", "centred": True},
                **{"primary": layer == 1, "effective_rank": value, "episodes": 80},
                **{"ci_low": value - half[layer], "ci_high": value + half[layer]},
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
        ({**EVEN, "d1": 5, "d2": 4}, {**EVEN, "d1": 5, "d2": 4}, NO),
        ({**EVEN, "d1": 9, "d2": 9}, {**EVEN, "d1": 5, "d2": 4}, NO),
    ],
)
def test_rank_falls_late_in_every_run_while_the_first_block_stays(
    late: dict[str, float], early: dict[str, float], verdict: str
) -> None:
    assert rank_falls_late(tables(rank=ranks(late, early)), regime="degrade").verdict == verdict


def test_a_first_block_with_a_wide_interval_has_not_been_shown_to_stay() -> None:
    late = {**EVEN, "d1": 5, "d2": 4}
    assert rank_falls_late(tables(rank=ranks(late, EVEN)), regime="degrade").verdict == YES
    assert rank_falls_late(tables(rank=ranks(late, EVEN, (4.0, 1.0))), regime="degrade").verdict == OPEN


def test_a_last_block_with_a_wide_interval_neither_fell_nor_rose() -> None:
    far = {"sft": 10.0, "d1": 5.0, "d2": 5.0, "c1": 15.0, "c2": 15.0}
    wide = tables(rank=ranks(far, EVEN, (1.0, 7.0)))
    assert rank_falls_late(wide, regime="degrade").verdict == OPEN
    assert rank_rises(wide, regime="collapse").verdict == OPEN


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
    [
        ((0.0, 0.1), (0.7, 0.8), YES),
        ((0.0, 0.6), (0.65, 0.8), OPEN),
        ((0.8, 0.9), (0.5, 0.6), NO),
        ((0.6, 0.65), (0.55, 0.6), OPEN),
    ],
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
    [(0.4, 0.2, 0.6, YES), (0.9, 0.7, 1.1, OPEN), (0.5, -0.5, 1.5, OPEN), (1.2, 1.0, 1.4, NO), (-0.1, -0.2, 0.0, NO)],
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
        ((0.6, 0.7), (0.8, 0.9), YES, NO),
        ((0.0, 1.0), (0.0, 1.0), OPEN, OPEN),
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


def control(gain_of: Callable[[int], float], shift: float, folder: Path) -> Tables:
    """Eight tasks a set with a reading each; ``gain_of`` a task's place is its gain, ``shift`` lifts one set."""
    recipe = {"init": "sft", "schedule": "constant", "kl_beta": 0.05, "clip_low": 0.2, "clip_high": 0.28}
    runs = pd.DataFrame(
        [
            recipe | {"run": f"{name}-run", "family": family, "learning_rate": "low", "group_size": 8}
            for name, family in (("headroom", "headroom"), ("mastered", "grid"))
        ]
    )
    contrast, by_task, reading = [], [], []
    for name, lift in (("headroom", shift), ("mastered", 0.0)):
        contrast.append(cell(0.0, 0.1, tasks=name) | {"policy": f"{name}-run", "seed": 0, "tasks": 8, "mcnemar_p": 1.0})
        for place in range(8):
            task = f"{name}-{place}"
            by_task.append(
                {"policy": f"{name}-run", "task_set": name, "mode": "greedy", "task": task}
                | {"difference": lift + gain_of(place)}
            )
            value = lift + place / 100
            reading.append(
                {"level": "task", "name": task, "headroom": value, "headroom_low": value, "headroom_high": value}
                | {"mixed_share": 0.5}
            )
    frames = {"contrasts": contrast, "task_contrasts": by_task, "reading": reading}
    paths = {name: folder / f"{name}.csv" for name in frames} | {"runs": folder / "runs.tsv"}
    for name, rows in frames.items():
        pd.DataFrame(rows).to_csv(paths[name], index=False)
    runs.to_csv(paths["runs"], index=False, sep="\t")
    return Tables(paths, 0.05, REGIMES, draws=300)


@pytest.mark.parametrize(
    ("gain_of", "verdict"),
    [
        (lambda place: place / 100, YES),
        (lambda place: -place / 100, NO),
        (lambda place: [3, 6, 1, 7, 2, 5, 0, 4][place] / 100, OPEN),
    ],
)
def test_a_reading_predicts_only_by_the_order_within_the_sets(
    gain_of: Callable[[int], float], verdict: str, tmp_path: Path
) -> None:
    found = prediction(control(gain_of, 0.5, tmp_path))
    assert found.verdict == verdict
    pooled = float(found.detail.split("rho ")[1].split()[0])
    assert pooled > 0.3, "pooled, the difference between the sets makes the relation"


def moved(harm: Sequence[float], folder: Path) -> Tables:
    """Runs of which each moved more than the one before, with their harm."""
    names = [f"run-{place:03d}" for place in range(len(harm))]
    drift = pd.DataFrame({"policy": names, "scope": "model", "relative_movement": np.arange(len(harm)) / 10 + 0.1})
    drift = drift.assign(parameters=1, share_of_squared_movement=1.0, group="")
    runs = [
        cell(-value, -value) | {"policy": name, "seed": 0, "tasks": 11} for name, value in zip(names, harm, strict=True)
    ]
    table = pd.DataFrame(runs)
    related = pd.DataFrame(columns=["quantity", "site"])
    frames = {"drift": drift, "contrasts": table, "init_contrasts": table.iloc[:0], "correlations": related}
    paths = {name: folder / f"{name}.csv" for name in frames}
    for name, frame in frames.items():
        frame.to_csv(paths[name], index=False)
    return Tables(paths, 0.05, REGIMES, draws=300)


@pytest.mark.parametrize(
    ("runs", "related", "verdict"),
    [(600, False, YES), (25, False, OPEN), (25, True, NO), (2, True, OPEN)],
)
def test_movement_has_no_relation_to_harm_only_by_a_narrow_interval(
    runs: int, related: bool, verdict: str, tmp_path: Path
) -> None:
    noise = np.random.default_rng(3).permutation(runs) / runs
    found = movement_unrelated(moved(np.arange(runs) / runs if related else noise, tmp_path))
    assert found.verdict == verdict
    assert found.n.startswith(f"{runs} runs") or runs == 2


@pytest.mark.parametrize(
    ("degraded", "collapsed_by", "embedding", "verdict"),
    [
        (0.2, 0.0, 0.0, YES),
        (0.2, 0.2, 0.0, NO),
        (0.0, 0.0, 0.0, NO),
        (0.2, 0.0, 0.3, NO),
        (0.03, 0.0, 0.0, OPEN),
    ],
)
def test_a_double_dissociation_needs_all_three_of_its_parts(
    degraded: float, collapsed_by: float, embedding: float, verdict: str
) -> None:
    rows = []
    for run, regime, repair in (("d1", "degrade", degraded), ("c1", "collapse", collapsed_by)):
        shared = {"policy": run, "regime": regime, "pages": 80}
        rows.append(shared | {"kind": "endpoint", "graft": "rl", "sft_ci_high": -0.2})
        for direction in ("necessity", "sufficiency"):
            for group, value in (("embedding", embedding), ("attention", repair), ("mlp", repair)):
                rows.append(
                    shared
                    | {"kind": "group", "graft": f"{direction}/{group}", "direction": direction, "groups": group}
                    | {"difference_to_rl": value, "rl_ci_low": value - 0.04, "rl_ci_high": value + 0.04}
                    | {"difference_to_sft": -value, "sft_ci_low": -value - 0.04, "sft_ci_high": 0.04 - value}
                    | {"difference_to_control": value, "control_ci_low": value - 0.04, "control_ci_high": value + 0.04}
                    | {"controls": 2}
                )
    found = dissociation(
        tables(grafts=pd.DataFrame(rows)),
        localised="degrade",
        diffuse="collapse",
        groups=["attention", "mlp"],
        inert_group="embedding",
    )
    assert found.verdict == verdict
    assert found.detail.count(":") == 3


def test_the_run_s_own_start_can_be_the_reference() -> None:
    def rows(difference: float) -> pd.DataFrame:
        row = cell(difference - 0.01, difference + 0.01) | {"family": "grid", "policy": "b1", "tasks": 11}
        return pd.DataFrame([row | {"holm_p": 0.001, "mcnemar_p": 0.001}])

    both = tables(contrasts=rows(-0.1), init_contrasts=rows(0.1))
    assert no_gain(both, runs=["b1"]).verdict == YES
    assert no_gain(both, runs=["b1"], own_start=True).verdict == NO
