"""The reason for a driver of our own: it costs a tenth or less of the reference environment's CPU time a step."""

import pytest
from selenium_environment import missing


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(bool(missing()), reason=missing() or "here")
def test_our_driver_makes_ten_times_the_reference_environments_steps_per_cpu_second() -> None:
    from world_speed import measure

    result = measure(screenshots=False)
    assert result["ratio"] >= 10, result
