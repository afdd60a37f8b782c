"""Singular spectra and what is read off them, in float64, from the smaller Gram matrix.

With sigma_k the singular values of an (n, d) matrix and p_k = sigma_k / sum(sigma):

* effective rank (Roy & Vetterli 2007): exp(-sum p_k ln p_k), the primary measure;
* participation ratio: (sum sigma_k^2)^2 / sum sigma_k^4;
* stable rank (Rudelson & Vershynin 2007): sum sigma_k^2 / max sigma_k^2.

The three disagree by design, and each depends on n and on whether the rows were centred; a table that reports
one of them states both. The eigenvalues of a Gram matrix are the squared singular values. They cost four to nine
times less than an SVD and lose only what lies below sqrt(machine epsilon) of the largest singular value, which
no measure here can see: eigenvalues under ``max(n, d) * epsilon`` of the largest are rounding, some of them
negative, and are set to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array64 = npt.NDArray[np.float64]
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The three measures of one spectrum; all 0 for a zero matrix, all NaN if the matrix holds a non-finite value."""

    effective_rank: float
    participation_ratio: float
    stable_rank: float


def ranks(squared: npt.ArrayLike) -> Ranks:
    """All three measures from squared singular values (K,), in any order; not negative.

    The scale of the matrix cancels: ``ranks(c * x) == ranks(x)`` for c > 0.
    """
    values = np.asarray(squared, dtype=np.float64)
    if not np.isfinite(values).all():
        return Ranks(float("nan"), float("nan"), float("nan"))
    largest = float(values.max(initial=0.0))
    if largest <= 0.0:
        return Ranks(0.0, 0.0, 0.0)
    energy = values[values > 0.0] / largest  # first divided, so that squares neither overflow nor vanish
    share = np.sqrt(energy)
    share /= share.sum()
    share = share[share > 0.0]
    return Ranks(
        effective_rank=float(np.exp(-(share * np.log(share)).sum())),
        participation_ratio=float(energy.sum() ** 2 / (energy**2).sum()),
        stable_rank=float(energy.sum()),
    )


def squared_singular_values(gram: npt.ArrayLike, longer_side: int) -> Array64:
    """Eigenvalues of a Gram matrix (K, K) or a stack (..., K, K), ascending, rounding set to exact zero.

    ``longer_side`` is the other dimension of the matrix behind the Gram matrix; it sets the rounding threshold.
    A Gram matrix with a non-finite value gives NaN instead of LAPACK's failure to converge.
    """
    matrix = np.asarray(gram, dtype=np.float64)
    if not np.isfinite(matrix).all():
        return np.full(matrix.shape[:-1], np.nan)
    values = np.linalg.eigvalsh(matrix)
    threshold = values.max(axis=-1, keepdims=True, initial=0.0) * _EPSILON * max(matrix.shape[-1], longer_side)
    return np.where(values > threshold, values, 0.0)


def matrix_ranks(matrix: npt.ArrayLike, *, centred: bool = False) -> Ranks:
    """The measures of a matrix (n, d); ``centred`` subtracts the mean row first. Peak memory: one float64 copy."""
    rows = np.array(matrix, dtype=np.float64, ndmin=2)
    if centred:
        rows -= rows.mean(axis=0)
    gram = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    return ranks(squared_singular_values(gram, max(rows.shape)))


def factored_squared_singular_values(left: npt.ArrayLike, right: npt.ArrayLike, scale: float = 1.0) -> Array64:
    """Squared singular values of ``scale * left @ right`` without forming it: (m, r) @ (r, n) -> (r,), descending.

    Two thin QR decompositions leave an (r, r) core, so a LoRA update costs O((m + n) r^2) and is exact.
    """
    core_left = np.linalg.qr(np.asarray(left, dtype=np.float64))[1]
    core_right = np.linalg.qr(np.asarray(right, dtype=np.float64).T)[1]
    core = core_left @ core_right.T
    if not np.isfinite(core).all():
        return np.full(min(core.shape), np.nan)
    return np.asarray((scale * np.linalg.svd(core, compute_uv=False)) ** 2, dtype=np.float64)


class Moments:
    """Weighted count, sum and second moment of rows that arrive in pieces; O(d^2) memory however many rows come.

    Rows are taken relative to ``origin`` (d,), so that a large common offset does not cancel the digits of the
    centred spectrum; the uncentred one is restored exactly as far as float64 goes.
    """

    def __init__(self, width: int, origin: npt.ArrayLike | None = None) -> None:
        self.width = width
        self.origin = np.zeros(width) if origin is None else np.asarray(origin, dtype=np.float64)
        self.count = 0
        self.total = np.zeros(width)
        self.second = np.zeros((width, width))

    def add(self, rows: npt.ArrayLike) -> None:
        """Add rows (m, d) of any real dtype."""
        block = np.asarray(rows, dtype=np.float64) - self.origin
        self.count += block.shape[0]
        self.total += block.sum(axis=0)
        self.second += block.T @ block

    def gram(self, *, centred: bool) -> Array64:
        """The (d, d) Gram matrix of all rows so far, about their mean or about zero."""
        if self.count == 0:
            raise ValueError("no rows were added: a spectrum needs at least one")
        if centred:
            return self.second - np.outer(self.total, self.total) / self.count
        cross = np.outer(self.total, self.origin)
        return self.second + cross + cross.T + self.count * np.outer(self.origin, self.origin)

    def ranks(self, *, centred: bool) -> Ranks:
        """The measures of all rows so far."""
        return ranks(squared_singular_values(self.gram(centred=centred), self.count))
