"""Spectra against a full SVD, known answers and the properties that define the measures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.measure.spectrum import (
    Moments,
    Ranks,
    factored_squared_singular_values,
    matrix_ranks,
    ranks,
    squared_singular_values,
)


def from_svd(matrix: np.ndarray) -> Ranks:
    sigma = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    share = sigma[sigma > 0] / sigma.sum()
    return Ranks(
        float(np.exp(-(share * np.log(share)).sum())),
        float((sigma**2).sum() ** 2 / (sigma**4).sum()),
        float((sigma**2).sum() / sigma.max() ** 2),
    )


def close(a: Ranks, b: Ranks, tolerance: float = 1e-7) -> None:
    assert a.effective_rank == pytest.approx(b.effective_rank, rel=tolerance)
    assert a.participation_ratio == pytest.approx(b.participation_ratio, rel=tolerance)
    assert a.stable_rank == pytest.approx(b.stable_rank, rel=tolerance)


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (30, 30), (1, 7), (7, 1)])
def test_the_gram_route_equals_a_full_svd_for_wide_tall_and_square_matrices(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    close(matrix_ranks(matrix), from_svd(matrix))


def test_centring_subtracts_the_mean_row_and_nothing_else():
    matrix = np.random.default_rng(1).standard_normal((50, 8)) + 30.0
    close(matrix_ranks(matrix, centred=True), from_svd(matrix - matrix.mean(axis=0)))
    assert matrix_ranks(matrix).effective_rank < 2 < matrix_ranks(matrix, centred=True).effective_rank


@pytest.mark.parametrize("k", [1, 3, 17])
def test_k_equal_singular_values_have_all_three_ranks_k(k):
    basis, _ = np.linalg.qr(np.random.default_rng(k).standard_normal((60, 60)))
    close(matrix_ranks(5.0 * basis[:, :k] @ basis[:k]), Ranks(k, k, k), 1e-6)


def test_a_known_spectrum_has_the_ranks_of_the_formula():
    # sigma = (2, 1, 1): p = (1/2, 1/4, 1/4), entropy 1.5 ln 2
    close(matrix_ranks(np.diag([2.0, 1.0, 1.0])), Ranks(2**1.5, 36 / 18, 6 / 4), 1e-12)


def test_a_zero_matrix_has_rank_zero_and_a_matrix_with_nan_has_rank_nan():
    assert matrix_ranks(np.zeros((4, 9))) == Ranks(0.0, 0.0, 0.0)
    broken = np.ones((4, 9))
    broken[2, 3] = np.nan
    assert np.isnan(matrix_ranks(broken).effective_rank)
    assert np.isnan(squared_singular_values(np.full((2, 3, 3), np.inf), 3)).all()


def test_rounding_below_zero_is_clipped_and_adds_no_rank():
    rank_two = np.random.default_rng(2).standard_normal((200, 2)) @ np.random.default_rng(3).standard_normal((2, 150))
    values = squared_singular_values(rank_two.T @ rank_two, 200)
    assert (values >= 0).all()
    assert (values > 0).sum() == 2
    close(matrix_ranks(rank_two), from_svd(rank_two), 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31), st.floats(1e-150, 1e150))
def test_ranks_lie_between_one_and_the_smaller_side_and_ignore_scale_and_rotation(n, d, seed, scale):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, d))
    found = matrix_ranks(matrix)
    assert 1 - 1e-9 <= found.stable_rank <= found.participation_ratio * (1 + 1e-9)
    assert found.participation_ratio <= found.effective_rank**2 * (1 + 1e-9)
    assert found.effective_rank <= min(n, d) * (1 + 1e-9)
    rotation, _ = np.linalg.qr(rng.standard_normal((d, d)))
    close(matrix_ranks(matrix @ rotation), found, 1e-6)
    close(ranks(np.linalg.svd(matrix, compute_uv=False) ** 2 * scale), found, 1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 2**31), st.sampled_from([0.0, 1e6]))
def test_moments_streamed_in_pieces_equal_the_whole_matrix(pieces, seed, offset):
    blocks = [np.random.default_rng(seed + i).standard_normal((n, 6)) + offset for i, n in enumerate(pieces)]
    whole = np.concatenate(blocks)
    moments = Moments(6, origin=whole[0])
    for block in blocks:
        moments.add(block)
    assert moments.count == len(whole)
    close(moments.ranks(centred=False), matrix_ranks(whole), 1e-4)
    if len(whole) > 1:
        close(moments.ranks(centred=True), matrix_ranks(whole, centred=True), 1e-4)


def test_moments_without_rows_refuse_to_answer():
    with pytest.raises(ValueError, match="no rows"):
        Moments(3).ranks(centred=True)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(6, 20), st.integers(6, 20), st.integers(0, 2**31), st.floats(0.1, 10))
def test_two_thin_qrs_give_the_spectrum_of_the_product(r, m, n, seed, scale):
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((m, r)), rng.standard_normal((r, n))
    expected = np.linalg.svd(scale * left @ right, compute_uv=False)[:r] ** 2
    np.testing.assert_allclose(factored_squared_singular_values(left, right, scale), expected, rtol=1e-8, atol=1e-12)
