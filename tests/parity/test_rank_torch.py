"""Ranks from Gram eigenvalues against ranks from torch's SVD."""

import numpy as np
import pytest
import torch

from headroom.measure.spectrum import matrix_ranks, ranks


@pytest.mark.parametrize("kind", ["noise", "decaying", "nearly rank one", "common offset"])
@pytest.mark.parametrize("shape", [(64, 192), (300, 96)])
def test_the_effective_rank_equals_the_one_from_torchs_svd_to_a_tenth(kind, shape):
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal(shape)
    if kind == "decaying":
        matrix = matrix * np.geomspace(1, 1e-6, shape[1])
    elif kind == "nearly rank one":
        matrix = 1e-3 * matrix + np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1]))
    elif kind == "common offset":
        matrix = matrix + 1e4
    matrix = matrix.astype(np.float32)
    squared = torch.linalg.svdvals(torch.from_numpy(matrix).double()).numpy() ** 2
    assert matrix_ranks(matrix).effective_rank == pytest.approx(ranks(squared).effective_rank, abs=0.1)
