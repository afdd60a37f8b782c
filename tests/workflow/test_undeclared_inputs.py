"""No stage of the smoke study opened a file of the project, or of anybody's data, that its rule does not declare.

The study's jobs ran with an audit hook on ``open`` (``OPEN_HOOK`` in tests/open_hook.py). What libraries read without
Python's ``open`` (Parquet, safetensors) does not show; those files lie in folders that records digest as a whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from open_hook import OPEN_HOOK

from headroom.provenance.walk import Node, Project

MACHINERY = (
    "src/headroom/provenance/", "src/headroom/config/", "src/sitecustomize.py", "src/headroom.egg-info/", ".git/",
    "requirements/main.txt", "envs/", ".venv/", ".tools/",
)  # fmt: skip
"""What makes records and settings: no result depends on it."""


def test_the_hook_sees_reads_and_leaves_writes_and_the_python_installation_alone(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/sitecustomize.py").write_text(OPEN_HOOK)
    (tmp_path / "data.txt").write_text("x")
    (tmp_path / "results/smoke").mkdir(parents=True)
    (tmp_path / "headroom").mkdir()
    (tmp_path / "headroom/__init__.py").touch()
    (tmp_path / "headroom/stage.py").write_text(
        "import json, csv, os\nfrom pathlib import Path\nopen('out.txt', 'w').close()\nPath('data.txt').read_text()\n"
        "os.close(os.open('data.txt', os.O_RDONLY))\n"
    )
    command = [sys.executable, "-m", "headroom.stage", "--output", "results/smoke/x"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": f"src{os.pathsep}."})
    lines = [json.loads(line) for line in (tmp_path / "results/smoke/logs/opened.jsonl").read_text().splitlines()]
    assert {line["output"] for line in lines} == {"results/smoke/x"}
    names = [line["path"] for line in lines]
    assert "data.txt" in names
    assert not [name for name in names if name == "out.txt" or "json/" in name]


def declared(project: Project, node: Node) -> Iterator[str]:
    """Files that a run may read, and folders (with a slash at the end)."""
    yield from MACHINERY
    yield from node.run.sources.files
    yield from node.files()
    yield f"{node.base}/" if node.is_directory else node.record
    if node.run.config is not None:
        yield node.run.config.path
    for item, parent in project.parents(node):
        yield f"{item.path}/" if item.kind == "directory" else item.path
        if parent is not None:
            yield parent.record
            yield f"{parent.base}/manifest.json"
    scale = node.record.split("/")[1]
    yield f"results/{scale}/attempts.jsonl"
    yield f"results/{scale}/.scratch/"


@pytest.mark.slow
@pytest.mark.browser
def test_no_stage_reads_what_its_rule_does_not_declare(finished_smoke: Path) -> None:
    log = finished_smoke / "results/smoke/logs/opened.jsonl"
    if not log.is_file():
        pytest.skip("this smoke study was handed in; what its jobs opened was not kept")
    project = Project(finished_smoke)
    allowed = {node.name: tuple(declared(project, node)) for node in project.records("smoke")}
    read: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        read.setdefault(entry["output"], set()).add(entry["path"])
    assert len(read) > 30, "every job is in the log"
    wrong = []
    for output, names in read.items():
        assert output in allowed, output
        may = allowed[output]
        files, folders = {name for name in may if name[-1] != "/"}, tuple(name for name in may if name[-1] == "/")
        # A job writes through temporary files beside its outputs and reads its own log of attempts.
        own = tuple(name.rpartition("/")[0] + "/." for name in files)
        wrong += [
            f"{output}: {name}"
            for name in sorted(names)
            if name not in files and not name.startswith(folders) and not name.startswith(own)
        ]
    assert wrong == []
