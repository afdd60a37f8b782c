"""The frame around every stage: a whole result with its history, or nothing but two lines in the log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import attempts, manifest, record
from headroom.provenance.checks import _inputs
from headroom.provenance.schema import RunRecord, parse
from headroom.provenance.walk import Project

STAGE = "provenance.digest"  # any module will do: the frame asks for its sources only


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Snakefile").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(output: str, content: str = "a\n", **options) -> RunRecord:
    with record.job(STAGE, Path(output), **options) as job:
        (job.output / "table.csv").write_text(content)
    return parse((Path(output) / "run.json").read_bytes(), output)


def log(project: Path) -> list[dict]:
    return list(attempts.read(project / "results/t/attempts.jsonl"))


def test_a_finished_job_leaves_its_files_a_manifest_and_a_record(project: Path) -> None:
    run = make("results/t/a", seeds={"sampler": 3})
    assert run.ending == "finished"
    assert run.output == "results/t/a"
    assert run.seeds == {"sampler": 3}
    assert sorted(p.name for p in Path("results/t/a").iterdir()) == ["manifest.json", "run.json", "table.csv"]
    assert manifest.load(Path("results/t/a/manifest.json")) == run.outputs
    assert [line["event"] for line in log(project)] == ["started", "ended"]


def test_equal_results_have_equal_manifests_and_different_records(project: Path) -> None:
    make("results/t/a")
    make("results/t/b")
    assert Path("results/t/a/manifest.json").read_bytes() == Path("results/t/b/manifest.json").read_bytes()
    assert Path("results/t/a/run.json").read_bytes() != Path("results/t/b/run.json").read_bytes()


def test_the_seconds_of_a_training_are_in_the_record_and_not_in_the_manifest(project: Path) -> None:
    manifests = set()
    for seconds in ("1", "2"):
        with record.job(STAGE, Path("results/t/a")) as job:
            (job.output / "table.csv").write_text("a\n")
            (job.output / manifest.TIMING).write_text(seconds)
        assert manifest.TIMING in parse(Path("results/t/a/run.json").read_bytes(), "a").outputs
        manifests.add(Path("results/t/a/manifest.json").read_bytes())
    assert len(manifests) == 1


def test_the_input_that_another_job_made_is_a_parent(project: Path) -> None:
    first = make("results/t/a")
    second = make("results/t/b", inputs={"table": Path("results/t/a"), "many": [Path("results/t/a/table.csv")]})
    assert [parent.attempt for parent in second.parents] == [first.attempt]
    assert second.parents[0].manifest_sha256 == first.manifest_sha256
    assert [(item.name, item.kind) for item in second.inputs] == [("table", "directory"), ("many.0", "file")]
    assert second.inputs[0].sha256 == first.manifest_sha256


def test_the_listing_of_released_games_is_an_input_and_other_games_are_noticed(project: Path) -> None:
    (project / "games").mkdir()
    listing = project / "games/games.sha256"
    listing.write_text("1")
    (project / "results/t/config").mkdir(parents=True)
    config = project / "results/t/config/a.json"
    world = {"kind": "alfworld", "games": "released", "data": "games"}
    config.write_text(json.dumps({"world": world}, indent=2, sort_keys=True) + "\n")
    (item,) = make("results/t/a", config=config).inputs
    assert (item.name, item.path) == ("games", "games/games.sha256")
    node = Project(project).owner("results/t/a")
    assert node is not None
    before = list(_inputs(Project(project), node))
    listing.write_text("2")
    found = [finding for finding in _inputs(Project(project), node) if finding not in before]
    assert [(finding.path, finding.kind) for finding in found] == [("games/games.sha256", "changed")]
    config.write_text(json.dumps({"world": world | {"games": "generated"}}))
    assert make("results/t/a", config=config).inputs == []


def test_a_job_is_seen_to_run_for_as_long_as_it_does_and_looking_disturbs_none(project: Path) -> None:
    output = Path("results/t/a")
    assert not record.running(output)
    with record.job(STAGE, output) as job:
        assert record.running(output)
        assert not record.running(Path("results/t/b"))
        (job.output / "table.csv").write_text("a\n")
    assert not record.running(output)
    make("results/t/a")


def test_the_run_table_says_which_run_is_in_progress(project: Path) -> None:
    for name in ("config.yaml", "workflow"):
        (project / name).symlink_to(Path(__file__).parents[3] / name)
    with record.job(STAGE, Path("results/smoke/grpo/grid-05")) as job:
        (job.output / "steps.parquet").write_text("1")
        lines = CliRunner().invoke(app, ["runs", "--scale", "smoke"]).output.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("  running")] == ["grid-05"]
    assert sum(line.endswith("  not run") for line in lines) == len(lines) - 2
    lines = CliRunner().invoke(app, ["runs", "--scale", "smoke"]).output.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("  finished")] == ["grid-05"]


def test_a_folder_inside_a_result_is_checked_against_its_part_of_the_manifest(project: Path) -> None:
    with record.job(STAGE, Path("results/t/a")) as job:
        (job.output / "checkpoint").mkdir()
        (job.output / "checkpoint" / "model.bin").write_text("weights")
        (job.output / "steps.csv").write_text("1\n")
    run = make("results/t/b", inputs={"checkpoint": Path("results/t/a/checkpoint")})
    assert list(run.inputs[0].files) == ["model.bin"]
    Path("results/t/a/checkpoint/model.bin").write_text("weightz")
    # The part alone would not be made again: the whole result has to go.
    told = r"checkpoint: is not what its manifest says \(changed: model.bin\); delete results/t/a and run snakemake"
    with pytest.raises(SystemExit, match=told):
        make("results/t/c", inputs={"checkpoint": Path("results/t/a/checkpoint")})


@pytest.mark.parametrize("damage", ["flip", "add", "remove"])
def test_an_input_that_changed_since_it_was_made_is_refused(project: Path, damage: str) -> None:
    make("results/t/a")
    table = Path("results/t/a/table.csv")
    if damage == "flip":
        table.write_text("b\n")
    elif damage == "add":
        Path("results/t/a/extra.csv").write_text("b\n")
    else:
        table.unlink()
    with pytest.raises(SystemExit, match="not what its manifest says"):
        make("results/t/b", inputs={"table": Path("results/t/a")})
    assert not Path("results/t/b").exists()


def test_a_missing_input_is_one_line_that_names_the_option(project: Path) -> None:
    with pytest.raises(SystemExit, match="results/t/no: does not exist, and --checkpoint needs it"):
        make("results/t/b", inputs={"checkpoint": Path("results/t/no")})


def fail(error: BaseException) -> None:
    with record.job(STAGE, Path("results/t/a")) as job:
        (job.output / "table.csv").write_text("half")
        raise error


def test_a_failure_leaves_no_partial_result_and_one_clear_line(project: Path) -> None:
    with pytest.raises(SystemExit, match=r"^provenance.digest: ZeroDivisionError: one by zero  \(traceback: ") as stop:
        fail(ZeroDivisionError("one by zero\nand more"))
    assert list(Path("results/t/a").iterdir()) == []
    end = log(project)[-1]
    assert (end["ending"], end["error"]) == ("failed", "ZeroDivisionError: one by zero")
    report = Path(str(stop.value).rpartition("traceback: ")[2].rstrip(")"))
    assert "raise error" in report.read_text()


def test_a_users_mistake_found_inside_a_job_keeps_its_message(project: Path) -> None:
    with pytest.raises(SystemExit, match=r"^provenance\.digest: x\.json: key: wrong$"):
        fail(SystemExit("x.json: key: wrong"))
    assert log(project)[-1]["ending"] == "failed"


def test_a_job_that_writes_nothing_has_failed(project: Path) -> None:
    with pytest.raises(SystemExit, match="ended without writing"), record.job(STAGE, Path("results/t/a")):
        pass


def test_a_diverged_run_keeps_its_result_and_says_so(project: Path) -> None:
    with record.job(STAGE, Path("results/t/a")) as job:
        (job.output / "table.csv").write_text("nan\n")
        job.ending = "diverged"
    assert parse(Path("results/t/a/run.json").read_bytes(), "a").ending == "diverged"
    assert log(project)[-1]["ending"] == "diverged"


def test_what_an_earlier_attempt_left_is_not_part_of_the_result(project: Path) -> None:
    make("results/t/a")
    Path("results/t/a/left.csv").write_text("old")
    run = make("results/t/a")
    assert list(run.outputs) == ["table.csv"]
    assert [old.ending for old in run.earlier_attempts] == ["finished"]


def test_a_folder_with_somebody_elses_files_is_never_emptied(project: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years")
    with pytest.raises(SystemExit, match="not made by headroom"):
        make("mine")
    assert Path("mine/thesis.txt").read_text() == "years"


def test_a_folder_that_holds_other_results_is_never_emptied(project: Path) -> None:
    make("results/t/grpo/one")
    with pytest.raises(SystemExit, match="holds the results of other jobs"):
        make("results/t/grpo")
    assert Path("results/t/grpo/one/table.csv").exists()


def test_the_resume_folder_is_keyed_by_settings_and_inputs_and_removed_at_the_end(project: Path) -> None:
    settings = Path("c.json")

    def scratch(text: str, fail: bool) -> Path:
        settings.write_text(text)
        try:
            with record.job(STAGE, Path("results/t/a"), config=settings) as job:
                folder = job.scratch("steps")
                (folder / "state").write_text("x")
                (job.output / "t").write_text("x")
                if fail:
                    raise ValueError("stop")
        except SystemExit:
            pass
        return folder

    first, again, other = scratch("{}", True), scratch("{}", True), scratch('{"a": 1}', True)
    assert first == again != other
    assert (first / "state").exists()
    scratch("{}", False)
    assert not first.exists()


def test_a_figures_table_and_drawing_have_records_of_their_own(project: Path) -> None:
    table, drawing = Path("figures/t/data/gate.csv"), Path("figures/t/gate.pdf")
    with record.job(STAGE, table) as job:
        job.output.write_text("x\n1\n")
    with record.job(STAGE, drawing, inputs={"data": table}) as job:
        job.output.write_text("pdf")
        job.output.with_suffix(".png").write_text("png")
    drawn = parse(Path("figures/t/records/gate.draw.run.json").read_bytes(), "gate")
    assert sorted(drawn.outputs) == ["figures/t/gate.pdf", "figures/t/gate.png"]
    assert [parent.record for parent in drawn.parents] == ["figures/t/records/gate.data.run.json"]
    assert len(log(project)) == 4


def test_no_record_holds_the_home_folder_the_project_folder_or_the_host(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("alice")
    monkeypatch.setenv("HOME", str(home))
    (home / "model").mkdir()
    (home / "model" / "w").write_text("w")
    monkeypatch.setattr(sys, "argv", ["x", "--output", str(project / "results/t/a"), "--init", str(home / "model")])
    run = make("results/t/a", inputs={"init": home / "model"})
    text = Path("results/t/a/run.json").read_text() + Path("results/t/attempts.jsonl").read_text()
    assert run.command[1:] == ["--output", "results/t/a", "--init", "~/model"]
    assert run.inputs[0].path == "~/model"
    assert run.machine.host is None
    assert str(home) not in text
    assert str(project) not in text


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from headroom.provenance import record
with record.job("provenance.digest", Path("results/t/a")) as job:
    (job.output / "half.csv").write_text("half")
    (job.scratch() / "state").write_text("5 steps")
    print("in", flush=True)
    time.sleep(60)
"""


