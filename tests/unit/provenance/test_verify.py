"""Every byte that was recorded is read again, and no record is taken at its word."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import train
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import lock, manifest
from headroom.provenance.cache import Hasher
from headroom.provenance.verify import Report, verify_path, verify_scale
from headroom.provenance.walk import Project, is_record, walk_files

PROJECT = Path(__file__).parents[3]


def check(folder: Path) -> Report:
    return verify_scale(Project(folder), "smoke")


def test_an_untouched_study_is_as_recorded_in_a_folder_with_another_name(folder: Path) -> None:
    report = check(folder)
    assert report.findings == ()
    assert (report.runs, report.exit_code) == (11, 0)


def recorded(folder: Path) -> list[str]:
    """Every file of the small study but the log."""
    tops = ("results/smoke", "figures/smoke", "workflow")
    names = [path.relative_to(folder).as_posix() for top in tops for path in walk_files(folder / top)]
    return [name for name in names if "/.scratch/" not in name and not name.endswith("attempts.jsonl")]


def test_a_flipped_bit_in_any_file_is_found_and_its_file_named(folder: Path) -> None:
    names = recorded(folder)
    assert len({Path(name).suffix for name in names}) >= 7
    for name in names:
        path = folder / name
        content = path.read_bytes()
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        report = check(folder)
        path.write_bytes(content)
        assert report.exit_code == 3, name
        about = {Path(finding.path).parts[2:4] for finding in report.faults()}
        place_of = Path(name).parts[2:4] if "config" not in name else Path(name).with_suffix("").parts[3:5]
        assert any(set(parts) & set(place_of) or name in str(report.findings) for parts in about), (name, report)
    assert check(folder).findings == ()


@pytest.mark.parametrize(
    "name", ["evaluate/sft/episodes.parquet", "sft/sft/checkpoint/config.json", "contrast/run.json"]
)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / "results/smoke" / name).unlink()
    report = check(folder)
    assert any(item.kind == "missing" and item.path == f"results/smoke/{name}" for item in report.findings) or (
        is_record(name) and report.exit_code == 3
    )


@pytest.mark.parametrize(
    "name",
    ["results/smoke/contrast/more.csv", "results/smoke/sft/sft/checkpoint/x", "results/smoke/a", "figures/smoke/x"],
)
def test_a_file_that_no_record_names_is_undeclared(folder: Path, name: str) -> None:
    (folder / name).write_text("x")
    assert [(item.kind, item.path) for item in check(folder).findings] == [("undeclared", name)]


@pytest.mark.parametrize("name", [".pages/0.sqlite", ".scratch/step-1.json", "logs/sft.log"])
def test_what_no_result_depends_on_needs_no_record(folder: Path, name: str) -> None:
    path = folder / "results/smoke" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert not check(folder).findings


def edit(path: Path, change: Callable[[dict], None]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


EDITS: dict[str, Callable[[dict], None]] = {
    "a nicer digest": lambda run: run["outputs"]["episodes.parquet"].update(sha256="0" * 64),
    "another seed": lambda run: run["seeds"].update(sampler=7),
    "other settings": lambda run: run["config"]["content"].update(steps=3),
    "other sources": lambda run: run["sources"]["files"].popitem(),
    "other packages": lambda run: run["packages"]["installed"].update(torch="9"),
    "another parent": lambda run: run["parents"].pop(),
    "another attempt": lambda run: run.update(attempt="20200101T000000-00000000"),
    "another ending": lambda run: run.update(ending="diverged"),
    "a wrong memory": lambda run: run["notes"].update(world={"remembered": 9, "remembered_wrongly": 1}),
    "less input": lambda run: run["inputs"][0]["files"].clear(),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_record_is_found_even_where_no_file_changed(folder: Path, what: str) -> None:
    path = folder / "results/smoke/evaluate/grid-05/run.json"
    edit(path, EDITS[what])
    report = check(folder)
    assert report.exit_code == 3
    assert any(item.path.startswith("results/smoke/evaluate/grid-05") for item in report.faults())


@pytest.mark.parametrize("what", sorted(set(EDITS) - {"another seed"}))
def test_an_edited_record_is_found_without_the_digest_in_the_log(folder: Path, what: str) -> None:
    """What a record says can be computed again; only a seed stands nowhere else."""
    log = folder / "results/smoke/attempts.jsonl"
    log.write_text("".join(
        json.dumps({**json.loads(line), "record_sha256": None}) + "\n" for line in log.read_text().splitlines()
    ))  # fmt: skip
    assert check(folder).findings == ()
    edit(folder / "results/smoke/evaluate/grid-05/run.json", EDITS[what])
    assert check(folder).exit_code == 3


def test_record_and_file_edited_together_still_break_the_chain(folder: Path) -> None:
    """A forger who mends digest, manifest and log of one result is met by the results that were made from it."""
    base = folder / "results/smoke/evaluate/grid-05"
    (base / "episodes.parquet").write_text("better episodes")
    entries = manifest.build(base)
    (base / "manifest.json").write_text(manifest.dump(entries))
    fields = {"manifest_sha256": manifest.digest(entries)}
    files = {name: entry.model_dump() for name, entry in entries.items()}
    edit(base / "run.json", lambda run: (run.update(fields), run["outputs"].update(files)))
    (folder / "results/smoke/attempts.jsonl").unlink()
    faults = check(folder).faults()
    assert {item.path for item in faults} == {"results/smoke/contrast"}
    assert {item.kind for item in faults} == {"chain"}


def test_a_record_cut_short_is_named_and_stops_nothing(folder: Path) -> None:
    path = folder / "results/smoke/evaluate/grid-05/run.json"
    path.write_bytes(path.read_bytes()[:300])
    (folder / "results/smoke/contrast/contrasts.csv").write_text("x")
    report = check(folder)
    names = {(item.path, item.kind) for item in report.faults()}
    assert ("results/smoke/evaluate/grid-05/run.json", "record") in names
    assert ("results/smoke/contrast/contrasts.csv", "changed") in names


def test_a_record_of_an_older_schema_is_read_as_far_as_it_goes(folder: Path) -> None:
    path = folder / "results/smoke/evaluate/grid-05/run.json"
    old = {key: value for key, value in json.loads(path.read_bytes()).items() if key not in ("scheduler", "packages")}
    path.write_text(json.dumps({**old, "schema_version": 0}))
    (folder / "results/smoke/attempts.jsonl").unlink()
    report = check(folder)
    assert report.exit_code == 0
    assert [item.message for item in report.findings] == ["a record of schema 0, not 1: lacks packages, scheduler"]
    (folder / "results/smoke/evaluate/grid-05/episodes.parquet").write_text("x")
    assert check(folder).exit_code == 3


def test_a_clock_that_was_set_back_is_a_note_and_no_fault(folder: Path) -> None:
    (folder / "results/smoke/attempts.jsonl").unlink()
    edit(folder / "results/smoke/sft/sft/run.json", lambda run: run["usage"].update(started="2031-01-01T00:00:00.000Z"))
    edit(folder / "results/smoke/select/run.json", lambda run: run["usage"].update(ended="2032-01-01T00:00:00.000Z"))
    report = check(folder)
    assert report.exit_code == 0
    assert {"ends before it starts" in item.message or "clocks" in item.message for item in report.findings} == {True}
    assert len(report.findings) == 1 + 2 + 3


def test_times_of_files_do_not_matter(folder: Path) -> None:
    for path in walk_files(folder):
        os.utime(path, (1, 1))
    assert check(folder).findings == ()


def test_results_on_another_disk_behind_links_are_followed_once(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "results/smoke/grpo", tmp_path / "big disk")
    (folder / "results/smoke/grpo").symlink_to(tmp_path / "big disk")
    (tmp_path / "big disk" / "loop").symlink_to(tmp_path / "big disk")
    report = check(folder)
    assert (report.findings, report.runs) == ((), 11)
    (tmp_path / "big disk/grid-05/checkpoint/model.safetensors").write_text("x")
    assert check(folder).exit_code == 3


def test_a_result_moved_to_another_name_says_so(folder: Path) -> None:
    shutil.move(folder / "results/smoke/grpo/grid-05", folder / "results/smoke/grpo/grid-06")
    report = check(folder)
    assert any("the folder was moved or copied" in item.message for item in report.faults())


def test_a_job_made_again_with_other_bytes_breaks_the_chain_below_it(folder: Path) -> None:
    train("grid-05", "other")
    report = check(folder)
    assert {item.path for item in report.faults()} == {"results/smoke/evaluate/grid-05"}
    train("grid-05")
    assert check(folder).exit_code == 0


def test_one_result_is_checked_with_all_it_rests_on_and_nothing_else(folder: Path) -> None:
    (folder / "results/smoke/grpo/grid-11/checkpoint/model.safetensors").write_text("x")
    assert verify_path(Project(folder), "results/smoke/evaluate/grid-05/episodes.parquet").exit_code == 0
    assert verify_path(Project(folder), "figures/smoke/gate.png").exit_code == 3
    with pytest.raises(LookupError, match="no record knows it"):
        verify_path(Project(folder), "workflow/data/runs.tsv")


def test_absent_failed_and_extra_runs_are_told_apart(folder: Path) -> None:
    """With the study's own settings in place, of which the small study made a part, and one run too many."""
    for name in ("config.yaml", "workflow"):
        source = PROJECT / name
        shutil.copytree(source, folder / name, dirs_exist_ok=True) if source.is_dir() else shutil.copy(source, folder)
    shutil.copytree(folder / "results/smoke/grpo/grid-05", folder / "results/smoke/grpo/mine")
    shutil.rmtree(folder / "results/smoke/grpo/grid-11")
    found = {(item.kind, item.path.removeprefix("results/smoke/")) for item in check(folder).findings}
    assert ("absent", "grpo/grid-15") in found
    assert ("failed", "grpo/grid-11") in found
    assert ("extra", "grpo/mine") in found
    assert ("absent", "figures/smoke/replication.pdf") in found


