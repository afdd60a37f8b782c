"""The whole study at scale smoke, for real: every rule, every figure, a record beside every result."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from headroom.provenance import attempts, manifest

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PROJECT = Path(__file__).parents[2]


def records(folder: Path) -> list[Path]:
    return sorted([*folder.glob("results/smoke/**/run.json"), *folder.glob("figures/smoke/records/*.run.json")])


def test_every_figure_of_the_table_is_there_with_its_numbers(finished_smoke: Path) -> None:
    with (finished_smoke / "workflow/data/figures.tsv").open() as stream:
        names = [row["figure"] for row in csv.DictReader(stream, delimiter="\t") if row["study"] == "gate"]
    assert len(names) == 11
    for name in names:
        for path in (f"{name}.pdf", f"{name}.png", f"data/{name}.csv"):
            assert (finished_smoke / "figures/smoke" / path).stat().st_size > 0, path


def test_every_record_fits_the_committed_schema_and_names_a_clean_commit(finished_smoke: Path) -> None:
    schema = json.loads((PROJECT / "workflow/schemas/run_record.schema.json").read_text())
    found = records(finished_smoke)
    assert len(found) > 20
    for path in found:
        record = json.loads(path.read_bytes())
        assert list(Draft202012Validator(schema).iter_errors(record)) == [], path
        assert record["git"]["dirty"] is False, path


def test_every_result_is_what_its_manifest_says(finished_smoke: Path) -> None:
    for path in finished_smoke.glob("results/smoke/**/manifest.json"):
        assert manifest.differences(manifest.load(path), manifest.build(path.parent)) == [], path


def test_the_sources_that_a_rule_declares_are_the_sources_that_its_job_recorded(finished_smoke: Path) -> None:
    done = subprocess.run(
        [".venv/bin/snakemake", "--config", "scale=smoke", "--detailed-summary", "--quiet"],
        cwd=finished_smoke, capture_output=True, text=True, check=True,
    )  # fmt: skip
    declared = {}
    for row in csv.DictReader(done.stdout.splitlines(), delimiter="\t"):
        (listed,) = (name for name in row["input-file(s)"].split(",") if "/config/sources/" in name)
        lines = (finished_smoke / listed).read_text().splitlines()
        declared[row["output_file"]] = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    checked = 0
    for path in records(finished_smoke):
        name = path.relative_to(finished_smoke).as_posix()
        if name in declared:
            assert json.loads(path.read_bytes())["sources"]["files"] == declared[name], name
            checked += 1
    assert checked > 20


def test_every_attempt_is_in_the_log_with_its_end(finished_smoke: Path) -> None:
    lines = list(attempts.read(finished_smoke / "results/smoke" / attempts.NAME))
    started = {line["attempt"] for line in lines if line["event"] == "started"}
    ended = {line["attempt"]: line["ending"] for line in lines if line["event"] == "ended"}
    assert started == set(ended)
    latest = {line["output"]: line["attempt"] for line in lines if line["event"] == "started"}
    assert {ended[attempt] for attempt in latest.values()} <= {"finished", "diverged"}
    recorded = {json.loads(path.read_bytes())["attempt"] for path in records(finished_smoke)}
    assert recorded == set(latest.values())


def test_afterwards_there_is_nothing_to_do(finished_smoke: Path) -> None:
    done = subprocess.run(
        [".venv/bin/snakemake", "-n", "--config", "scale=smoke"], cwd=finished_smoke, capture_output=True, text=True
    )
    assert "Nothing to be done" in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_run_ends_by_saying_what_was_made_and_where_to_look(finished_smoke: Path) -> None:
    path = finished_smoke / "results/smoke/screen.txt"
    if not path.is_file():
        pytest.skip("this smoke study was handed in; its screen was not kept")
    end = path.read_text()[-6000:]
    for words in ("Done in", "figures/smoke/gate.pdf", "evidence of nothing", "headroom runs"):
        assert words in end


def test_no_record_or_log_line_names_the_place_it_was_made_in(finished_smoke: Path) -> None:
    for path in [*records(finished_smoke), finished_smoke / "results/smoke" / attempts.NAME]:
        text = path.read_text()
        assert str(finished_smoke) not in text, path
        assert str(Path.home()) + "/" not in text, path
