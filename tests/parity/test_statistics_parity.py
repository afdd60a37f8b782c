"""Our statistics against scipy and statsmodels, on seeded random data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

from headroom.measure.intervals import page_interval, seed_interval, task_interval
from headroom.measure.statistics import clusters, equivalence, holm, mcnemar_exact


@pytest.mark.parametrize(("gained", "lost"), [(0, 1), (2, 0), (13, 2), (7, 7), (30, 41), (0, 250)])
def test_mcnemar_equals_statsmodels_and_the_binomial_test(gained: int, lost: int) -> None:
    ours = mcnemar_exact(gained, lost)
    assert ours == pytest.approx(mcnemar([[5, gained], [lost, 9]], exact=True).pvalue, rel=1e-10)
    assert ours == pytest.approx(stats.binomtest(gained, gained + lost, 0.5).pvalue, rel=1e-10)


@pytest.mark.parametrize("size", [1, 5, 18])
def test_holm_equals_statsmodels(size: int) -> None:
    p_values = np.random.default_rng(size).random(size) ** 3
    p_values[: size // 3] = p_values[-1]  # ties
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1], rel=1e-12)


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.2])
def test_equivalence_equals_the_paired_tost_of_task_means(margin: float) -> None:
    """Balanced tasks: the clustered t test is the paired t test on task means (where it is not the narrower one)."""
    generator = np.random.default_rng(8)
    reference = generator.random((11, 25)) < 0.7
    policy = generator.random((11, 25)) < generator.uniform(0.4, 1.0, (11, 1))
    values = clusters(np.repeat([f"t{n:02d}" for n in range(11)], 25).tolist(), (policy * 1.0 - reference).ravel())
    assert values.clustered_error > values.pooled_error
    theirs = ttost_paired(policy.mean(axis=1), reference.mean(axis=1), -margin, margin)[0]
    assert equivalence(values, margin) == pytest.approx(theirs, rel=1e-10)


def test_the_clustered_error_equals_the_cluster_robust_regression_on_unequal_tasks() -> None:
    generator = np.random.default_rng(9)
    counts = generator.integers(3, 30, 11)
    groups = np.repeat(np.arange(11), counts)
    values = generator.normal(0, 0.3, 11)[groups] + generator.choice([-1.0, 0.0, 1.0], len(groups))
    fit = OLS(values, np.ones(len(groups))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    ours = clusters([f"t{g:02d}" for g in groups], values)
    assert ours.mean == pytest.approx(float(fit.params[0]), rel=1e-12)
    assert ours.clustered_error == pytest.approx(float(fit.bse[0]), rel=1e-10)


def test_the_binomial_bound_equals_clopper_pearson() -> None:
    bounds = page_interval([0.0] * 275, confidence=0.95, draws=100, seed=0, support=(0.0, 1.0))
    assert (bounds.low, bounds.high) == pytest.approx(proportion_confint(0, 275, 0.05, method="beta"))


def test_the_seed_interval_equals_scipy() -> None:
    means = np.random.default_rng(10).normal(-0.1, 0.05, 6)
    theirs = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    ours = seed_interval(means, 0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-10)


def test_the_bootstrap_of_task_means_agrees_with_scipy() -> None:
    """Read at our expanded tails, scipy's percentile bootstrap of the task means gives our interval, up to draws."""
    from headroom.measure.intervals import expanded_tail

    sums = np.random.default_rng(11).binomial(25, 0.3, 11) - np.random.default_rng(12).binomial(25, 0.2, 11)
    values = np.concatenate([np.sign(s) * (np.arange(25) < abs(s)) for s in sums])
    ours = task_interval(
        clusters(np.repeat([f"t{n:02d}" for n in range(11)], 25).tolist(), values),
        confidence=0.95,
        draws=20_000,
        seed=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = stats.bootstrap(
            (sums / 25,),
            np.mean,
            n_resamples=20_000,
            confidence_level=1 - 2 * expanded_tail(0.95, 11),
            method="percentile",
            rng=np.random.default_rng(2),
        ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
