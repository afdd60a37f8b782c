"""A reader starts from released files: what lies below the tier is fetched and held to its digest, never made."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headroom.provenance import lock, release
from headroom.provenance.verify import verify_scale
from headroom.provenance.walk import Project, walk_files

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def released(finished_smoke: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of the finished study at level evals, and its lock."""
    folder = tmp_path_factory.mktemp("released")
    study = folder / "study"
    shutil.copytree(finished_smoke, study, symlinks=True)
    release.pack(Project(study), "smoke", "evals", folder / "headroom-smoke.tar.gz")
    shutil.copy(study / lock.NAME, folder)
    return folder


@pytest.fixture
def clone(released: Path, tmp_path: Path, copy_project: Callable[[Path], Path]) -> Path:
    """A fresh clone with the committed lock and the archive, and no result."""
    folder = copy_project(tmp_path / "clone")
    (folder / ".venv").symlink_to(Path(released / "study" / ".venv").resolve())
    (folder / "dist").mkdir()
    shutil.copy(released / "headroom-smoke.tar.gz", folder / "dist")
    shutil.copy(released / lock.NAME, folder)
    return folder


def snakemake(folder: Path, tier: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [".venv/bin/snakemake", "--cores", "2", *options, "--config", "scale=smoke", f"tier={tier}"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip


def test_the_released_evaluations_give_the_same_tables_to_the_byte(clone: Path, released: Path) -> None:
    study = released / "study"
    tables = [f"figures/smoke/data/{path.name}" for path in sorted((study / "figures/smoke/data").glob("*.csv"))]
    targets = [f"results/smoke/{name}/manifest.json" for name in ("contrast", "mechanism", "failures")]
    done = snakemake(clone, "evals", *targets, *tables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = [path.relative_to(clone).as_posix() for path in walk_files(clone / "results/smoke") if path.suffix == ".csv"]
    made += tables
    assert len(made) > 12
    for name in made:
        assert (clone / name).read_bytes() == (study / name).read_bytes(), name
    assert not (clone / "results/smoke/grpo/grid-05/checkpoint").exists()
    found = verify_scale(Project(clone), "smoke").faults(("record", "changed", "missing"))
    assert not [finding.line() for finding in found]


def test_the_tables_alone_are_enough_to_draw_a_figure(clone: Path, released: Path) -> None:
    done = snakemake(clone, "tables", "figures/smoke/gate.pdf")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    study = released / "study"
    for name in ("gate.pdf", "gate.png", "captions/gate.txt"):
        assert (clone / "figures/smoke" / name).read_bytes() == (study / "figures/smoke" / name).read_bytes(), name


def test_a_damaged_archive_stops_everything(clone: Path) -> None:
    archive = clone / "dist/headroom-smoke.tar.gz"
    content = bytearray(gzip.decompress(archive.read_bytes()))
    content[content.index(b"policy,", 1 << 16) + 2] ^= 1
    archive.write_bytes(gzip.compress(bytes(content)))
    done = snakemake(clone, "tables", "figures/smoke/gate.pdf")
    assert done.returncode != 0
    assert "is damaged; fetch the archive again" in done.stdout + done.stderr
    assert not (clone / "figures/smoke/gate.pdf").exists()


def test_without_a_release_nothing_below_the_tier_is_made_by_accident(clone: Path) -> None:
    (clone / "dist/headroom-smoke.tar.gz").unlink()
    done = snakemake(clone, "evals", "-n", "results/smoke/contrast/manifest.json")
    assert done.returncode != 0
    assert "MissingInputException" in done.stdout + done.stderr
