"""From a figure, a table, a checkpoint or a claim back to what made it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import contrast, evaluate, figure, make, train
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import lock, manifest
from headroom.provenance.audit import Audit, find_target
from headroom.provenance.tree import render
from headroom.provenance.walk import Project

Look = Callable[[], Project]


def stages(audit: Audit) -> set[str]:
    return {node.run.stage for node in audit.nodes}


def test_a_figure_leads_back_to_the_demonstrations(project: Look) -> None:
    audit = Audit(project(), "figures/smoke/gate.pdf")
    assert stages(audit) == {
        "present.gate", "measure.contrast", "measure.evaluate", "train.grpo", "train.sft", "measure.select",
        "train.demonstrations",
    }  # fmt: skip
    assert len(audit.nodes) == 11
    assert audit.faults() == []
    order = [node.record for node in audit.nodes]
    for node in audit.nodes:
        assert all(order.index(parent.record) < order.index(node.record) for parent in audit.parents(node))


def test_the_tree_names_settings_seeds_sources_and_every_run(project: Look) -> None:
    text = render(Audit(project(), "figures/smoke/gate.pdf"), full=True)
    for words in (
        "GRPO run: headroom.train.grpo", "settings results/smoke/config/sft/sft.json", "seeds    grpo 0", "✓",
        "results/smoke/demonstrations", "reads    workflow/data/runs.tsv", "11 made here", "seed table",
    ):  # fmt: skip
        assert words in text, words
    assert "✗" not in text
    assert text.count("(above)") >= 5, "what two runs rest on is shown once"


def test_a_row_of_a_table_rests_on_its_own_policy_and_the_one_it_is_compared_with(project: Look) -> None:
    audit = Audit(project(), "figures/smoke/gate.pdf", row=2)
    assert audit.row is not None
    assert audit.row.cells == {"policy": "grid-11", "difference": "0.2"}
    names = {node.name for node in audit.nodes}
    assert "results/smoke/grpo/grid-11" in names
    assert "results/smoke/evaluate/sft" in names
    assert not [name for name in names if "grid-05" in name]


def test_a_fault_outside_of_a_row_is_not_its_fault(folder: Path, project: Look) -> None:
    (folder / "results/smoke/evaluate/grid-05/episodes.parquet").write_text("x")
    assert Audit(project(), "figures/smoke/data/gate.csv", row=2).faults() == []
    faults = Audit(project(), "figures/smoke/data/gate.csv", row=1).faults()
    assert [item.path for item in faults] == ["results/smoke/evaluate/grid-05/episodes.parquet"]


def test_a_row_of_an_arm_names_the_runs_of_that_arm_alone(folder: Path, project: Look) -> None:
    arms = {run: {"arm": arm, "seed": 0} for run, arm in (("grid-05", "baseline"), ("grid-11", "noise"))}
    config = folder / "results/smoke/config/dark_room.json"
    config.write_text(json.dumps({"arms": arms}, indent=2, sort_keys=True) + "\n")
    rows = "row,run,arm\nrun,grid-05,baseline\nrun,grid-11,noise\narm,,noise\n"
    with contextlib.chdir(folder):
        inputs = {"runs": [Path("results/smoke/grpo") / run for run in arms]}
        make("measure.dark_room", "dark_room", {"dark_room.csv": rows}, inputs=inputs)
    for number, run in ((1, "grid-05"), (2, "grid-11"), (3, "grid-11")):
        audit = Audit(project(), "results/smoke/dark_room/dark_room.csv", row=number)
        assert audit.row is not None
        assert audit.row.policies == (run, "sft")
        assert {node.name for node in audit.nodes if "/grpo/" in node.name} == {f"results/smoke/grpo/{run}"}


@pytest.mark.parametrize("kind", ["miniwob", "alfworld"])
def test_the_version_of_the_world_that_was_played_is_named_and_no_others(
    folder: Path, project: Look, kind: str
) -> None:
    for path in (folder / "results").rglob("run.json"):
        run = json.loads(path.read_bytes())
        run["config"]["content"]["world"] = {"kind": kind}
        run["packages"]["installed"] |= {"miniwob": "1.1", "alfworld": "0.4", "textworld": "1.7"}
        path.write_text(json.dumps(run))
    text = render(Audit(project(), "results/smoke/contrast"))
    assert ("miniwob 1.1" in text) == (kind == "miniwob")
    assert ("alfworld 0.4, " in text and "textworld 1.7" in text) == (kind == "alfworld")


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_row_that_the_table_does_not_have_is_refused(project: Look, number: int) -> None:
    with pytest.raises(LookupError, match="has rows 1 to 2"):
        Audit(project(), "figures/smoke/data/gate.csv", row=number)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gate", "figures/smoke/gate.pdf"),
        ("grid-05", "results/smoke/grpo/grid-05"),
        ("sft", "results/smoke/sft/sft"),
        ("contrast", "results/smoke/contrast"),
        ("results/smoke/grpo/grid-05/checkpoint", "results/smoke/grpo/grid-05/checkpoint"),
        ("figures/smoke/records/gate.data.run.json", "figures/smoke/data/gate.csv"),
    ],
)
def test_a_target_is_named_as_a_reader_would(project: Look, text: str, name: str) -> None:
    assert find_target(project(), text, "smoke") == name


def test_an_unknown_target_says_what_there_is(project: Look) -> None:
    with pytest.raises(LookupError, match="figures here: gate"):
        find_target(project(), "gaet", "smoke")
    with pytest.raises(LookupError, match="lies outside of this project"):
        find_target(project(), "/etc/hostname", "smoke")


def test_many_equals_are_one_line_but_a_faulty_one_never_hides(folder: Path, project: Look, monkeypatch) -> None:
    monkeypatch.setattr("headroom.provenance.tree.MANY", 2)
    text = render(Audit(project(), "results/smoke/contrast"))
    assert "and 2 like it, all as recorded" in text
    (folder / "results/smoke/evaluate/grid-11/episodes.parquet").write_text("x")
    text = render(Audit(project(), "results/smoke/contrast"))
    assert "✗ results/smoke/evaluate/grid-11" in text
    assert "1 faults, the first: changed: results/smoke/evaluate/grid-11/episodes.parquet" in text


def test_what_was_released_and_what_was_made_here_are_told_apart_by_bytes(folder: Path, project: Look) -> None:
    name = "results/smoke/evaluate/grid-05"
    files = [f"{name}/{file}" for file in ("episodes.parquet", "manifest.json", "run.json")]
    entries = {file: manifest.entry(folder / file) for file in files}
    lock.save(folder, "smoke", entries)
    audit = Audit(project(), name)
    origins = {node.name: audit.origin(node) for node in audit.nodes}
    assert origins.pop(name) == "released"
    assert set(origins.values()) == {"made here"}
    again = {**entries, f"{name}/run.json": entries[f"{name}/manifest.json"]}
    lock.save(folder, "smoke", again)
    assert Audit(project(), name).origin(audit.start) == "made here, equal to the release"
    lock.save(folder, "smoke", {**again, f"{name}/episodes.parquet": entries[f"{name}/run.json"]})
    assert Audit(project(), name).origin(audit.start) == "made here, differs from the release"


def test_a_claim_shows_its_verdict_and_the_files_it_rests_on(folder: Path) -> None:
    table = folder / "figures/smoke/claims.csv"
    table.write_text(
        "id,verdict,files\ngate-null,reproduced,results/smoke/contrast/contrasts.csv workflow/data/runs.tsv\n"
    )
    done = CliRunner().invoke(app, ["audit", "gate-null", "--scale", "smoke"])
    assert done.exit_code == 0, done.output
    assert "verdict: reproduced" in done.stdout
    assert "results/smoke/demonstrations" in done.stdout


def test_the_command_ends_with_the_documented_codes(folder: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["audit", "gate", "--scale", "smoke"]).exit_code == 0
    assert runner.invoke(app, ["audit", "nothing", "--scale", "smoke"]).exit_code == 1
    (folder / "results/smoke/demonstrations/demonstrations.parquet").write_text("x")
    done = runner.invoke(app, ["audit", "gate", "--scale", "smoke", "--json", "--no-cache"])
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert document["as_recorded"] is False
    by_name = {run["name"]: run for run in document["runs"]}
    assert by_name["results/smoke/demonstrations"]["as_recorded"] is False
    assert by_name["results/smoke/grpo/grid-05"]["config"]["content"] == {"job": "grpo/grid-05", "steps": 2}
    assert by_name["results/smoke/sft/sft"]["parents"] == ["results/smoke/demonstrations/run.json"]


def test_nothing_needs_snakemakes_own_notes_or_the_file_times(folder: Path) -> None:
    assert not (folder / ".snakemake").exists()
    assert CliRunner().invoke(app, ["audit", "gate", "--scale", "smoke"]).exit_code == 0


@pytest.mark.slow
def test_the_audit_of_a_figure_with_as_many_runs_as_the_default_study_costs_less_than_two_seconds_of_work(
    folder: Path,
) -> None:
    """36 policies with checkpoints of 2 MB; the time of this process, which another one's load does not change."""
    runs = tuple(f"grid-{number:02}" for number in range(36))
    for run in runs:
        train(run, "x" * (2 << 20))
        evaluate(run)
    contrast(runs)
    figure()
    before = time.process_time()
    audit = Audit(Project(folder), "figures/smoke/gate.pdf")
    render(audit)
    assert len(audit.nodes) > 70
    assert audit.faults() == []
    assert time.process_time() - before < 2
