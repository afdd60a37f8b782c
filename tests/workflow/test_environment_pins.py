"""Pin files and the image's definition: what is made from the environments agrees with them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

URL = "https://conda.anaconda.org/conda-forge"
PIN = f"""# platform: linux-64
@EXPLICIT
{URL}/linux-64/python-3.11.11-h9e4cc4f_1_cpython.conda#3b0e3ad2c6ac5f1ad2ee0ea8ab0a1f4b
{URL}/noarch/pip-26.2-pyh8b19718_0.conda#c35ec6ed9c4ef5b2ac6d8ee0a6d8b9b2
"""
SCRIPT = """#!/usr/bin/env bash
# Written by tools/pins.py. From train.linux-64.pin.txt come conda packages alone: this adds the pip part.
set -euo pipefail
[ -f envs/train.yaml ] || { echo "envs/train.yaml is not in $PWD: start snakemake where it is" >&2; exit 1; }
sed -n 's/^      - //p' envs/train.yaml >"$CONDA_PREFIX/pip.txt"
python -m pip install --no-deps -r "$CONDA_PREFIX/pip.txt"
"""


def tool(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, f"tools/{name}", *options], cwd=folder, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two environments, one of them pinned."""
    for folder in ("envs", "tools"):
        (tmp_path / folder).mkdir()
    shutil.copy2(PROJECT / "tools/pins.py", tmp_path / "tools")
    for kind in ("train", "worlds"):
        shutil.copy2(PROJECT / f"envs/{kind}.yaml", tmp_path / "envs")
    (tmp_path / "envs/train.linux-64.pin.txt").write_text(PIN)
    (tmp_path / "envs/train.post-deploy.sh").write_text(SCRIPT)
    return tmp_path


def test_the_pin_files_of_this_project_agree_with_their_environments() -> None:
    done = tool(PROJECT, "pins.py", "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pin_file_may_stand_beside_one_environment_alone(project: Path) -> None:
    done = tool(project, "pins.py", "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("3.11.11", "3.10.1", "train.linux-64.pin.txt: has python 3.10.1, train.yaml wants 3.11.11"),
        ("/pip-", "/pop-", "train.linux-64.pin.txt: has pip not at all, train.yaml wants 26.2"),
        ("@EXPLICIT", "", "train.linux-64.pin.txt: has no line @EXPLICIT, so conda would solve it anew"),
    ],
)
def test_a_pin_file_that_does_not_agree_is_refused(project: Path, old: str, new: str, fault: str) -> None:
    (project / "envs/train.linux-64.pin.txt").write_text(PIN.replace(old, new))
    done = tool(project, "pins.py", "--check")
    assert (done.returncode, done.stderr) == (1, f"pins: {fault}\n")


@pytest.mark.parametrize("name", ["train.pin.txt", "train.linux64.pin.txt", "agent.linux-64.pin.txt"])
def test_a_pin_file_that_snakemake_would_not_find_is_refused(project: Path, name: str) -> None:
    (project / f"envs/{name}").write_text(PIN)
    done = tool(project, "pins.py", "--check")
    assert done.returncode == 1
    assert done.stderr.startswith(f"pins: {name}: Snakemake looks for <environment>.linux-64.pin.txt")


def test_a_pin_file_comes_with_the_script_that_installs_the_pip_part(project: Path) -> None:
    (project / "envs/train.post-deploy.sh").write_text(SCRIPT.replace("--no-deps ", ""))
    (project / "envs/worlds.post-deploy.sh").write_text(SCRIPT)
    done = tool(project, "pins.py", "--check")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "pins: train.post-deploy.sh: is not what installs the pip part of train.yaml",
        "pins: worlds.post-deploy.sh: there is no pin file that it belongs to",
    ]


def test_without_conda_pins_are_refused_in_one_line_and_nothing_is_written(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project))
    before = sorted(path.name for path in (project / "envs").iterdir())
    done = tool(project, "pins.py")
    assert done.returncode == 1
    assert done.stderr == "pins: there is no conda on the PATH: https://conda-forge.org/download, then type it again\n"
    assert sorted(path.name for path in (project / "envs").iterdir()) == before


def test_the_image_definition_is_of_these_environments() -> None:
    done = tool(PROJECT, "container.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_image_definition_is_made_anew_when_an_environment_changes(project: Path) -> None:
    shutil.copy2(PROJECT / "tools/container.py", project / "tools")
    shutil.copytree(PROJECT / "workflow/rules", project / "workflow/rules")
    shutil.rmtree(project / "envs")
    shutil.copytree(PROJECT / "envs", project / "envs")
    assert tool(project, "container.py", "--check").returncode == 0
    path = project / "envs/audit.yaml"
    path.write_text(path.read_text().replace("rocrate==", "rocrate==9."))
    done = tool(project, "container.py", "--check")
    assert done.returncode == 1
    assert done.stderr == "envs/apptainer.def is not of these environments; type: python tools/container.py\n"
