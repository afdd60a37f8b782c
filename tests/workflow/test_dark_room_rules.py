"""The second study through the same rules: exactly its jobs, its own figures, and no staleness from the other world."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ARMS = [f"arm-{number:02}" for number in range(1, 20)]
SMOKE = ["arm-01", "arm-04", "arm-08"]
GRAFTED = {"dark-room-smoke": ["arm-04"], "paper": ["arm-04", "arm-05", "arm-13", "arm-14"]}
ONCE = {
    "demonstrations", "sft sft", "select", "reading", "overlap", "probe", "contrast", "failures", "mechanism",
    "dark_room", "figure_data dark_room", "figure dark_room",
}  # fmt: skip


def expected(runs: list[str], grafted: list[str]) -> set[str]:
    every = {f"{rule} {policy}" for rule in ("evaluate", "rank") for policy in ("sft", *runs)}
    return ONCE | every | {f"grpo {run}" for run in runs} | {f"graft {run}" for run in grafted}


@pytest.mark.parametrize("scale", ["dark-room-smoke", "paper-qwen3-1.7b", "paper-qwen3-4b", "paper-qwen3-8b"])
def test_the_dark_room_has_exactly_its_jobs(study, scale: str) -> None:
    kind = scale if scale == "dark-room-smoke" else "paper"
    runs = SMOKE if kind == scale else ARMS
    assert study.stale(scale=scale) == expected(runs, GRAFTED[kind])


def test_a_run_of_the_dark_room_declares_its_validation_and_one_of_the_gate_has_none(study) -> None:
    for scale, run, there in (("dark-room-smoke", "arm-04", True), ("smoke", "grid-05", False)):
        text = study.snakemake("-n", "--forceall", scale=scale).stdout
        assert (f"results/{scale}/grpo/{run}/validation.parquet" in text) == there


@pytest.mark.parametrize(
    ("tier", "there"), [("evals", {"dark_room", "figure"}), ("tables", {"figure"}), ("checkpoints", {"evaluate"})]
)
def test_the_dark_rooms_rules_belong_to_a_tier(study, tier: str, there: set[str]) -> None:
    done = study.snakemake("--list-rules", scale="dark-room-smoke", tier=tier)
    rules = set(re.findall(r"^(\w+)", done.stdout, re.MULTILINE))
    assert there <= rules
    assert ("dark_room" in rules) == (tier != "tables")
    assert not {"filmstrip", "claims"} & rules


def test_a_released_game_that_is_not_there_stops_the_first_job_in_one_line(study) -> None:
    done = study.snakemake("--until", "demonstrations", scale="paper-qwen3-4b")
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert "needs an environment of its own" in text or "there is no folder alfworld-data" in text


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, copy_project: Callable[[Path], Path], study):
    """Both smoke studies, finished by stand-ins."""
    folder = copy_project(tmp_path_factory.mktemp("both") / "a project")
    stand_in = "src/sitecustomize.py"
    (folder / stand_in).write_text((study.folder / stand_in).read_text())
    made = type(study)(folder)
    for scale in ("smoke", "dark-room-smoke"):
        done = made.snakemake(scale=scale)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return made


DRAWN_FROM_RANKS = {"figure_data", "draw", "claims"}
IN_A_WORLD = {"demonstrations", "overlap", "select", "reading", "evaluate", "grpo", "probe", "graft"}


def test_an_edit_of_one_world_makes_no_job_of_the_other_stale(both) -> None:
    scales = {"smoke": "miniwob", "dark-room-smoke": "alfworld"}
    for scale in scales:
        assert both.stale(scale=scale) == set()
    for edited in scales.values():
        with both.edited(f"src/headroom/worlds/{edited}/world.py"):
            for scale, world in scales.items():
                rules = {job.split()[0] for job in both.stale(scale=scale)}
                assert rules >= IN_A_WORLD if world == edited else not rules, (edited, scale)
    with both.edited("src/headroom/agent/text_game.py"):
        assert {job.split()[0] for job in both.stale(scale="dark-room-smoke")} >= IN_A_WORLD | {"sft"}
        # Hidden states are measured without a world, so their closure has both.
        assert {job.split()[0] for job in both.stale(scale="smoke")} <= {"rank", "mechanism"} | DRAWN_FROM_RANKS
    with both.edited("src/headroom/worlds/open.py"):
        for scale in scales:
            assert {job.split()[0] for job in both.stale(scale=scale)} >= IN_A_WORLD


def test_an_edit_of_one_studys_table_makes_no_job_of_the_other_stale(both) -> None:
    with both.edited("workflow/data/dark_room.tsv", "potential\t0.1", "potential\t0.2"):
        assert both.stale(scale="smoke") == set()
        found = both.stale(scale="dark-room-smoke")
    assert {"grpo arm-04", "grpo arm-08", "dark_room", "contrast"} <= found
    assert "grpo arm-01" not in found
