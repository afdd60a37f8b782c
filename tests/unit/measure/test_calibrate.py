"""The rule that names the learning-rate levels, on made-up runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from headroom.agent.spoken import write_spoken
from headroom.config.jobs import GrpoJob, dump_job
from headroom.config.models import Grpo, MiniWobSettings
from headroom.files import write_json
from headroom.measure import calibrate
from headroom.measure.calibrate import propose, run_row
from headroom.train.grpo import Run


def runs(after: dict[float, list[float]], before: float = 0.9) -> pd.DataFrame:
    rows = [
        {"learning_rate": rate, "before": before, "after": value} for rate, values in after.items() for value in values
    ]
    return pd.DataFrame(rows)


def test_the_levels_span_no_op_to_collapse() -> None:
    table = runs({1e-4: [0.9, 0.9], 3e-4: [0.91, 0.88], 1e-3: [0.5, 0.6], 3e-3: [0.1, 0.2], 1e-2: [0.0, 0.0]})
    assert propose(table) == {"lowest": 1e-4, "low": 3e-4, "middle": 1e-3, "high": 1e-2}


def test_the_order_of_the_runs_does_not_matter() -> None:
    table = runs({1e-4: [0.9], 3e-4: [0.9], 1e-3: [0.5], 3e-3: [0.0]})
    assert propose(table) == propose(table.sample(frac=1.0, random_state=0))


def test_a_harmless_rate_above_a_harmful_one_is_not_low() -> None:
    assert propose(runs({1e-4: [0.9], 3e-4: [0.5], 1e-3: [0.9], 3e-3: [0.0]}))["low"] == 1e-4


def test_levels_that_no_rate_reaches_are_none() -> None:
    assert propose(runs({1e-4: [0.9], 3e-4: [0.9]})) == {"lowest": 1e-4, "low": 3e-4, "middle": None, "high": None}
    assert propose(runs({1e-4: [0.0]})) == {"lowest": 1e-4, "low": None, "middle": None, "high": 1e-4}


def test_a_run_is_compared_on_the_pages_that_both_played() -> None:
    def played(successes: dict[int, bool]) -> pd.DataFrame:
        rows = [{"task": "a", "seed": s, "mode": "greedy", "sample": 0, "success": v} for s, v in successes.items()]
        return pd.DataFrame(rows)

    row = run_row(Run(), played({1: True, 2: False, 3: True}), played({1: False, 2: True, 3: True, 4: True}))
    assert (row["pages"], row["gained"], row["lost"]) == (3, 1, 1)
    assert row["before"] == row["after"] == 2 / 3
    assert row["steps"] == 0


def test_a_checkpoint_of_another_world_is_refused_before_the_world_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.worlds.open.open_world", lambda *_: pytest.fail("the world was opened"))
    grpo = Grpo(run="toy", seed=0, init="sft", tasks="mastered", learning_rate=1e-3, steps=1)
    (tmp_path / "job.json").write_text(dump_job(GrpoJob(world=MiniWobSettings(), grpo=grpo)))
    write_json(tmp_path / "task_sets.json", {"mastered": ["a"], "headroom": []})
    checkpoint = tmp_path / "checkpoint"
    write_spoken("text game", checkpoint)
    arguments = (tmp_path / "job.json", checkpoint, tmp_path / "task_sets.json", tmp_path / "out")
    with pytest.raises(SystemExit, match=r"speaks the dialect 'text game', but world\.kind miniwob"):
        calibrate.main(*arguments)
    (checkpoint / "agent.json").rename(checkpoint / "model.json")
    with pytest.raises(SystemExit, match=r"agent\.json is missing; the checkpoint is incomplete"):
        calibrate.main(*arguments)
