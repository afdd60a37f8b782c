"""The smoke study made twice from nothing, in two folders, ends in the same bytes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import digests

from headroom.provenance.diff import compare, render
from headroom.provenance.walk import Project

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def twice(
    finished_smoke: Path, tmp_path_factory: pytest.TempPathFactory, copy_project: Callable[[Path], Path]
) -> tuple[Path, Path]:
    """The session's smoke study and another one, made in a folder of another depth and name."""
    folder = copy_project(tmp_path_factory.mktemp("again") / "deeper down" / "another folder")
    (folder / ".venv").symlink_to((finished_smoke / ".venv").resolve())
    done = subprocess.run(["tools/study.sh", "smoke"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return finished_smoke, folder


def test_every_table_checkpoint_claim_and_figure_has_the_same_digest(twice: tuple[Path, Path]) -> None:
    first, second = digests(twice[0]), digests(twice[1])
    assert len(first) > 100
    assert {Path(name).suffix for name in first} >= {".csv", ".parquet", ".safetensors", ".json", ".pdf", ".png"}
    differing = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    why = ""
    if differing:
        sides = [(project := Project(folder), project.owner(min(differing))) for folder in twice]
        why = render(compare(*[side for side in sides if side[1] is not None])) if all(s[1] for s in sides) else ""
    assert not differing, f"{sorted(differing)}\n{why}"


def test_a_job_repeated_alone_gives_its_bytes_again(twice: tuple[Path, Path]) -> None:
    second = twice[1]
    before = digests(second)
    shutil.rmtree(second / "results/smoke/contrast")
    (second / "figures/smoke/data/gate.csv").unlink()
    command = [".venv/bin/snakemake", "--cores", "2", "--config", "scale=smoke"]
    targets = ["results/smoke/contrast/manifest.json", "figures/smoke/data/gate.csv"]
    done = subprocess.run([*command[:3], *targets, *command[3:]], cwd=second, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert {name: digests(second)[name] for name in before} == before
