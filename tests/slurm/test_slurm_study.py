"""The smoke study through ``snakemake --profile slurm``: its requests, its logs, and the loss of its controller."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from recorded import digests

from headroom.cluster.site import minutes
from headroom.config.models import Resources
from headroom.provenance import attempts

PROJECT = Path(__file__).parents[2]
KEYS = {"overlap": "demonstrations"}
"""Rules that ask for what stands under another rule's name."""

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(2400)]


def megabytes(text: str) -> float:
    """``2010M``, ``120G``."""
    return float(text[:-1]) * {"M": 1, "G": 1024, "T": 1024**2}[text[-1]]


def rule_of(job: dict[str, str]) -> str:
    """The rule that a job's comment names."""
    match = re.fullmatch(r"rule_(\w+?)(_wildcards_.*)?", job["Comment"])
    assert match is not None, job["Comment"]
    return match[1]


def table(scale_file: Path) -> dict[str, Resources]:
    """Rule -> resources of a scale."""
    written = yaml.safe_load(scale_file.read_text())["resources"]
    return {"default": Resources(), **{rule: Resources(**values) for rule, values in written.items()}}


def asked(job: dict[str, str]) -> tuple[float, float, int, str]:
    """Megabytes, minutes, processors and GPUs of a job, as the controller noted them."""
    gpus = job.get("TresPerJob", "gres:gpu:h200:0").removeprefix("gres:gpu:")
    return megabytes(job["MinMemoryNode"]), minutes(job["TimeLimit"]), int(job["CPUs/Task"]), gpus


def expected(rule: str, resources: dict[str, Resources]) -> tuple[float, float, int, str]:
    """The same, as the scale asks for it."""
    ours = resources.get(KEYS.get(rule, rule)) or resources["default"]
    return ours.mem_mb, ours.runtime, ours.threads, f"h200:{ours.gpu}"


def test_each_job_asked_for_its_rules_memory_time_processors_and_gpus(finished) -> None:
    resources = table(finished.folder / "workflow/scales/smoke.yaml")
    seen = Counter()
    for job in finished.cluster.jobs():
        if job["WorkDir"] != str(finished.folder) or job["JobState"] != "COMPLETED":
            continue
        rule = rule_of(job)
        seen[rule] += 1
        if rule.startswith("figures_"):
            continue
        assert asked(job) == expected(rule, resources), rule
        assert job["Partition"] == "cpu", rule
        assert job["Requeue"] == "1", rule
    assert seen >= Counter(
        demonstrations=1,
        overlap=1,
        sft=2,
        select=1,
        reading=1,
        grpo=6,
        evaluate=8,
        probe=1,
        rank=3,
        graft=1,
        contrast=1,
    )
    assert seen["figures_figure_figure_data"] >= 2


def test_the_log_of_every_job_is_kept(finished) -> None:
    logs = {path.stem for path in (finished.folder / ".snakemake/slurm_logs").rglob("*.log") if path.stat().st_size}
    ours = {job["JobId"] for job in finished.cluster.jobs() if job["WorkDir"] == str(finished.folder)}
    assert len(ours) > 30
    assert ours <= logs


def test_jobs_that_outlived_their_controller_count_and_no_job_ran_twice(finished) -> None:
    assert "rule_sft" in finished.seen["left at work"]
    assert "rule sft:" not in finished.seen["recovery"], "what ended well after the kill is not made again"
    started = Counter(
        line["output"]
        for line in attempts.read(finished.folder / "results/smoke" / attempts.NAME)
        if line["event"] == "started" and line["stage"] != "train.demonstrations"
    )
    assert len(started) > 30
    assert started.pop("results/smoke/sft/base") == 2, "it was preempted once"
    assert set(started.values()) == {1}


def test_a_preempted_job_is_started_again_by_slurm_under_its_id(finished) -> None:
    record = json.loads((finished.folder / "results/smoke/sft/base/run.json").read_bytes())
    assert record["scheduler"]["restarts"] == 1
    assert [attempt["ending"] for attempt in record["earlier_attempts"]] == ["interrupted"]


def test_records_name_the_slurm_job_that_made_them(finished) -> None:
    record = json.loads((finished.folder / "results/smoke/grpo/grid-05/run.json").read_bytes())
    jobs = {job["JobId"]: rule_of(job) for job in finished.cluster.jobs() if job["WorkDir"] == str(finished.folder)}
    assert record["scheduler"]["kind"] == "slurm"
    assert jobs[record["scheduler"]["job"]] == "grpo"


def test_afterwards_there_is_nothing_to_do(finished) -> None:
    done = finished.snakemake("-n")
    assert "Nothing to be done" in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_recovered_study_has_the_bytes_of_an_unbroken_local_one(finished, finished_smoke: Path) -> None:
    ours, local = digests(finished.folder), digests(finished_smoke)
    assert len(ours) > 100
    assert {name for name in ours.keys() | local.keys() if ours.get(name) != local.get(name)} == set()


def test_at_scale_paper_the_gpu_jobs_ask_for_their_gpus_and_ctrl_c_cancels_them(
    finished, cluster: Cluster, tmp_path: Path
) -> None:
    held = type(finished)(tmp_path / "headroom", cluster)
    shutil.copytree(finished.folder, held.folder, symlinks=True)
    resources = table(PROJECT / "workflow/scales/paper.yaml")
    assert 0 not in {resources[rule].gpu for rule in ("grpo", "evaluate", "reading")}
    targets = {"reading": "reading", "grpo": "grpo/grid-05", "evaluate": "evaluate/sft", "overlap": "overlap"}
    wanted = {rule: resources.get(KEYS.get(rule, rule)) or resources["default"] for rule in targets}
    sizes = [
        f"{rule}:{name}={getattr(of_rule, name)}"
        for rule, of_rule in wanted.items()
        for name in ("mem_mb", "runtime", "gpu")
    ]
    threads = [f"{rule}={of_rule.threads}" for rule, of_rule in wanted.items()]
    names = [f"results/smoke/{target}/manifest.json" for target in targets.values()]
    for partition in ("cpu", "gpu"):
        cluster.ask("scontrol", "update", f"PartitionName={partition}", "State=DOWN")
    controller = held.controller("-f", *names, "--set-resources", *sizes, "--set-threads", *threads)
    try:
        held.wait_for(lambda: len(cluster.ask("squeue", "-h").splitlines()) == len(targets), controller)
        waiting = {rule_of(job): job for job in cluster.jobs() if job["JobState"] == "PENDING"}
        assert set(waiting) == set(targets)
        for rule, job in waiting.items():
            assert asked(job) == expected(rule, resources), rule
            assert job["Partition"] == ("gpu" if wanted[rule].gpu else "cpu"), rule
        controller.send_signal(signal.SIGINT)
        assert controller.wait(timeout=120) != 0
        assert cluster.ask("squeue", "-h") == ""
    finally:
        controller.kill()
        subprocess.run(["scancel", "--user", "root"], env=cluster.environment, check=False)
        for partition in ("cpu", "gpu"):
            cluster.ask("scontrol", "update", f"PartitionName={partition}", "State=UP")
