"""A real GRPO job of the smoke study, killed by SIGKILL at its worst moments, ends in the bytes of the unbroken one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headroom.provenance import attempts, manifest

pytestmark = [pytest.mark.slow, pytest.mark.browser]

OUTPUT = "results/smoke/grpo/grid-05"
COMMAND = (
    "-m", "headroom.train.grpo", "--config", "results/smoke/config/grpo/grid-05.json",
    "--init", "results/smoke/sft/sft/checkpoint", "--task-sets", "results/smoke/select/task_sets.json",
    "--output", OUTPUT,
)  # fmt: skip
KILL_AT = '''
"""Kills this process, with no chance to tidy up, when it is about to give a file the name in KILL_AT."""
import os, signal, sys
def hook(event, details, last=os.environ.get("KILL_AT")):
    if event == "os.rename" and last and os.path.basename(os.fspath(details[1])) == last:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
'''


@pytest.fixture
def project(finished_smoke: Path, tmp_path: Path) -> Path:
    """What the job reads, taken from the finished study with the sources that made it."""
    for name in ("src", "workflow", "envs", "requirements", "results/smoke/config", "results/smoke/sft/sft"):
        shutil.copytree(finished_smoke / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "pyproject.toml", "results/smoke/select"):
        path = finished_smoke / name
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, tmp_path / name)
    (tmp_path / "src/sitecustomize.py").write_text(KILL_AT)
    return tmp_path


def train(project: Path, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": "src", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "KILL_AT": kill_at}
    return subprocess.run(
        [sys.executable, *COMMAND], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_killed_while_it_saves_a_state_its_policy_and_its_records_it_still_gives_the_same_bytes(
    finished_smoke: Path, project: Path
) -> None:
    output, unbroken = project / OUTPUT, finished_smoke / OUTPUT
    moments = {  # about to name this file -> what is there by then
        "step-00000002.safetensors": (),
        "steps.parquet": ("checkpoint/model.safetensors",),
        "manifest.json": ("checkpoint/model.safetensors", "steps.parquet", "run.json"),
    }
    for number, (name, there) in enumerate(moments.items()):
        killed = train(project, kill_at=name)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert ("resumed after step" in killed.stdout) == (number > 0), killed.stdout
        assert not (output / "manifest.json").exists(), "what has no manifest is not a result"
        for file in there:
            assert (output / file).is_file(), file
    done = train(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed after step" in done.stdout

    expected = manifest.load(unbroken / "manifest.json")
    assert {"checkpoint/model.safetensors", "steps.parquet"} <= set(expected)
    for name in ("manifest.json", *expected):
        assert (output / name).read_bytes() == (unbroken / name).read_bytes(), name
    assert manifest.differences(expected, manifest.build(output)) == []
    endings = [entry["ending"] for entry in attempts.of_output(project / "results/smoke" / attempts.NAME, OUTPUT)]
    assert endings == ["killed", "killed", "killed", "finished"]
    assert [old["ending"] for old in json.loads((output / "run.json").read_bytes())["earlier_attempts"]] == endings[:3]
    assert not list((project / "results/smoke/.scratch").rglob("*.safetensors"))
