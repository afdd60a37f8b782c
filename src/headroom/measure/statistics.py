"""Paired statistics over pages that are clustered in tasks. Pure functions of arrays; no random numbers here.

A *pair* is one page (task, seed) played by two policies. Its difference is policy minus reference: -1, 0 or 1 for
greedy success, a number in [-1, 1] for the mean of several samples. Pages of one task resemble each other, so the
task is the unit that counts ("cluster"); the estimand is the mean difference over pages, tasks weighted by their
pages, for tasks drawn like these.

The standard error is the cluster-robust one of a mean (Liang & Zeger 1986, with the factor G/(G-1)),

    SE^2 = G/(G-1) * sum_g (sum_{i in g} (d_i - mean))^2 / N^2,

and never less than the unclustered one: with about ten tasks the clustered estimate is often too small by chance,
and the larger of the two is the usual guard (Angrist & Pischke 2009, section 8.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Values grouped by task, reduced to what the statistics need; tasks in sorted order.

    ``sums``, ``counts``, ``squares`` are float64 (G,): per task the sum of values, their number, and the sum of
    their squares. Sums of -1, 0 and 1 are exact, so a difference of nothing is exactly 0.
    """

    tasks: tuple[str, ...]
    sums: Floats
    counts: Floats
    squares: Floats
    lowest: float
    highest: float

    @property
    def pairs(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean over values."""
        return float(self.sums.sum() / self.counts.sum())

    @property
    def constant(self) -> bool:
        """Whether every value is the same, so that the data say nothing about their own spread."""
        return self.lowest == self.highest

    @property
    def degrees_of_freedom(self) -> int:
        """Tasks minus one; with a single task, pages minus one."""
        return len(self.tasks) - 1 if len(self.tasks) > 1 else self.pairs - 1

    @property
    def clustered_error(self) -> float:
        """Cluster-robust standard error of the mean; NaN for a single task."""
        groups = len(self.tasks)
        if groups < 2:
            return math.nan
        residuals = self.sums - self.counts * self.mean
        return math.sqrt(groups / (groups - 1) * float(residuals @ residuals)) / self.pairs

    @property
    def pooled_error(self) -> float:
        """Standard error of the mean if pages were independent; NaN for a single page."""
        if self.pairs < 2:
            return math.nan
        spread = max(float(self.squares.sum()) - self.pairs * self.mean**2, 0.0)
        return math.sqrt(spread / (self.pairs - 1) / self.pairs)

    @property
    def standard_error(self) -> float:
        """The larger of the two standard errors (0 when all values are equal)."""
        if self.constant:
            return 0.0
        return float(np.nanmax([self.clustered_error, self.pooled_error]))


def clusters(tasks: Sequence[str], values: npt.ArrayLike) -> Clusters:
    """Group values (N,) by the task (N,) that they belong to.

    Raises:
        ValueError: no values, lengths that differ, or a value that is not finite.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) != len(tasks) or len(numbers) == 0:
        raise ValueError(f"need one value a task label, got {numbers.shape} values for {len(tasks)} labels")
    if not np.isfinite(numbers).all():
        raise ValueError("a value is not finite; drop excluded episodes before the statistics")
    names, index = np.unique(np.asarray(tasks, dtype=object).astype(str), return_inverse=True)
    size = len(names)
    return Clusters(
        tasks=tuple(str(name) for name in names),
        sums=np.bincount(index, numbers, size).astype(np.float64),
        counts=np.bincount(index, minlength=size).astype(np.float64),
        squares=np.bincount(index, numbers**2, size).astype(np.float64),
        lowest=float(numbers.min()),
        highest=float(numbers.max()),
    )


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided exact McNemar test (McNemar 1947): the sign test on discordant pairs; 1.0 when there are none.

    Its null is "given the tasks, a page is as likely to be gained as lost": it conditions on these tasks, where the
    bootstrap interval generalises to others. The two can therefore disagree; both are reported.
    """
    if gained < 0 or lost < 0:
        raise ValueError(f"counts of pairs cannot be negative: gained {gained}, lost {lost}")
    discordant = gained + lost
    if discordant == 0:
        return 1.0
    return min(1.0, 2.0 * float(stats.binom.cdf(min(gained, lost), discordant, 0.5)))


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values (Holm 1979), float64 (M,). NaN entries stay NaN and are not counted."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    present = np.flatnonzero(~np.isnan(p))
    order = present[np.argsort(p[present], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def equivalence(values: Clusters, margin: float) -> float:
    """P-value of the two one-sided tests (Schuirmann 1987) of ``|difference| >= margin``.

    Student's t with the standard error above and tasks - 1 degrees of freedom, not a bootstrap: it has a p-value in
    closed form, and with ten tasks t quantiles keep the error rate where bootstrap tails do not. When all values
    equal c, t has no denominator; the p-value is then the exact binomial chance of seeing N equal pages although
    the true mean lies on the margin.
    """
    if margin <= 0:
        raise ValueError(f"the equivalence margin must be positive, not {margin}")
    mean, pairs = values.mean, values.pairs
    if values.standard_error > 0.0:
        return equivalence_from(mean, values.standard_error, values.degrees_of_freedom, margin)
    if abs(mean) >= margin:
        return 1.0
    # The smallest share of pages that must differ from c for the true mean to lie on the margin, above or below.
    share = min((margin - mean) / (1.0 - mean), (margin + mean) / (1.0 + mean))
    return float((1.0 - share) ** pairs)


def equivalence_from(mean: float, standard_error: float, degrees_of_freedom: float, margin: float) -> float:
    """The same two one-sided t tests from an estimate (NaN without a standard error or degrees of freedom)."""
    if not standard_error > 0.0 or degrees_of_freedom < 1:
        return math.nan
    below = stats.t.sf((mean + margin) / standard_error, degrees_of_freedom)
    above = stats.t.cdf((mean - margin) / standard_error, degrees_of_freedom)
    return float(max(below, above))


def smallest_sign_test_effect(pairs: int, confidence: float, power: float) -> float:
    """Smallest true share of gained pages (none lost) that an exact McNemar test on ``pairs`` pages finds.

    At 95% it takes 6 discordant pages on one side to reject, so the answer solves P(Binomial(pairs, x) >= 6) =
    power. NaN when there are fewer pages than that: no effect can be detected.
    """
    needed = math.floor(1.0 + math.log2(1.0 / (1.0 - confidence)))
    while 2.0 * 0.5**needed > (1.0 - confidence) * (1.0 + 1e-12):
        needed += 1
    if pairs < needed:
        return math.nan
    return float(stats.beta.ppf(power, needed, pairs - needed + 1))


def minimum_detectable_effect(values: Clusters, confidence: float, power: float, *, binary: bool) -> float:
    """Smallest true |difference| that this design finds with the given power, two-sided.

    (t_{1-alpha/2} + t_{power}) SE with tasks - 1 degrees of freedom (Bloom 1995), SE as observed. The observed SE is
    near 0 exactly when two policies hardly differ, and would then promise the detection of anything; so for binary
    outcomes, and whenever all values are equal, it is never less than what the exact McNemar test needs. NaN when
    nothing is detectable.
    """
    floor = smallest_sign_test_effect(values.pairs, confidence, power)
    if values.standard_error == 0.0 or values.degrees_of_freedom < 1:
        return floor
    effect = detectable_from(values.standard_error, values.degrees_of_freedom, confidence, power)
    return max(effect, floor) if binary else effect


def detectable_from(standard_error: float, degrees_of_freedom: float, confidence: float, power: float) -> float:
    """(t_{1-alpha/2} + t_{power}) SE; NaN without degrees of freedom."""
    if degrees_of_freedom < 1:
        return math.nan
    quantiles = stats.t.ppf([(1.0 + confidence) / 2.0, power], degrees_of_freedom)
    return float(quantiles.sum() * standard_error)
