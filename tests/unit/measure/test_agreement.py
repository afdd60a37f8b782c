"""Agreement of two policies on the same tokens, against scipy, hand-computed numbers and known invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from headroom.measure.agreement import episode_interval, linear_cka, log_softmax, token_agreement


def test_kl_and_argmax_agreement_of_two_known_distributions():
    policy = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], dtype=np.float32))
    reference = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]], dtype=np.float32))
    found = token_agreement(policy, reference)
    assert found["argmax_agreement"].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(found["kl_policy_reference"], [0.25 * np.log(2), 0], atol=1e-7)
    np.testing.assert_allclose(found["kl_reference_policy"], [0.25 * np.log(2), 0], atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(2, 30), st.floats(0.1, 20))
def test_kl_equals_scipys_is_never_negative_and_ignores_a_shift_of_the_logits(seed, n, v, scale):
    rng = np.random.default_rng(seed)
    policy, reference = (scale * rng.standard_normal((2, n, v))).astype(np.float32)
    found = token_agreement(policy, reference, rows=7)
    p, q = special.softmax(policy.astype(float), axis=1), special.softmax(reference.astype(float), axis=1)
    np.testing.assert_allclose(found["kl_policy_reference"], special.rel_entr(p, q).sum(axis=1), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found["kl_reference_policy"], special.rel_entr(q, p).sum(axis=1), rtol=1e-6, atol=1e-9)
    assert (found["kl_policy_reference"] >= 0).all()
    np.testing.assert_allclose(log_softmax(policy + np.float32(3)), log_softmax(policy), atol=1e-4)


def test_a_policy_agrees_with_itself_exactly():
    logits = np.random.default_rng(0).standard_normal((20, 9)).astype(np.float32)
    found = token_agreement(logits, logits)
    assert (found["argmax_agreement"] == 1).all()
    assert (found["kl_policy_reference"] == 0).all()


def test_logits_of_two_vocabularies_are_refused():
    with pytest.raises(ValueError, match="cannot be compared"):
        token_agreement(np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 30), st.integers(1, 30), st.integers(1, 30), st.floats(0.01, 100))
def test_cka_ignores_rotation_scale_and_offset_and_both_routes_agree(seed, n, d1, d2, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n, d1)), rng.standard_normal((n, d2))
    value = linear_cka(x, y)
    assert -1e-9 <= value <= 1 + 1e-9
    rotation, _ = np.linalg.qr(rng.standard_normal((d1, d1)))
    assert linear_cka(scale * x @ rotation + 5, y) == pytest.approx(value, abs=1e-8)
    assert linear_cka(x, scale * x @ rotation + 5) == pytest.approx(1.0)
    centred_x, centred_y = x - x.mean(0), y - y.mean(0)
    direct = np.linalg.norm(centred_y.T @ centred_x) ** 2 / (
        np.linalg.norm(centred_x.T @ centred_x) * np.linalg.norm(centred_y.T @ centred_y)
    )
    assert value == pytest.approx(direct, abs=1e-9)
    assert linear_cka(y, x) == pytest.approx(value)


def test_cka_of_constant_states_is_nan():
    assert np.isnan(linear_cka(np.ones((5, 3)), np.random.default_rng(0).standard_normal((5, 3))))


def test_resampling_keeps_the_tokens_of_an_episode_together():
    values, episode = np.repeat([0.0, 1.0], [10, 10]), np.repeat([0, 1], [10, 10])
    weights = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    assert episode_interval(values, episode, weights, 0.999) == (pytest.approx(0, abs=0.01), pytest.approx(1, abs=0.01))
    assert episode_interval(np.ones(20), episode, weights, 0.95) == (1.0, 1.0)
