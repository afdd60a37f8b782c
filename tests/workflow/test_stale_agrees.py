"""``headroom stale`` names the jobs that ``snakemake -n`` would run, from the records alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headroom.provenance import closure
from headroom.provenance.release import BELOW
from headroom.provenance.stale import TIER_OF, _environments, _other_pins, stale
from headroom.provenance.walk import Project

PROJECT = Path(__file__).parents[2]


def test_every_stage_has_the_environment_that_its_rule_names() -> None:
    found = _environments(PROJECT, by_vllm=False)
    assert found["train.grpo"] == "envs/train.yaml"
    assert _environments(PROJECT, by_vllm=True) == found | {"train.grpo": "envs/rollout.yaml"}
    dark = _environments(PROJECT, by_vllm=True, world="alfworld")
    assert dark["train.grpo"] == "envs/rollout-alfworld.yaml"
    assert dark["measure.evaluate"] == "envs/train-alfworld.yaml"
    assert dark["train.sft"] == dark["measure.rank"] == "envs/train.yaml", "they open none"
    assert found["train.demonstrations"] == "envs/worlds.yaml"
    assert found["measure.contrast"] == "envs/analysis.yaml"
    assert found["present"] == "envs/figures.yaml"
    for stage in found:
        if "." in stage:
            assert closure.files(stage)
    stages = {name for path in (PROJECT / "workflow/rules").glob("*.smk") for name in stages_of(path)}
    assert stages <= set(found)


def test_every_rule_belongs_to_a_tier() -> None:
    rules = {
        name
        for path in (PROJECT / "workflow/rules").glob("*.smk")
        for name in re.findall(r"^\s*rule (\w+):", path.read_text(), re.MULTILINE)
    }
    assert {name for names in TIER_OF.values() for name in names} == rules - {"released"}
    assert set(BELOW["checkpoints"]) == set(TIER_OF["scratch"])
    assert set(BELOW["evals"]) == {*TIER_OF["scratch"], *TIER_OF["checkpoints"]}


def stages_of(path: Path) -> list[str]:
    return re.findall(r'sources=closure\.sources\("([\w.]+)"\)', path.read_text())


def test_a_pin_is_another_one_only_if_its_version_was_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("dependencies:\n  - pip:\n      - torch==2.1\n      - Py_arrow==9\n      - not-recorded==1\n")
    assert _other_pins(path, {"torch": "2.1+cpu", "py-arrow": "9"}) == []
    assert _other_pins(path, {"torch": "2.0", "py-arrow": "8"}) == ["py-arrow 8 -> 9", "torch 2.0 -> 2.1"]


class Finished:
    """A copy of a finished study, asked in both ways."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ours(self) -> set[str]:
        done = subprocess.run(
            [".venv/bin/python", "-m", "headroom.cli", "stale", "--scale", "smoke", "--json"],
            cwd=self.folder, capture_output=True, text=True, env={"PYTHONPATH": "src", "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode in (0, 3), done.stderr
        return {item["job"] for item in json.loads(done.stdout)}

    def snakemake(self) -> set[str]:
        done = subprocess.run(
            [".venv/bin/snakemake", "-n", "--nolock", "--config", "scale=smoke"],
            cwd=self.folder, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        jobs = set()
        for block in re.split(r"\n(?=(?:local)?rule )", done.stdout + done.stderr):
            if match := re.match(r"(?:local)?rule (\w+):", block):
                wildcards = re.search(r"^    wildcards: (.*)$", block, re.MULTILINE)
                values = [part.partition("=")[2] for part in wildcards[1].split(", ")] if wildcards else []
                jobs.add(" ".join([match[1], *values]))
        return jobs - {"all"}


@pytest.fixture(scope="module")
def finished(finished_smoke: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("stale") / "headroom"
    shutil.copytree(finished_smoke, folder, symlinks=True)
    return Finished(folder)


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (folder / name).write_text(text.replace(old, new, 1))

    return edit


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


EDITS = {
    "nothing": ("config.yaml", replaced("config.yaml", "#", "# more\n#"), set()),
    "a source": (
        "src/headroom/measure/contrast.py",
        replaced("src/headroom/measure/contrast.py", "\n\n", "\n\n# edited\n"),
        {"contrast", "figure gate"},
    ),
    "a parameter": (
        "workflow/scales/smoke.yaml",
        replaced("workflow/scales/smoke.yaml", "high: 3.0e-3", "high: 4.0e-3"),
        {"grpo grid-11", "evaluate grid-11", "contrast"},
    ),
    "a pin": (
        "envs/analysis.yaml",
        replaced("envs/analysis.yaml", "- scipy==", "- scipy==9."),
        {"contrast", "mechanism"},
    ),
    "a caption": (
        "src/headroom/present/gate.py",
        replaced("src/headroom/present/gate.py", "Greedy success of", "The greedy success of"),
        {"figure_data gate", "figure gate"},
    ),
    "the plot style": (
        "src/headroom/present/style.py",
        replaced("src/headroom/present/style.py", "\n\n", "\n\n# edited\n"),
        {"figure gate", "figure training_curves"},
    ),
    "a lost run": (
        "results/smoke/grpo/grid-05/manifest.json",
        removed("results/smoke/grpo/grid-05/manifest.json"),
        {"grpo grid-05", "evaluate grid-05"},
    ),
    "a lost part of what is made already": (
        "results/smoke/rank/base/manifest.json",
        removed("results/smoke/rank/base/manifest.json"),
        set(),
    ),
}


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_makes_the_same_jobs_stale_here_and_there(finished: Finished, what: str) -> None:
    name, edit, among = EDITS[what]
    path = finished.folder / name
    kept = path.with_name(f"{path.name}.kept")
    shutil.copy2(path, kept)
    try:
        edit(finished.folder)
        shutil.move(kept, finished.folder / "kept")
        ours = finished.ours()
        theirs = finished.snakemake()
    finally:
        shutil.move(finished.folder / "kept", path)
    assert ours == theirs
    assert among <= ours
    if not among:
        assert ours == set()


def test_where_nothing_is_made_all_that_a_dry_run_counts_is_stale(study) -> None:
    ours = stale(Project(study.folder), "smoke")
    total = re.search(r"^total\s+(\d+)", study.snakemake("-n", "--forceall").stdout, re.MULTILINE)
    assert total
    assert len(ours) == int(total[1]) - 1, "all but the rule all"
