import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.train.schedule import learning_rate


def rates(schedule, steps=100, warmup=10, peak=2.0, total=100):
    return [
        learning_rate(step, peak=peak, schedule=schedule, warmup_steps=warmup, total_steps=total)
        for step in range(steps)
    ]


def test_warm_up_rises_in_equal_steps_to_the_peak():
    expected = [2.0 * (step + 1) / 11 for step in range(10)]
    assert rates("cosine")[:10] == pytest.approx(expected)
    assert rates("cosine")[10] == rates("constant")[10] == 2.0


def test_constant_stays_at_the_peak():
    assert set(rates("constant")[10:]) == {2.0}


def test_cosine_passes_half_the_peak_in_the_middle_and_reaches_zero_at_the_end():
    assert rates("cosine")[55] == pytest.approx(1.0)
    assert rates("cosine", steps=101)[100] == pytest.approx(0.0, abs=1e-12)
    assert rates("cosine", steps=150)[120] == pytest.approx(0.0, abs=1e-12)


def test_a_run_that_stops_early_saw_the_first_rates_of_the_long_one():
    assert rates("cosine", steps=30, total=100) == rates("cosine", steps=100, total=100)[:30]


@given(st.integers(0, 30), st.integers(1, 60), st.sampled_from(["constant", "cosine"]))
def test_the_rate_rises_then_never_rises_again_and_stays_between_zero_and_the_peak(warmup, total, schedule):
    curve = rates(schedule, steps=80, warmup=warmup, total=total)
    assert all(0.0 <= rate <= 2.0 for rate in curve)
    assert all(a < b for a, b in itertools.pairwise(curve[: warmup + 1]))
    assert all(a >= b for a, b in itertools.pairwise(curve[warmup:]))


@pytest.mark.parametrize("wrong", [{"step": -1}, {"warmup_steps": -1}, {"total_steps": 0}])
def test_a_schedule_without_steps_is_refused(wrong):
    call = {"step": 0, "peak": 1.0, "schedule": "cosine", "warmup_steps": 0, "total_steps": 1} | wrong
    with pytest.raises(ValueError, match="learning rate"):
        learning_rate(call.pop("step"), **call)
