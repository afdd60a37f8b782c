"""Correlations over checkpoints: known values, honest intervals, and the collapsed left out where it says so."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headroom.config.models import Statistics
from headroom.measure.mechanism import correlation, correlations, greedy_success, quantities

RULE = Statistics(bootstrap_draws=500)


def test_correlations_equal_scipys_and_the_interval_surrounds_them():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(25)
    y = 0.7 * x + 0.5 * rng.standard_normal(25)
    found = correlation(x, y, RULE)
    assert found["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    for name in ("pearson", "spearman"):
        assert found[f"{name}_ci_low"] < found[name] < found[f"{name}_ci_high"]
    assert correlation(x, y, RULE) == found


@pytest.mark.parametrize(
    ("x", "y"), [(np.ones(9), np.arange(9.0)), (np.arange(9.0), np.ones(9)), (np.arange(3.0),) * 2]
)
def test_what_does_not_vary_or_is_too_few_has_no_correlation(x, y):
    assert np.isnan(correlation(x, y, RULE)["pearson"])


def test_one_collapsed_checkpoint_cannot_make_a_correlation_among_the_living():
    values = [5.0, 5.2, 4.9, 5.1, 5.0, 0.1]
    success = [0.90, 0.86, 0.87, 0.91, 0.88, 0.0]
    names = [f"run-{i}" for i in range(6)]
    table = pd.DataFrame(
        {
            "policy": names,
            "quantity": "effective_rank",
            "site": "block",
            "layer": 1,
            "tokens": "mean",
            "centred": "True",
            "value": values,
            "primary": True,
        }
    )
    found = correlations(table, dict(zip(names, success, strict=True)), RULE).set_index("subset")
    assert found.loc["all", "pearson"] > 0.95
    assert found.loc["alive", "checkpoints"] == 5
    assert abs(found.loc["alive", "pearson"]) < 0.7
    assert found.loc["alive", "pearson_ci_low"] < 0


def test_every_measured_quantity_comes_in_one_form_with_one_primary_rank():
    rank = pd.DataFrame(
        {
            "policy": "p",
            "site": "block",
            "layer": [0, 1],
            "tokens": "mean",
            "centred": True,
            "effective_rank": [3.0, 2.0],
            "primary": [False, True],
        }
    )
    agreement = pd.DataFrame(
        {"policy": ["p"], "measure": ["cka"], "site": ["block"], "layer": [1], "tokens": ["all"], "value": [0.5]}
    )
    drift = pd.DataFrame(
        {
            "policy": "p",
            "scope": ["tensor", "group", "model"],
            "name": ["w", "mlp", "model"],
            "layer": [0, -1, -1],
            "relative_movement": [0.1, 0.2, 0.3],
        }
    )
    table = quantities(rank, agreement, drift)
    assert table["value"].tolist() == [3.0, 2.0, 0.5, 0.2, 0.3]
    assert table.loc[table["primary"], "quantity"].tolist() == ["effective_rank", "relative_movement"]


def test_success_counts_scored_greedy_episodes_of_the_task_set_alone():
    frame = pd.DataFrame(
        {
            "mode": ["greedy", "greedy", "greedy", "sampled", "greedy"],
            "task_set": ["mastered", "mastered", "headroom", "mastered", "mastered"],
            "ending": ["done", "horizon", "done", "done", "infrastructure"],
            "success": [True, False, True, True, False],
        }
    )
    assert greedy_success(frame) == 0.5
    assert np.isnan(greedy_success(frame, "none"))
