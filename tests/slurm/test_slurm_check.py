"""``headroom slurm-check`` asks a real Slurm, and names what would fail later, each with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cluster import Cluster

from headroom.cluster.check import Finding, check
from headroom.cluster.site import Site

PROJECT = Path(__file__).parents[2]
HERE = {
    "executor": "slurm",
    "default-resources": {"gpu_model": "'h200'"},
    "slurm-partition-config": "config.yaml",
    "partitions": {"cpu": {"max_threads": 4}, "gpu": {"max_gpu": 8}},
    "slurm-status-command": "squeue",
    "slurm-init-seconds-before-status-checks": 20,
}
LARGE = {"default": {"mem_mb": 3000}, "grpo": {"threads": 16, "mem_mb": 240000, "runtime": 1440, "gpu": 4}}


@pytest.fixture
def findings(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function: what the check finds in a project at scale smoke, with this profile and these resources."""
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])

    def found(profile: dict[str, object], resources: dict[str, object]) -> dict[str, list[Finding]]:
        for name in ("workflow", "requirements"):
            if not (tmp_path / name).exists():
                (tmp_path / name).mkdir()
                for item in (PROJECT / name).iterdir():
                    (tmp_path / name / item.name).symlink_to(item)
        (tmp_path / "workflow" / "scales").unlink()
        (tmp_path / "workflow" / "scales").mkdir()
        smoke = (PROJECT / "workflow/scales/smoke.yaml").read_text()
        (tmp_path / "workflow/scales/smoke.yaml").write_text(smoke + yaml.safe_dump({"resources": resources}))
        (tmp_path / "slurm").mkdir()
        (tmp_path / "slurm/config.yaml").write_text(yaml.safe_dump(profile))
        by_topic: dict[str, list[Finding]] = {}
        for finding in check(tmp_path, "smoke", tmp_path / "slurm"):
            by_topic.setdefault(finding.about, []).append(finding)
        return by_topic

    return found


def test_a_site_that_has_everything_is_ready(findings) -> None:
    found = findings(HERE, {"default": {"mem_mb": 3000}, "grpo": {"threads": 16, "mem_mb": 240000, "runtime": 1440}})
    missing = [finding for group in found.values() for finding in group if finding.state == "missing"]
    assert missing == []
    assert found["grpo"][0].text == "16 CPU(s), 240000 MB, 1440 min on gpu", "too wide for the table's cpu partition"
    assert found["other rules"][0].text.endswith("on cpu")
    assert "cannot be known" in found["chromium"][0].text


def test_no_job_is_sent(findings, cluster: Cluster) -> None:
    before = len(cluster.jobs())
    findings(HERE, LARGE)
    assert len(cluster.jobs()) == before


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"gpu": 9}, "fits none of cpu, gpu"),
        ({"gpu": 1, "mem_mb": 9_000_000}, "Requested node configuration is not available (largest node: 128 CPUs"),
        ({"gpu": 1, "runtime": 5000}, "its limit is 2880 min"),
    ],
)
def test_a_request_that_no_partition_admits_is_named_with_what_there_is(
    findings, request_: dict[str, int], words: str
) -> None:
    found = findings(HERE, {"grpo": request_})["grpo"][0]
    assert found.state == "missing"
    assert words in found.text
    assert "workflow/scales/smoke.yaml (resources: grpo)" in found.remedy


def test_a_gpu_type_that_the_site_has_not_is_found(findings) -> None:
    found = findings({**HERE, "default-resources": {"gpu_model": "'a100'"}}, LARGE)
    assert (found["grpo"][0].state, found["other rules"][0].state) == ("missing", "ok")


def test_a_missing_partition_is_named_with_those_that_exist(findings) -> None:
    found = findings({**HERE, "default-resources": {"slurm_partition": "'nowhere'"}}, {})
    assert "nowhere does not exist; this cluster has: cpu, gpu" in found["partition"][0].text
    assert "other rules" not in found, "one fault, one line"


def test_without_slurmdbd_the_flags_to_add_are_said(findings) -> None:
    profile = {key: value for key, value in HERE.items() if "status" not in key}
    found = findings(profile, {})["accounting"][0]
    assert found.state == "missing"
    assert "--slurm-status-command squeue --slurm-init-seconds-before-status-checks 20" in found.remedy


def test_too_rare_questions_for_the_controllers_memory_are_found(findings) -> None:
    found = findings({**HERE, "slurm-init-seconds-before-status-checks": 2000}, {})["accounting"][0]
    assert (found.state, "6000 s are needed" in found.text) == ("missing", True)


def test_a_torch_for_cpus_is_found_before_the_jobs_that_ask_for_gpus(findings) -> None:
    import torch

    if torch.version.cuda or torch.version.hip:
        pytest.skip("torch is a build for GPUs here")
    found = findings(HERE, LARGE)["torch"][0]
    assert (found.state, found.remedy) == ("missing", "TORCH=cuda ./setup.sh")
    assert found.text.endswith("would stop at its start: grpo")


def test_the_site_is_described_as_slurm_describes_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    site = Site()
    assert (site.absent, site.version.ok, site.accounts, site.has_accounting) == ([], True, None, False)
    assert site.remembers == 3600
    assert site.nodes == {cluster.host}
    cpu = site.partitions["cpu"]
    assert (cpu.up, cpu.default, cpu.minutes, cpu.processors, cpu.memory_mb) == (True, True, 2880, 128, 1_000_000)
