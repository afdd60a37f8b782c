"""Records, logs and lists that were edited, cut short or filled with nonsense: a finding or one line, no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headroom.cli import app
from headroom.provenance import attempts, lock
from headroom.provenance.audit import Audit
from headroom.provenance.closure import SOURCE, Lists
from headroom.provenance.page import page
from headroom.provenance.verify import verify_path, verify_scale
from headroom.provenance.walk import Project, read_record

RUN = "results/smoke/grpo/grid-05"
EPISODES = "results/smoke/evaluate/grid-05/episodes.parquet"


def call(*words: str) -> Result:
    done = CliRunner().invoke(app, list(words))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / RUN / "run.json"
    record = json.loads(path.read_bytes())
    change(record)
    path.write_text(json.dumps(record))


def times(started: str, ended: str) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["usage"].update(started=started, ended=ended)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["outputs"].update({"a\0b": {"sha256": "0" * 64, "size": 1}}),
        lambda record: record["inputs"][0].update(path="a\0"),
        lambda record: record["inputs"][0].update(path="~nobody-of-that-name/x"),
        times("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        times("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"),
        times("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
        lambda record: record.update(schema_version=float("inf")),
    ],
)
def test_nonsense_in_a_record_is_a_finding(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(folder, change)
    report = verify_scale(Project(folder), "smoke")
    assert report.exit_code == 3
    assert any(RUN in finding.path for finding in report.faults())


def test_a_record_nested_without_end_is_damaged() -> None:
    assert read_record(b"[" * 200_000, "run.json")[0] is None


def test_records_that_name_each_other_are_walked_once(folder: Path) -> None:
    edit(
        folder,
        lambda record: record["inputs"].append(
            {"name": "x", "path": EPISODES, "kind": "file", "sha256": "0" * 64, "size": 1, "files": {}}
        ),
    )
    audit = Audit(Project(folder), "figures/smoke/gate.pdf")
    assert len(audit.nodes) == 11
    assert audit.faults()
    assert RUN in page(Project(folder), "smoke", ["figures/smoke/gate.pdf"])


def test_the_damaged_record_of_the_result_itself_is_what_is_said(folder: Path) -> None:
    path = folder / RUN / "run.json"
    path.write_bytes(path.read_bytes()[:300])
    assert [finding.kind for finding in verify_path(Project(folder), RUN).faults()] == ["record"]
    assert call("verify", RUN).exit_code == 3
    assert "damaged or cut short" in str(call("audit", RUN).exception)


def test_the_summary_counts_a_damaged_record(folder: Path) -> None:
    path = folder / RUN / "run.json"
    path.write_bytes(path.read_bytes()[:300])
    (folder / "config.yaml").write_text("scale: smoke\n")
    assert "1 with a damaged record" in call("summary", "--scale", "smoke").output


@pytest.mark.parametrize(
    "line", ['{"event":"started","output":"o"}', '{"event":"ended","attempt":[1]}', '{"event":"damaged"}']
)
def test_a_line_of_no_attempt_is_a_damaged_one(tmp_path: Path, line: str) -> None:
    log = tmp_path / attempts.NAME
    log.write_text(f"{line}\n")
    assert attempts.of_output(log, "o") == []
    assert [item["text"] for item in attempts.read(log)] == [line]


def test_a_line_after_one_cut_short_is_whole(tmp_path: Path) -> None:
    log = tmp_path / attempts.NAME
    attempts.append(log, {"event": "started", "attempt": "a", "output": "o"})
    os.truncate(log, log.stat().st_size - 5)
    attempts.append(log, {"event": "started", "attempt": "b", "output": "o"})
    assert [line["event"] for line in attempts.read(log)] == ["damaged", "started"]


@pytest.mark.parametrize("scale", ["nonsense", "../..", ".", "smoke/.."])
def test_a_scale_that_is_not_here_is_not_as_recorded(folder: Path, scale: str) -> None:
    (folder / "config.yaml").write_text("scale: smoke\n")
    done = call("verify", "--scale", scale)
    assert done.exit_code == 1
    assert str(done.exception).startswith("headroom: ")


def test_a_name_too_long_for_a_file_is_not_known(folder: Path) -> None:
    assert "no figure, claim, run or path" in str(call("audit", "a" * 300, "--scale", "smoke").exception)


@pytest.mark.parametrize("line", [f"{'0' * 64}  3  results/a\0b", f"{'0' * 64}  {'9' * 5000}  results/a"])
def test_a_lock_with_a_size_or_a_path_that_none_can_be_is_damaged(line: str) -> None:
    with pytest.raises(ValueError, match="line 1 is damaged"):
        lock.parse(line, lock.NAME)


def test_a_damaged_list_of_sources_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "src").symlink_to(SOURCE)
    (tmp_path / "workflow").symlink_to(SOURCE.parent / "workflow")
    path = tmp_path / Lists(tmp_path, "lists").sources("train.sft")
    whole = path.read_bytes()
    path.write_bytes(b"\xff\xfe" + whole)
    Lists(tmp_path, "lists").sources("train.sft")
    assert path.read_bytes() == whole
