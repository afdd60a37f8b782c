"""What two figures share: every policy is a point of its level, and every correlation is said with its interval."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from headroom.present.policies import CORRELATED, correlations_said, points_by_level
from headroom.present.style import LEVELS


@pytest.mark.parametrize("interval_of", ["x", "y"])
def test_every_policy_is_a_point_of_its_level_with_the_interval_on_the_axis_that_has_one(interval_of):
    points = pd.DataFrame(
        {
            "learning_rate_level": ["high", None, "low", "low"],
            "moved": [0.5, 0.1, 0.2, 0.3],
            "success": [0.1, 0.9, 0.8, 0.7],
            "ci_low": [0.05, 0.05, 0.15, 0.25],
            "ci_high": [0.95, 0.95, 0.85, 0.75],
        }
    )
    figure, axes = plt.subplots()
    points_by_level(axes, points, "moved", "success", interval_of)
    drawn = {container.get_label(): container for container in axes.containers}
    assert list(drawn) == ["no RL", "low", "high"], "in the order of the levels"
    assert drawn["low"][0].get_xydata().tolist() == [[0.2, 80.0], [0.3, 70.0]]
    assert drawn["high"][0].get_color() == LEVELS["high"]
    (bar,) = drawn["high"][2]
    (start, end) = bar.get_segments()[0].tolist()
    assert start[interval_of == "x"] == end[interval_of == "x"], "the other axis has no interval"
    assert drawn["low"].has_xerr == (interval_of == "x")
    plt.close(figure)


def test_a_correlation_is_said_with_its_interval_and_the_number_of_policies():
    row = dict(zip(CORRELATED, (0.9, 0.8, 0.95, -0.5, -0.7, -0.2), strict=True))
    related = pd.DataFrame([row | {"subset": "all", "checkpoints": 28.0}])
    said = correlations_said(related, {"all": "over all"})
    assert said == "over all rho -0.50 [-0.70, -0.20] (28 policies)"
    said = correlations_said(related, {"all": "over all"}, pearson=True)
    assert said == "over all rho -0.50 [-0.70, -0.20], r +0.90 [0.80, 0.95] (28 policies)"
    assert correlations_said(related.iloc[:0], {}) == ""