def start(project: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "in\n"
    return child


def test_a_killed_job_is_seen_in_the_log_and_in_the_next_record(project: Path) -> None:
    child = start(project)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert [line["event"] for line in log(project)] == ["started"]
    assert not Path("results/t/a/manifest.json").exists()
    run = make("results/t/a")
    assert [old.ending for old in run.earlier_attempts] == ["killed"]
    assert list(run.outputs) == ["table.csv"]


def test_a_terminated_job_cleans_up_keeps_its_state_and_says_that_it_resumes(project: Path) -> None:
    child = start(project)
    child.send_signal(signal.SIGTERM)
    _, error = child.communicate()
    assert child.returncode == 1
    assert error.strip() == "provenance.digest: interrupted; the same command resumes it"
    assert log(project)[-1]["ending"] == "interrupted"
    assert list(Path("results/t/a").iterdir()) == []
    assert list(Path("results/t/.scratch").rglob("state"))


def test_a_second_process_at_the_same_output_is_refused_until_the_first_is_gone(project: Path) -> None:
    child = start(project)
    with pytest.raises(SystemExit, match="another process is making it"):
        make("results/t/a")
    assert Path("results/t/a/half.csv").exists()
    child.kill()
    child.communicate()
    make("results/t/a")


def test_lines_of_concurrent_writers_do_not_mix(project: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from headroom.provenance import attempts\n"
        "for i in range(50): attempts.append(Path('log'), {'event': 'x', 'who': sys.argv[1], 'pad': 'y' * 3000})"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(i)], cwd=project) for i in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    lines = list(attempts.read(Path("log")))
    assert len(lines) == 150
    assert all(line["event"] == "x" for line in lines)


