"""GRPO on a text game with facts: every signal trains, resumes to the byte, and is logged apart; validation watches."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_game import TASKS, VALIDATION, FakeGame, game_job, game_policy, run_game
from toy_grpo import weights

from headroom.policy.sampler import TorchSampler
from headroom.train import grpo
from headroom.train.dark_room import FAILING
from headroom.train.diagnostics import ASKED, COLUMNS, steps_table
from headroom.train.validation import pages, validate, validation_table


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


SIGNALS = [
    {"kind": "none"},
    *(
        {"kind": kind, "form": form, "channel": channel, "schedule": schedule}
        for (kind, form, channel), schedule in zip(
            product(("prediction", "noise"), ("potential", "additive"), ("added", "decoupled")),
            ("constant", "cosine") * 4,
            strict=True,
        )
    ),
    *({"kind": kind, "form": "potential", "channel": "added"} for kind in ("confidence", "anchor")),
]


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: "-".join(signal.values()))
def test_every_signal_trains_and_resumes_to_the_byte(tmp_path: Path, signal: dict[str, str]) -> None:
    changes: dict[str, Any] = {"signal": signal, "entropy_bonus": 0.001, "validation": {"every": 2, "pages": 4}}
    whole, run = run_game(game_job(**changes), tmp_path / "whole")
    cut = tmp_path / "cut"
    run_game(game_job(**changes), cut)
    (cut / "step-00000003.safetensors").unlink()  # as if it was killed in its last step
    resumed, rest = run_game(game_job(**changes), cut)
    assert len(run.rows) == 3
    assert torch.equal(weights(whole), weights(resumed))
    assert not torch.equal(weights(whole), weights(game_policy()))
    assert (rest.rows, rest.validations) == (run.rows, run.validations)
    lists = () if signal["kind"] == "none" else FAILING
    assert set(run.rows[0]) == {*COLUMNS, *ASKED, *lists}
    table = steps_table(run.rows)
    assert list(table) == [*COLUMNS, *ASKED, *lists]
    assert (table["spread_prediction"] > 0).any() == (signal["kind"] != "none")
    assert table["prediction_score"].between(0.05, 0.95).all()  # measured whether or not it is paid
    for name in ASKED:
        assert 0.02 < table[name].mean() < 0.98
        assert 0.02 < validation_table(run.validations)[name].mean() < 0.98


def test_the_arms_differ_and_without_a_signal_form_and_channel_say_nothing(tmp_path: Path) -> None:
    ends = [weights(run_game(game_job(signal=signal), tmp_path / str(n))[0]) for n, signal in enumerate(SIGNALS)]
    assert all(not torch.equal(a, b) for n, a in enumerate(ends) for b in ends[:n])
    mute = {"kind": "none", "form": "additive", "channel": "decoupled", "weight": 5.0, "schedule": "cosine"}
    assert torch.equal(weights(run_game(game_job(signal=mute), tmp_path / "mute")[0]), ends[0])


def test_the_penalty_that_varies_inside_a_failing_group_is_logged_apart_from_the_signal(tmp_path: Path) -> None:
    _, run = run_game(game_job(signal={"kind": "prediction", "weight": 0.1}), tmp_path / "both", impossible=True)
    _, mute = run_game(game_job(), tmp_path / "none", impossible=True)
    for row in run.rows:
        assert row["all_fail_groups"] == 1.0
        assert row["spread_success"] == 0.0
        assert 0 < row["spread_failing_penalty"] == row["spread_penalty"] <= 0.05
        assert 0 < row["spread_failing_prediction"] == row["spread_prediction"] <= 0.1
        assert row["spread_failing"] > 0
        assert row["horizon_share"] == 1.0
        assert len({len(row[name]) for name in FAILING}) == 1
        assert all(0 < size <= 1 for name in FAILING[1:] for size in row[name]), "deviations of their own divide"
    for row in mute.rows:  # the trap: failing groups are live without any signal
        assert row["live_groups"] > 0
        assert row["spread_failing_prediction"] == 0.0
        assert row["spread_failing"] == pytest.approx(row["spread_failing_penalty"])


@pytest.mark.parametrize("kind", ["confidence", "anchor"])
def test_the_spread_of_a_signal_is_that_of_what_it_pays(tmp_path: Path, kind: str) -> None:
    """Whatever is said is logged apart from the penalty: nothing is paid of what the other arms are paid for."""
    paid: list[float] = []

    def watched(groups: Any, settings: Any, step: int = 0) -> Any:
        rewards = score(groups, settings, step)
        paid.append(float(np.mean([np.std(np.concatenate([r.prediction for r in group])) for group in rewards])))
        for group, of_group in zip(groups, rewards, strict=True):
            for episode, reward in zip(group.episodes, of_group, strict=True):
                said = [getattr(turn, {"anchor": "anchor_score"}.get(kind, kind)) for turn in episode.turns]
                np.testing.assert_allclose(reward.prediction, 0.1 * np.diff(said, prepend=0.0), atol=1e-15)
        return rewards

    score = grpo.score
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "score", watched)
        _, run = run_game(game_job(signal={"kind": kind, "weight": 0.1}), tmp_path, impossible=True)
    assert [row["spread_prediction"] for row in run.rows] == pytest.approx(paid)
    for row in run.rows:
        assert 0 < row["spread_failing_prediction"] == row["spread_prediction"]
        assert row["spread_failing_penalty"] > 0


def test_a_signal_without_weight_moves_nothing(tmp_path: Path) -> None:
    still = {"kind": "prediction", "weight": 0.0}
    policy, run = run_game(game_job(signal=still, reward_invalid_action=0.0), tmp_path, impossible=True)
    assert all(row["live_groups"] == 0.0 for row in run.rows)
    assert torch.equal(weights(policy), weights(game_policy()))


# Validation


def test_validation_comes_before_the_first_step_and_after_every_few_and_changes_nothing(tmp_path: Path) -> None:
    watched, run = run_game(game_job(4, validation={"every": 2, "pages": 6}), tmp_path / "watched")
    alone, plain = run_game(game_job(4), tmp_path / "alone")
    assert [row["step"] for row in run.validations] == [0, 2, 4]
    assert plain.validations == []
    assert torch.equal(weights(watched), weights(alone))
    assert run.rows == plain.rows
    table = validation_table(run.validations)
    assert (table["episodes"] == 6).all()
    assert table["success"].between(0, 1).all()
    assert (table["excluded"] == 0).all()
    assert table["turns"].between(1, 3).all()


def test_the_last_validation_is_of_the_final_weights_on_the_validation_pages(tmp_path: Path) -> None:
    job = game_job(2, validation={"every": 1, "pages": 5, "temperature": 0.4})
    policy, run = run_game(job, tmp_path)
    world, chosen = FakeGame(), pages(TASKS, VALIDATION, 5)
    again = validate(world, policy, TorchSampler(policy.model, policy.codec.end_ids), job, chosen, 2)
    assert run.validations[-1] == again
    assert {(history.task, history.seed) for history in world.asked} == set(chosen)
    assert len(set(chosen)) == 5
    assert {task for task, _ in chosen} == set(TASKS)


def test_more_pages_than_there_are_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"validation\.pages is 41, but 2 tasks x 20 seeds"):
        run_game(game_job(validation={"every": 1, "pages": 41}), tmp_path)


def test_a_policy_without_probabilities_has_a_row_without_numbers(tmp_path: Path) -> None:
    policy = game_policy()
    with torch.no_grad():
        policy.model.model.norm.weight.fill_(float("nan"))
    job = game_job(validation={"every": 1, "pages": 4})
    run = grpo.train(policy, None, FakeGame(), job, TASKS, VALIDATION, scratch=tmp_path, validation_seeds=VALIDATION)
    assert run.ending == "diverged"
    (row,) = validation_table(run.validations).to_dict("records")
    assert (row["step"], row["episodes"]) == (0, 0)
    assert np.isnan(row["success"])
