"""The profile in the root: found by its name, free of this or that cluster, and alone in what it knows of one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[2]
PROFILE = PROJECT / "slurm" / "config.yaml"


def snakemake(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "snakemake", *options], cwd=folder, capture_output=True, text=True)


def test_a_wrong_profile_is_refused_by_its_name() -> None:
    done = snakemake(PROJECT, "--profile", "slurmm", "-n")
    assert done.returncode != 0
    assert "slurmm" in done.stderr
    assert "no profile.yaml (or config.yaml) found" in done.stderr


def test_no_rule_names_a_cluster_and_no_other_profile_overrides_this_one() -> None:
    for path in [
        PROJECT / "Snakefile",
        *(PROJECT / "workflow").rglob("*.smk"),
        *(PROJECT / "workflow/scales").iterdir(),
    ]:
        assert not re.search(r"slurm|partition|account|\bconstraint\b|qos|a100|h100|h200", path.read_text(), re.I), path
    assert not (PROJECT / "profiles" / "default").exists()
    assert not (PROJECT / "workflow" / "profiles").exists()


def test_the_profile_starts_no_second_copy_of_a_job_that_may_still_run() -> None:
    profile = yaml.safe_load(PROFILE.read_text())
    assert "rerun-incomplete" not in profile
    assert profile["executor"] == "slurm"
    assert profile["retries"] > 0
    assert profile["slurm-requeue"] is profile["slurm-keep-successful-logs"] is True


def test_site_facts_stand_in_one_block_that_is_commented_out_and_is_yaml() -> None:
    text = PROFILE.read_text()
    block = re.search(r"^# ---- This site.*?\n(.*?)^# -{60,}$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert all(line.startswith("# ") for line in block[1].splitlines())
    site = yaml.safe_load(re.sub(r"^# ", "", block[1], flags=re.MULTILINE))
    assert set(site["default-resources"]) == {"slurm_account", "slurm_partition", "constraint", "gpu_model"}
    assert set(site["partitions"]) == {"cpu", "gpu"}
    assert not set(site) & set(yaml.safe_load(text)), "a key that counts twice"
    rest = text.replace(block[0], "")
    assert not re.search(r"^\w*(account|partition|constraint|gpu)", rest, re.MULTILINE)