def test_a_line_cut_short_by_a_crash_is_shown_and_hides_nothing(project: Path) -> None:
    path = Path("log")
    attempts.append(path, {"event": "started", "attempt": "1", "output": "a"})
    with path.open("a") as stream:
        stream.write('{"event": "sta\n')
    attempts.append(path, {"event": "ended", "attempt": "1", "ending": "failed"})
    assert [line["event"] for line in attempts.read(path)] == ["started", "damaged", "ended"]
    assert attempts.of_output(path, "a")[0]["ending"] == "failed"


def test_a_record_of_another_schema_or_cut_short_is_named(project: Path) -> None:
    make("results/t/a")
    good = json.loads(Path("results/t/a/run.json").read_bytes())
    for content in (json.dumps({**good, "schema_version": 0}), json.dumps({**good, "extra": 1}), '{"stage": "x'):
        with pytest.raises(ValueError, match=r"^here/run.json: not a run record of schema 1: "):
            parse(content.encode(), "here/run.json")


def test_memory_is_of_this_process_and_not_of_the_one_that_started_it() -> None:
    code = "from headroom.provenance.environment import peak_memory; print(peak_memory()[0])"
    ballast = bytearray(os.urandom(1)) * (400 << 20)
    small = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert small < len(ballast) // 2
