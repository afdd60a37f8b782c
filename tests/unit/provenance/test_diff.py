"""Why two results differ: the first stage where their chains part, and what is different there."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from small_study import contrast, evaluate, figure, make, train
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance.diff import Step, compare, render
from headroom.provenance.walk import Project

FIGURE = "figures/smoke/gate.pdf"


@pytest.fixture
def other(folder: Path, tmp_path: Path) -> Path:
    """Another copy of the same study."""
    shutil.copytree(folder, tmp_path / "other")
    return tmp_path / "other"


def between(folder: Path, other: Path, name: str = FIGURE) -> list[Step]:
    sides = []
    for place in (folder, other):
        project = Project(place)
        node = project.owner(name)
        assert node is not None
        sides.append((project, node))
    return compare(sides[0], sides[1])


def parting(steps: list[Step]) -> list[str]:
    return [step.names[0] for step in steps if step.parts]


def test_copies_are_the_same_in_everything(folder: Path, other: Path) -> None:
    steps = between(folder, other)
    assert parting(steps) == []
    assert len(steps) == 11
    assert "the same bytes, made in the same way" in render(steps)


def test_a_setting_that_changed_is_named_with_both_values_at_the_stage_that_reads_it(folder: Path, other: Path) -> None:
    with contextlib.chdir(other):
        config = Path("results/smoke/config/grpo/grid-05.json")
        config.write_text(json.dumps({**json.loads(config.read_text()), "steps": 3}, indent=2, sort_keys=True) + "\n")
        train("grid-05", "other")
        evaluate("grid-05")
        contrast()
        figure()
    steps = between(folder, other)
    assert parting(steps) == ["results/smoke/grpo/grid-05"], "equal episodes end the difference"
    text = render(steps)
    assert "settings  steps: 2 -> 3" in text
    assert "checkpoint/model.safetensors" in text


def test_the_first_stage_that_parts_comes_first_and_is_the_cause(folder: Path, other: Path) -> None:
    with contextlib.chdir(other):
        inputs = {"demonstrations": Path("results/smoke/demonstrations")}
        make("train.sft", "sft/sft", {"checkpoint/model.safetensors": "w"}, inputs=inputs, seeds={"sft": 1})
        make("measure.select", "select", {"task_sets.json": "{}"}, inputs={"checkpoint": Path("results/smoke/sft/sft")})
        train("grid-05", "later")
    steps = between(folder, other, "results/smoke/grpo/grid-05")
    text = render(steps)
    assert parting(steps)[0] == "results/smoke/sft/sft"
    assert "first parting: train.sft" in text
    assert "seeds     sft: 0 -> 1" in text
    assert "checkpoint/config.json: only in A" in text
    assert text.rstrip().endswith("cause: seeds of train.sft")


def test_sources_packages_and_hardware_are_compared(folder: Path, other: Path) -> None:
    path = other / "results/smoke/demonstrations/run.json"
    run = json.loads(path.read_bytes())
    first = next(iter(run["sources"]["files"]))
    run["sources"]["files"][first] = "0" * 64
    run["packages"]["installed"]["torch"] = "9"
    run["machine"]["gpus"] = ["A card"]
    path.write_text(json.dumps(run))
    text = render(between(folder, other))
    assert f"sources   {first}: " in text
    assert "-> '9'" in text
    assert "hardware  gpus: [] -> ['A card']" in text
    assert "the results have the same bytes; how they were made differs" in text


def test_an_altered_file_that_nothing_recorded_explains_is_told(folder: Path, other: Path) -> None:
    (other / "results/smoke/select/task_sets.json").write_text("[]")
    text = render(between(folder, other))
    assert "first parting: measure.select" in text
    assert "nothing recorded explains it" in text


def test_an_input_that_no_stage_made_is_compared_by_content(folder: Path, other: Path) -> None:
    with contextlib.chdir(other):
        Path("workflow/data/runs.tsv").write_text("run\tseed\n")
        contrast()
    steps = between(folder, other, "results/smoke/contrast")
    assert next(step.causes["inputs"] for step in steps if step.parts)[0].startswith("runs: ")


def test_a_result_whose_makers_are_not_here_differs_in_that(folder: Path, other: Path) -> None:
    shutil.rmtree(other / "results/smoke/contrast")
    text = render(between(folder, other))
    assert "the results have the same bytes; how they were made differs" in text
    assert "inputs    contrasts: what made it is not in B, so its chain ends there" in text
    assert text.rstrip().endswith("difference: inputs of present.gate")
    assert "only in" not in text
    back = render(between(other, folder))
    assert "inputs    contrasts: what made it is not in A, so its chain ends there" in back


def test_two_runs_of_one_grid_are_compared_stage_by_stage(folder: Path) -> None:
    done = CliRunner().invoke(app, ["diff", "grid-05", "grid-11", "--scale", "smoke"])
    assert done.exit_code == 3
    assert "results/smoke/grpo/grid-05 | results/smoke/grpo/grid-11" in done.stdout
    assert "job: 'grpo/grid-05' -> 'grpo/grid-11'" in done.stdout


def test_results_of_other_projects_and_exit_codes(folder: Path, other: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["diff", FIGURE, str(other / FIGURE)]).exit_code == 0
    assert runner.invoke(app, ["diff", FIGURE, "nothing"]).exit_code == 1
    (other / FIGURE).write_text("x")
    done = runner.invoke(app, ["diff", FIGURE, str(other / FIGURE), "--json"])
    assert done.exit_code == 3
    assert next(step["outputs"] for step in json.loads(done.stdout) if step["outputs"])[0].startswith("gate.pdf")