def test_sources_are_those_of_the_commit_that_a_record_names(folder: Path) -> None:
    name = "workflow/data/runs.tsv"
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "workflow"], [*author, "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    (folder / "results/smoke/attempts.jsonl").unlink()
    from headroom.provenance import closure
    from headroom.provenance.digest import sha256_file

    def claim(digest: str) -> Callable[[dict], None]:
        git = {
            "commit": commit.stdout.strip(),
            "dirty": False,
            "diff_sha256": None,
            "diff": None,
            "diff_truncated": False,
        }
        files = {name: digest}
        return lambda run: run.update(git=git, sources={"files": files, "sha256": closure.digest(files)})

    record = folder / "results/smoke/contrast/run.json"
    edit(record, claim(sha256_file(folder / name)))
    assert check(folder).findings == ()
    edit(record, claim("0" * 64))
    assert ["is not that of commit" in item.message for item in check(folder).faults()] == [True]


def test_the_memory_of_digests_reads_no_byte_twice_and_can_be_switched_off(folder: Path) -> None:
    for path in walk_files(folder):
        os.utime(path, (1, 1))
    memory = folder / "results/.digests.json"
    path = folder / "results/smoke/contrast/contrasts.csv"
    Hasher(memory).prefetch([path])
    assert not memory.exists(), "what changed a moment ago is not remembered"


def test_an_old_file_is_remembered_until_its_bytes_or_times_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.provenance.cache.SETTLED_SECONDS", -1e9)
    memory, path = folder / "results/.digests.json", folder / "results/smoke/contrast/contrasts.csv"
    first = Hasher(memory)
    first.prefetch([path])
    again = Hasher(memory)
    assert (again.entry(path), again.read_bytes) == (first.entry(path), 0)
    times = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert Hasher(memory).entry(path) != first.entry(path), "setting mtime back deceives nobody"
    memory.write_text('{"x": [1, 2')
    assert Hasher(memory).entry(path) == Hasher().entry(path)


def test_many_bytes_are_read_once_in_pieces_with_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr("headroom.provenance.cache.SHOW_ABOVE", 1 << 20)
    path = tmp_path / "big"
    path.write_bytes(os.urandom(5 << 20))
    hasher = Hasher()
    hasher.prefetch([path, path])
    assert hasher.entry(path) == manifest.entry(path)
    assert hasher.read_bytes == 5 << 20
    assert "hashing, MB 5/5" in capsys.readouterr().err


def test_a_file_left_out_of_a_release_is_no_loss_and_a_released_one_is(folder: Path) -> None:
    names = [name for name in recorded(folder) if "checkpoint" not in name and not name.startswith("workflow")]
    lock.save(folder, "smoke", {name: manifest.entry(folder / name) for name in names})
    shutil.rmtree(folder / "results/smoke/grpo/grid-05/checkpoint")
    report = check(folder)
    assert report.exit_code == 0
    assert {item.message for item in report.findings} == {"is not part of the release"}
    (folder / "results/smoke/grpo/grid-05/steps.parquet").unlink()
    assert check(folder).exit_code == 3


@pytest.mark.parametrize("line", ["x", "0" * 64 + "  1  ../../etc/passwd", "0" * 64 + "  1  results/../a"])
def test_a_damaged_lock_is_named_and_leads_nowhere(folder: Path, line: str) -> None:
    (folder / lock.NAME).write_text(line + "\n")
    done = CliRunner().invoke(app, ["verify", "--scale", "smoke"])
    assert done.exit_code == 1
    assert "results.lock: line 1 is damaged" in str(done.exception)


def test_exit_codes_are_as_the_help_says(folder: Path) -> None:
    runner = CliRunner()
    assert "Exit codes" in runner.invoke(app, ["verify", "--help"]).stdout
    done = runner.invoke(app, ["verify"])
    assert (done.exit_code, done.stdout) == (0, "11 runs, 49 files: everything is as recorded\n")
    assert runner.invoke(app, ["verify", "nothing.csv"]).exit_code == 1
    (folder / "results/smoke/contrast/contrasts.csv").write_text("x")
    done = runner.invoke(app, ["verify", "--json"])
    assert done.exit_code == 3
    document = json.loads(done.stdout)
    assert document["findings"][0]["path"] == "results/smoke/contrast/contrasts.csv"


@pytest.mark.slow
def test_verify_reads_at_the_speed_of_sha256sum(tmp_path: Path) -> None:
    """A ratio on the same files in the same seconds; the benchmark's full size is in benchmarks/verify_speed.json."""
    from verify_speed import measure

    assert measure(tmp_path, [16 << 20] * 4 + [40 << 10] * 40, rounds=5)["ratio"] <= 1.3
