"""Archives that lie about their sizes, or whose files have no room: one line, and nothing is written elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import lock, release
from headroom.provenance.manifest import FileEntry

NAME = "results/smoke/a"


def archive(place: Path, *names: str) -> Path:
    entries = {name: FileEntry(sha256=hashlib.sha256(b"x").hexdigest(), size=1) for name in names}
    path = place / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in ((release.MEMBER, lock.dump(entries).encode()), *((name, b"x") for name in names)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [1 << 62, (1 << 63) + 5])
def test_a_size_that_no_memory_holds_is_refused(tmp_path: Path, kind: bytes, size: int) -> None:
    info = tarfile.TarInfo(release.MEMBER)
    info.size, info.type = size, kind
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)))
    for look in (release.contents, lambda path: release.unpack(tmp_path, path)):
        with pytest.raises(ValueError, match=r"a\.tar\.gz: (its list is|cannot be read)"):
            look(path)


def test_a_folder_in_the_place_of_a_file_stops_it_before_anything_is_written(tmp_path: Path) -> None:
    path = archive(tmp_path, "results/smoke/0", NAME)
    (tmp_path / NAME).mkdir(parents=True)
    with pytest.raises(ValueError, match=f"{NAME}: a folder is in its place"):
        release.unpack(tmp_path, path, force=True)
    assert not (tmp_path / "results/smoke/0").exists()


def test_a_place_that_takes_no_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, NAME)
    (tmp_path / "Snakefile").write_text("")
    (tmp_path / "results").write_text("a file")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["unpack", str(path)])
    assert "; mend it, then start again" in str(done.exception)


@pytest.mark.parametrize("tier", ["scratch", "table", ""])
def test_a_tier_that_takes_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    path = archive(tmp_path, NAME)
    (tmp_path / "Snakefile").write_text("")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["unpack", str(path), "--tier", tier])
    assert (done.exit_code == 0) == (tier == "")
    assert (tmp_path / NAME).exists() == (tier == "")


@pytest.mark.parametrize("command", ["release", "crate"])
def test_a_result_that_finds_no_room_is_one_line(folder: Path, tmp_path: Path, command: str) -> None:
    (folder / "config.yaml").write_text("scale: smoke\n")
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, [command, "--output", str(tmp_path / "file" / "below")])
    assert "cannot be written" in str(done.exception)
