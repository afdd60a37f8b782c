"""How long does Snakemake need to see what a study of a thousand runs must make, and how much memory?

    python benchmarks/dag.py [RUNS]          writes benchmarks/dag.json

A copy of the project gets a run table of that many rows (those of the repository, then more seeds of them, in turn) and
is asked for a dry run, ``snakemake -n``; so is a bare workflow of as many jobs, one short input and output each.
Processor time and peak memory are the kernel's, of that process alone; their ratio says what the rules themselves cost.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headroom.files import write_json

PROJECT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).with_suffix(".json")
FIRST_SEED = 1000

BARE = """
rule all:
    input:
        expand("b/{{name}}.txt", name=range({half})),


rule a:
    output:
        "a/{{name}}.txt",
    shell:
        "touch {{output}}"


rule b:
    input:
        "a/{{name}}.txt",
    output:
        "b/{{name}}.txt",
    shell:
        "cp {{input}} {{output}}"
"""


def copy(folder: Path, runs: int) -> None:
    """The project's workflow in ``folder``, with a run table of ``runs`` rows."""
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(PROJECT / name, folder / name)
    for name in ("workflow", "src", "envs"):
        shutil.copytree(PROJECT / name, folder / name)
    path = folder / "workflow/data/runs.tsv"
    with path.open(encoding="utf-8", newline="") as stream:
        given = list(csv.DictReader(stream, delimiter="\t"))
    last = {row["family"]: int(row["run"].rpartition("-")[2]) for row in given}
    rows = given[:runs]
    for number in range(runs - len(rows)):
        row = given[number % len(given)]
        last[row["family"]] += 1
        name = f"{row['family']}-{last[row['family']]:02}"
        rows.append({**row, "run": name, "seed": str(FIRST_SEED + number)})
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(given[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
with open(sys.argv[1], "wb") as stream:
    status = subprocess.run(sys.argv[2:], stdout=stream, stderr=subprocess.STDOUT).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
wall, cpu = time.perf_counter() - start, used.ru_utime + used.ru_stime
print(json.dumps({"status": status, "wall": wall, "cpu": cpu, "kilobytes": used.ru_maxrss}))
"""
"""A small process in between: on Linux a process begins with the peak memory of the one that started it."""


def dry_run(folder: Path, *options: str) -> dict[str, float | int]:
    """``snakemake -n`` there: jobs, processor and wall seconds, peak megabytes.

    Raises:
        ValueError: it failed.
    """
    report = folder / "dry-run.txt"
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "2", *options]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, report, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    used = json.loads(done.stdout)
    text = report.read_text(encoding="utf-8")
    total = re.search(r"^total\s+(\d+)", text, re.MULTILINE)
    if used["status"] or total is None:
        raise ValueError(f"snakemake -n failed in {folder}:\n{text[-2000:]}")
    return {
        "jobs": int(total[1]),
        "cpu_seconds": round(used["cpu"], 2),
        "wall_seconds": round(used["wall"], 2),
        "peak_megabytes": round(used["kilobytes"] / 1024),
    }


def measure(runs: int) -> dict[str, object]:
    """Both dry runs, and how many times the bare one the study's costs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study").mkdir()
        copy(folder / "study", runs)
        study = dry_run(folder / "study", "--config", "scale=tiny")
        (folder / "bare").mkdir()
        half = int(study["jobs"]) // 2
        (folder / "bare/Snakefile").write_text(BARE.format(half=half), encoding="utf-8")
        bare = dry_run(folder / "bare")
    ratio = round(study["cpu_seconds"] / bare["cpu_seconds"], 2)
    return {"runs": runs, "cores": len(os.sched_getaffinity(0)), "study": study, "bare": bare, "cpu_ratio": ratio}


def main() -> None:
    """Measure and write the numbers."""
    found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    write_json(RESULT, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
