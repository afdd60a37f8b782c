"""The dense signal: what a prediction scores, how a potential is paid, and noise that repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.episode import Ending, Episode, Turn
from headroom.config.models import Signal
from headroom.train.signal import anchor_score, dense_reward, potentials, prediction_score, weight_at
from headroom.worlds.base import Outcome

FACTS = (("location", "cabinet 1"), ("objects", "yes"))


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ({"location": "cabinet 1", "objects": "yes"}, 1.0),
        ({"location": "cabinet 1", "objects": "no"}, 0.5),
        ({"location": "cabinet 2", "objects": "yes"}, 0.5),
        ({"location": "cabinet 2", "objects": "no"}, 0.0),
        ({"location": " Cabinet  1 ", "objects": "YES"}, 1.0),
        ({}, 0.0),
        ({"objects": "yes"}, 0.5),
    ],
)
def test_a_prediction_scores_half_for_the_place_and_half_for_the_objects(
    prediction: dict[str, str], score: float
) -> None:
    assert prediction_score(prediction, FACTS) == score


def test_an_observation_without_facts_has_nothing_to_predict() -> None:
    assert prediction_score({"location": "cabinet 1", "objects": "yes"}, ()) is None
    assert prediction_score({}, (("weather", "fine"),)) is None


@pytest.mark.parametrize(
    ("answer", "facts", "score"),
    [
        ("mug 1", (("anchor", "mug 1"),), 1.0),
        (" Mug  1", (("anchor", "mug 1"),), 1.0),
        ("mug 2", (("anchor", "mug 1"),), 0.0),
        ("", (("anchor", "mug 1"),), 0.0),
        (None, (("anchor", "mug 1"),), 0.0),
        ("mug 1", FACTS, None),
    ],
)
def test_an_answer_to_the_anchor_question_is_right_or_wrong(
    answer: str | None, facts: tuple[tuple[str, str], ...], score: float | None
) -> None:
    assert anchor_score(answer, facts) == score


def an_episode(scores: list[float | None], **place: Any) -> Episode:
    ids = np.zeros(1, dtype=np.int32)
    turns = tuple(Turn(ids, ids, np.zeros(1, np.float32), "", Outcome.OK, score) for score in scores)
    where = {"task": "find", "seed": 7, "sample": 0} | place
    return Episode(**where, turns=turns, raw_reward=0.0, success=False, ending=Ending.HORIZON)


RUN: dict[str, int] = {"seed": 3, "step": 0, "steps": 10}


def test_a_potential_is_paid_by_its_differences_and_an_additive_signal_as_it_stands() -> None:
    episode = an_episode([0.5, 1.0, 0.0, None])
    potential = dense_reward(episode, Signal(kind="prediction", weight=0.1), **RUN)
    np.testing.assert_allclose(potential, [0.05, 0.05, -0.1, 0.0], atol=1e-15)
    additive = dense_reward(episode, Signal(kind="prediction", form="additive", weight=0.1), **RUN)
    np.testing.assert_allclose(additive, [0.05, 0.1, 0.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(dense_reward(episode, Signal(), **RUN), np.zeros(4))


@pytest.mark.parametrize(("kind", "phi"), [("confidence", [3 / 9, 1.0, 0.0]), ("anchor", [1.0, 0.0, 0.0])])
def test_confidence_and_anchor_answers_take_the_place_of_the_predictions_score(kind: Any, phi: list[float]) -> None:
    said = [(0.5, 1.0, 3 / 9), (1.0, 0.0, 1.0), (0.5, None, None)]
    whole = an_episode([score for score, _, _ in said])
    turns = tuple(
        replace(turn, anchor_score=anchor, confidence=sure)
        for turn, (_, anchor, sure) in zip(whole.turns, said, strict=True)
    )
    episode = replace(whole, turns=turns)
    np.testing.assert_array_equal(potentials(episode, Signal(kind=kind), seed=0), phi)
    paid = dense_reward(episode, Signal(kind=kind, weight=0.1), **RUN)
    np.testing.assert_allclose(paid, 0.1 * np.diff(phi, prepend=0.0), atol=1e-15)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_the_differences_of_a_potential_add_up_to_its_last_value(scores: list[float]) -> None:
    paid = dense_reward(an_episode(list(scores)), Signal(kind="prediction", weight=1.0), **RUN)
    assert paid.shape == (len(scores),)
    assert paid.sum() == pytest.approx(scores[-1] if scores else 0.0)


def test_annealing_begins_at_the_full_weight_and_ends_at_exactly_nothing() -> None:
    signal = Signal(kind="prediction", weight=0.1, schedule="cosine")
    weights = [weight_at(signal, step, 11) for step in range(11)]
    assert weights[0] == 0.1
    assert weights[5] == pytest.approx(0.05)
    assert weights[10] == 0.0
    assert weights == sorted(weights, reverse=True)
    last = dense_reward(an_episode([1.0, 0.0]), signal, seed=0, step=10, steps=11)
    np.testing.assert_array_equal(last, [0.0, 0.0])
    assert weight_at(signal, 0, 1) == 0.1
    assert {weight_at(Signal(kind="noise", weight=0.1), step, 11) for step in range(11)} == {0.1}
    with pytest.raises(ValueError, match="step 11 of 11"):
        weight_at(signal, 11, 11)


def test_noise_repeats_and_depends_on_run_page_sample_and_turn_and_on_nothing_else() -> None:
    noise = Signal(kind="noise")
    first = potentials(an_episode([0.0] * 50), noise, seed=1)
    np.testing.assert_array_equal(first, potentials(an_episode([1.0] * 50), noise, seed=1))
    np.testing.assert_array_equal(first[:9], potentials(an_episode([None] * 9), noise, seed=1))
    others = [
        potentials(an_episode([0.0] * 50, **place), noise, seed=seed)
        for seed, place in ((2, {}), (1, {"task": "other"}), (1, {"seed": 8}), (1, {"sample": 1}))
    ]
    numbers = np.concatenate([first, *others])
    assert len(np.unique(numbers)) == 250
    assert 0 <= numbers.min() < 0.1 < 0.9 < numbers.max() <= 1
    assert abs(numbers.mean() - 0.5) < 0.1
