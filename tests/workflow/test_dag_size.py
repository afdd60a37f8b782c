"""A study of a thousand runs: what the rules add to Snakemake's own cost of a workflow of that many jobs."""

import pytest
from dag import measure


@pytest.mark.slow
def test_a_thousand_runs_cost_less_than_five_times_a_bare_workflow_of_as_many_jobs_and_less_than_a_gigabyte() -> None:
    # Looking names up one by one (`lookup`, flat alternations) cost six to seven times; times are ratios by design.
    found = measure(1000)
    assert found["study"]["jobs"] > 2000
    assert abs(found["study"]["jobs"] - found["bare"]["jobs"]) <= 1
    assert found["cpu_ratio"] < 5, found
    assert found["study"]["peak_megabytes"] < 1000, found
