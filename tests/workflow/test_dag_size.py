"""A study of a thousand runs: what the rules add to Snakemake's own cost of a workflow of that many jobs."""

import pytest
from dag import measure


@pytest.mark.slow
def test_a_thousand_runs_cost_less_than_three_bare_workflows_of_as_many_jobs_and_less_than_a_gigabyte() -> None:
    # Looking names up one by one (`lookup`, flat alternations) cost six to seven bare workflows of as many jobs,
    # every source as an input of its own more than three. Processor seconds: the wall's are those of other work too.
    found = measure(1000)
    assert found["study"]["jobs"] > 2000
    assert abs(found["study"]["jobs"] - found["bare"]["jobs"]) <= 1
    assert found["cpu_ratio"] < 3, found
    assert found["study"]["peak_megabytes"] < 1000, found
