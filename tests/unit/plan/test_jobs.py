"""The jobs of a study and when they run."""

from __future__ import annotations

import pytest

from headroom.config.models import Resources
from headroom.plan.jobs import Job, schedule


def job(name: str, seconds: float, *needs: str, gpu: int = 1, threads: int = 1) -> Job:
    return Job(name, name, Resources(gpu=gpu, threads=threads), needs, seconds=seconds)


def test_the_longest_chain_bounds_the_wall_time_from_below_and_is_reached_with_many_gpus() -> None:
    jobs = [job("a", 10), job("b", 5, "a"), job("c", 50, "a"), job("d", 1, "b", "c")]
    plan = schedule(jobs, 8)
    assert plan.wall == plan.critical == 61
    assert plan.chain == ("a", "c", "d")


def test_one_gpu_runs_everything_one_after_the_other() -> None:
    jobs = [job("a", 10), job("b", 5), job("c", 50, "a")]
    assert schedule(jobs, 1).wall == 65


def test_a_wide_job_waits_for_its_devices_while_narrow_ones_run() -> None:
    jobs = [job("a", 10, gpu=1), job("wide", 10, gpu=2), job("b", 10, gpu=1)]
    plan = schedule(jobs, 2)
    assert plan.wall == 20
    assert plan.starts["wide"] in (0, 10)


def test_the_job_with_the_longest_way_to_the_end_goes_first() -> None:
    jobs = [job("short", 10), job("long", 10), job("after", 100, "long")]
    assert schedule(jobs, 1).starts["long"] == 0


def test_jobs_without_a_gpu_wait_for_cores_only_where_they_are_counted() -> None:
    jobs = [job(name, 10, gpu=0) for name in "abcd"]
    assert schedule(jobs, 1).wall == 10
    assert schedule(jobs, 1, cores=2).wall == 20
    assert schedule([job("a", 10, gpu=0, threads=8)], 1, cores=2).wall == 10


def test_wall_time_never_exceeds_twice_the_bound_where_every_job_takes_one_device() -> None:
    jobs = [job(f"j{n}", 1 + 7 * n % 13) for n in range(40)]
    for gpus in (1, 2, 3, 7):
        bound = max(sum(one.seconds for one in jobs) / gpus, max(one.seconds for one in jobs))
        assert bound <= schedule(jobs, gpus).wall < 2 * bound


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(ValueError, match="a: asks for 4 GPUs, 2 are there"):
        schedule([job("a", 1, gpu=4)], 2)
    with pytest.raises(ValueError, match="a: needs b, which is no job"):
        schedule([job("a", 1, "b")], 2)
