"""What all tests share: hypothesis without a clock, a copy of the project, and one real smoke study."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from open_hook import OPEN_HOOK

# Small models: one thread is faster than several, and far faster on a busy machine. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Property tests say the same thing on every machine: no time limit an example, and the same examples each run.
settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")

PROJECT = Path(__file__).parents[1]

COPIED = (
    "Snakefile",
    "config.yaml",
    "src",
    "workflow",
    "slurm",
    "envs",
    "requirements",
    "tools",
    "pyproject.toml",
    ".gitignore",
)


def _copy(folder: Path) -> Path:
    """Copy the files that the workflow reads into ``folder``, which is made."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source, target = PROJECT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, target)
    return folder


@pytest.fixture(scope="session")
def copy_project() -> Callable[[Path], Path]:
    """A function that copies the project, without results, into a new folder."""
    return _copy


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, in a repository of its own, after one real smoke study: look, but do not touch.

    Made once a session, in minutes; tests that use it are marked slow. A finished copy can be handed in with
    HEADROOM_FINISHED_SMOKE, to try a test out without the wait.
    """
    if given := os.environ.get("HEADROOM_FINISHED_SMOKE"):
        return Path(given)
    folder = _copy(tmp_path_factory.mktemp("smoke") / "headroom")
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    (folder / "src" / "sitecustomize.py").write_text(OPEN_HOOK)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "copy"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    done = subprocess.run(
        ["tools/study.sh", "smoke"], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    (folder / "results" / "smoke" / "screen.txt").write_text(done.stdout + done.stderr)
    return folder
