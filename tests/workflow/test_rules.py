"""The workflow's own form: faults before any job, the tiers, and rules that say what they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def test_a_wrong_setting_is_one_clear_error_before_any_job(study) -> None:
    with study.edited("workflow/scales/smoke.yaml", "grpo:\n  steps:", "grpo:\n  stepz:"):
        done = study.snakemake()
    assert done.returncode != 0
    text = done.stdout + done.stderr
    lines = [line for line in text.strip().splitlines() if not line.startswith("Config file ")]
    assert len(lines) == 1, text
    assert lines[0].startswith("headroom: workflow/scales/smoke.yaml: grpo: stepz: unknown key")


@pytest.mark.parametrize(
    ("tier", "gone"),
    [
        ("checkpoints", {"demonstrations", "sft", "grpo"}),
        ("evals", {"demonstrations", "sft", "grpo", "select", "reading", "evaluate"}),
        ("tables", {"demonstrations", "sft", "grpo", "select", "reading", "evaluate", "contrast", "figure_data"}),
    ],
)
def test_below_its_tier_no_rule_can_run_by_accident(study, tier: str, gone: set[str]) -> None:
    done = study.snakemake("--list-rules", tier=tier)
    assert done.returncode == 0, done.stderr
    assert not gone & set(re.findall(r"^(\w+)", done.stdout, re.MULTILINE))


def test_every_rule_says_what_it_needs() -> None:
    for path in sorted((PROJECT / "workflow/rules").glob("*.smk")):
        for body in re.split(r"\n\s*(?=rule \w+:)", path.read_text())[1:]:
            name = re.match(r"rule (\w+):", body)[1]  # type: ignore[index]
            for directive in (
                '"""',
                "input:",
                "output:",
                "log:",
                "conda:",
                "threads:",
                "resources:",
                "shell:",
            ):
                assert directive in body, f"rule {name} of {path.name} has no {directive}"
            asked = re.search(rf'"HEADROOM_ASKED={name}:(\S+)"', body)
            assert asked, f"rule {name}: its job cannot check what it was given"
            for resource in ("gpu", "disk_mb", *(["gpu_mem_mb"] if "gpu_mem_mb=" in body else [])):
                assert f"{resource}={{resources.{resource}}}" in asked[1].split(","), f"rule {name}: {resource}"
            assert "sources=" in body, f"rule {name}: its sources are no input"
            assert "environment=" in body, f"rule {name}: its pins are no input"


def test_other_resources_make_no_result_stale(study) -> None:
    assert study.stale("--set-resources", "grpo:gpu=2", "grpo:gpu_mem_mb=1", "contrast:disk_mb=7") == set()


def test_the_rules_are_formatted_and_pass_the_lint() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "snakefmt", "--check", "Snakefile", "workflow"],
        cwd=PROJECT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = subprocess.run([sys.executable, "-m", "snakemake", "--lint"], cwd=PROJECT, capture_output=True, text=True)
    assert "Congratulations" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["lock.py", "licences.py"])
def test_locks_environments_and_licences_are_what_is_installed(tool: str) -> None:
    done = subprocess.run([sys.executable, f"tools/{tool}", "--check"], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
