"""An edit reruns exactly what it can change, and nothing else."""

from __future__ import annotations

import os
import time

import pytest
import yaml

RUNS = {"grid-05", "grid-11", "grid-15", "replication-01", "group_size-01", "headroom-01"}
POLICIES = RUNS | {"sft", "base"}


def trained(*rules: str, policies: set[str] = POLICIES) -> set[str]:
    return {f"{rule} {policy}" for rule in rules for policy in policies}


def without_mechanism(study, stale: set[str]) -> set[str]:
    """The chain from demonstrations to contrasts; what hangs below it has tests of its own."""
    chain = {"demonstrations", "sft", "select", "reading", "grpo", "evaluate", "contrast"}
    return {job for job in stale if job.split()[0] in chain}


def test_after_a_finished_run_there_is_nothing_to_do(study) -> None:
    assert study.stale() == set()


def test_touching_every_file_makes_nothing_stale(study) -> None:
    later = time.time() + 10
    kept = {}
    for path in sorted(study.folder.rglob("*")):
        if path.is_file() and ".snakemake" not in path.parts:
            kept[path] = path.stat()
            os.utime(path, (later, later))
    try:
        assert study.stale() == set()
    finally:
        for path, times in kept.items():
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_editing_the_loss_retrains_every_run_but_not_the_supervised_policy(study) -> None:
    with study.edited("src/headroom/train/loss.py"):
        stale = study.stale()
    assert without_mechanism(study, stale) == trained("grpo", "evaluate", policies=RUNS) | {"contrast"}


def test_editing_the_statistics_repeats_no_episode(study) -> None:
    with study.edited("src/headroom/measure/contrast.py"):
        stale = study.stale()
    assert without_mechanism(study, stale) == {"contrast"}


def test_editing_the_supervised_training_reruns_all_that_follows_from_it(study) -> None:
    with study.edited("src/headroom/train/sft.py"):
        stale = study.stale()
    assert without_mechanism(study, stale) == (
        {"sft sft", "sft base", "select", "reading", "contrast"} | trained("grpo", policies=RUNS) | trained("evaluate")
    )


def test_editing_an_oracle_collects_again(study) -> None:
    with study.edited("src/headroom/worlds/miniwob/oracles/__init__.py"):
        stale = study.stale()
    assert "demonstrations" in stale
    assert {"sft sft", "sft base"} <= stale


@pytest.mark.parametrize(
    "name",
    ["src/headroom/provenance/record.py", "src/headroom/config/models.py", "src/headroom/cli.py", "pyproject.toml"],
)
def test_editing_what_cannot_change_a_result_reruns_nothing(study, name: str) -> None:
    with study.edited(name):
        assert study.stale() == set()


def test_editing_a_comment_of_the_settings_reruns_nothing(study) -> None:
    with study.edited("workflow/scales/smoke.yaml"):
        assert study.stale() == set()


def test_one_learning_rate_reruns_its_runs_only(study) -> None:
    with study.edited("workflow/scales/smoke.yaml", "high: 3.0e-3", "high: 4.0e-3"):
        stale = study.stale()
    assert without_mechanism(study, stale) == {"grpo grid-11", "evaluate grid-11", "contrast"}
    assert study.stale() == set()


def test_one_cell_of_the_run_table_reruns_its_run_only(study) -> None:
    line = "replication-01\treplication\tmastered\tsft\tlow\tconstant\t0.05\t0.2\t0.28\t8\t2"
    with study.edited("workflow/data/runs.tsv", line + "\n", line[:-1] + "7\n"):
        stale = study.stale()
    assert without_mechanism(study, stale) == {"grpo replication-01", "evaluate replication-01", "contrast"}


def test_more_evaluation_seeds_evaluate_again_and_train_nothing(study) -> None:
    settings = yaml.safe_load((study.folder / "workflow/scales/smoke.yaml").read_text())
    old = f"evaluation:\n  seeds: {settings['evaluation']['seeds']}"
    with study.edited("workflow/scales/smoke.yaml", old, "evaluation:\n  seeds: 4"):
        stale = study.stale()
    assert without_mechanism(study, stale) == trained("evaluate") | {"reading", "contrast"}


@pytest.mark.parametrize(
    ("environment", "package", "expected"),
    [
        ("analysis", "statsmodels", {"contrast"}),
        ("figures", "seaborn", set()),
        (
            "agent",
            "torch",
            {"demonstrations", "sft sft", "sft base", "select", "reading", "contrast"}
            | trained("grpo", policies=RUNS)
            | trained("evaluate"),
        ),
    ],
)
def test_one_pin_reruns_the_jobs_of_its_environment(study, environment: str, package: str, expected: set[str]) -> None:
    with study.edited(f"envs/{environment}.yaml", f"      - {package}==", f"      - {package}==9."):
        stale = study.stale()
    assert without_mechanism(study, stale) == expected


def test_a_lost_result_is_made_again_alone(study) -> None:
    path = study.folder / "results/smoke/grpo/grid-05/manifest.json"
    content, times = path.read_bytes(), path.stat()
    path.unlink()
    try:
        stale = study.stale()
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert without_mechanism(study, stale) == {"grpo grid-05", "evaluate grid-05", "contrast"}


def test_another_scale_shares_nothing_with_this_one(study) -> None:
    stale = study.stale(scale="tiny")
    assert "demonstrations" in stale
    assert len([job for job in stale if job.startswith("grpo ")]) == 34
