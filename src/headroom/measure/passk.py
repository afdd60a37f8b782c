"""pass@k and mixed groups from n samples a page, without bias.

pass@k (Chen et al. 2021, 2107.03374, equation 1): with c successes among n samples, a draw of k without replacement
misses all of them with probability C(n-c, k) / C(n, k). The same count gives the chance that a GRPO group of size m
is *mixed*, neither all-fail nor all-success: only such a group has a non-zero centred advantage.
"""

from __future__ import annotations

from math import comb


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Unbiased estimate of P(at least one success in k samples), from ``successes`` of ``samples``.

    Raises:
        ValueError: not 0 <= successes <= samples, or not 1 <= k <= samples.
    """
    _check(samples, successes, k)
    return 1.0 - comb(samples - successes, k) / comb(samples, k)


def mixed_share(samples: int, successes: int, group: int) -> float:
    """Unbiased estimate of P(a group of ``group`` samples of this page holds a success and a failure)."""
    _check(samples, successes, group)
    alike = comb(samples - successes, group) + comb(successes, group)
    return 1.0 - alike / comb(samples, group)


def _check(samples: int, successes: int, k: int) -> None:
    if not 0 <= successes <= samples:
        raise ValueError(f"{successes} successes among {samples} samples")
    if not 1 <= k <= samples:
        raise ValueError(f"k = {k} needs 1 to {samples} samples; raise evaluation.samples or lower k")
