"""A release holds what records name, nothing else, and comes out as it went in."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from small_study import make
from typer.testing import CliRunner

from headroom.cli import app
from headroom.provenance import lock, release
from headroom.provenance.closure import SOURCE, Lists
from headroom.provenance.project import making
from headroom.provenance.stale import Stale, render
from headroom.provenance.verify import verify_scale
from headroom.provenance.walk import Project


def pack(folder: Path, level: str = "evals", name: str = "a.tar.gz") -> Path:
    archive = folder.parent / name
    release.pack(Project(folder), "smoke", level, archive)
    return archive


@pytest.fixture
def clone(folder: Path, tmp_path: Path) -> Path:
    """A fresh clone: no results."""
    place = tmp_path / "clone"
    (place / "workflow/data").mkdir(parents=True)
    (place / "workflow/data/runs.tsv").write_bytes((folder / "workflow/data/runs.tsv").read_bytes())
    (place / "Snakefile").write_text("")
    return place


@pytest.mark.parametrize("level", release.LEVELS)
def test_what_comes_out_is_what_went_in_and_verifies(folder: Path, clone: Path, level: str) -> None:
    archive = pack(folder, level)
    names = release.unpack(clone, archive)
    assert names == release.files(Project(folder), "smoke", level)
    assert all((clone / name).read_bytes() == (folder / name).read_bytes() for name in names)
    (clone / lock.NAME).write_bytes((folder / lock.NAME).read_bytes())
    report = verify_scale(Project(clone), "smoke")
    assert report.exit_code == 0, report
    assert bool(report.findings) == (level != "checkpoints")


def test_each_level_holds_the_one_before_it(folder: Path) -> None:
    tables, evals, checkpoints = (set(release.files(Project(folder), "smoke", level)) for level in release.LEVELS)
    assert tables < evals < checkpoints
    assert "figures/smoke/data/gate.csv" in tables
    assert not [name for name in tables if name.endswith(".parquet")]
    assert "results/smoke/evaluate/grid-05/episodes.parquet" in evals
    assert not [name for name in evals if "/checkpoint/" in name]
    assert "results/smoke/sft/sft/checkpoint/model.safetensors" in checkpoints


def test_equal_results_give_equal_archives(folder: Path) -> None:
    assert pack(folder).read_bytes() == pack(folder, name="b.tar.gz").read_bytes()


def test_what_no_record_names_stays_outside_and_stops_the_release(folder: Path) -> None:
    (folder / "results/smoke/.scratch").mkdir(exist_ok=True)
    (folder / "results/smoke/.scratch/secret.txt").write_text("x")
    (folder / "results/smoke/logs").mkdir()
    (folder / "results/smoke/logs/a.log").write_text("x")
    with tarfile.open(pack(folder)) as tar:
        assert not [name for name in tar.getnames() if "secret" in name or "/logs/" in name]
    (folder / "results/smoke/contrast/id_rsa").write_text("x")
    with pytest.raises(ValueError, match="undeclared: results/smoke/contrast/id_rsa"):
        pack(folder)


def test_results_that_are_not_as_recorded_are_not_released(folder: Path) -> None:
    (folder / "results/smoke/contrast/contrasts.csv").write_text("x")
    with pytest.raises(ValueError, match=r"changed: results/smoke/contrast/contrasts\.csv"):
        pack(folder)
    assert not (folder / lock.NAME).exists()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"path": "/home/alice/models"}', "a home folder"),
        ("/Users/bob/x", "a home folder"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
        ("token hf_" + "a" * 34, "an access token"),
        ("AKIA" + "A" * 16, "an access token"),
    ],
)
def test_texts_with_keys_and_homes_are_refused(folder: Path, text: str, what: str) -> None:
    assert release.leaks("a.json", text.encode()) == [what]
    assert release.leaks("a.safetensors", text.encode()) == []
    log = folder / "results/smoke/attempts.jsonl"
    log.write_text(log.read_text() + '{"event": "x", "error": ' + repr(text.replace('"', "")).replace("'", '"') + "}\n")
    with pytest.raises(ValueError, match=f"attempts.jsonl: holds {what}"):
        pack(folder)


def test_the_uncommitted_sources_in_a_record_may_speak_of_homes_but_hold_no_key() -> None:
    def record(diff: str) -> bytes:
        return json.dumps({"git": {"diff": diff}, "command": []}).encode()

    assert release.leaks("results/a/run.json", record("+path = '/home/alice/x'")) == []
    assert release.leaks("results/a/run.json", record("+hf_" + "a" * 34)) == ["an access token"]
    assert release.leaks("results/a/run.json", record("").replace(b"[]", b'["/home/alice/x"]')) == ["a home folder"]


def test_a_user_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "alice-the-author")
    assert release.leaks("a.csv", b"by alice-the-author, today") == ["a user name"]
    assert release.leaks("a.csv", b"by nobody") == []


def test_a_damaged_archive_writes_nothing(folder: Path, clone: Path) -> None:
    content = gzip.decompress(pack(folder).read_bytes())
    place = content.index(b"episodes grid-05")
    bad = folder.parent / "bad.tar.gz"
    bad.write_bytes(gzip.compress(content[:place] + b"E" + content[place + 1 :]))
    with pytest.raises(ValueError, match=r"episodes\.parquet is damaged"):
        release.unpack(clone, bad)
    bad.write_bytes(pack(folder).read_bytes()[:-2000])
    with pytest.raises(ValueError, match="fetch the archive again"):
        release.unpack(clone, bad)
    assert not (clone / "results").exists()


def forged(path: Path, name: str, kind: bytes = tarfile.REGTYPE) -> Path:
    listing = f"{'0' * 64}  1  {name}\n".encode()
    with tarfile.open(path, "w:gz") as tar:
        for member, content, what in ((release.MEMBER, listing, tarfile.REGTYPE), (name, b"x", kind)):
            info = tarfile.TarInfo(member)
            info.size, info.type, info.linkname = len(content), what, "/etc/passwd"
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "results/../../evil", "src/headroom/cli.py", "Snakefile"])
def test_no_archive_writes_outside_of_results_and_figures(clone: Path, name: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        release.unpack(clone, forged(clone.parent / "x.tar.gz", name))


def test_links_and_foreign_archives_are_refused(clone: Path) -> None:
    with pytest.raises(ValueError, match="which its list does not"):
        release.unpack(clone, forged(clone.parent / "x.tar.gz", "results/smoke/a", tarfile.SYMTYPE))
    other = clone.parent / "y.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        tar.add(clone / "Snakefile", "Snakefile")
    with pytest.raises(ValueError, match="not a release of headroom"):
        release.unpack(clone, other)


def test_own_results_are_not_overwritten_unasked(folder: Path, clone: Path) -> None:
    archive = pack(folder)
    release.unpack(clone, archive)
    release.unpack(clone, archive)
    table = clone / "results/smoke/contrast/contrasts.csv"
    table.write_text("mine")
    with pytest.raises(ValueError, match="differs from the release"):
        release.unpack(clone, archive)
    assert table.read_text() == "mine"
    release.unpack(clone, archive, force=True)
    assert table.read_text() != "mine"


def test_another_release_than_the_committed_lock_lists_is_refused(folder: Path, clone: Path) -> None:
    archive = pack(folder)
    entries = lock.load(folder / lock.NAME)
    name = "results/smoke/contrast/contrasts.csv"
    lock.save(clone, "smoke", {**entries, name: entries["figures/smoke/gate.pdf"]})
    with pytest.raises(ValueError, match=r"not the released file that results\.lock lists"):
        release.unpack(clone, archive)


def test_a_tier_takes_from_the_release_what_its_rules_do_not_make(folder: Path) -> None:
    assert release.for_tier(folder, "smoke", "evals") == release.Release()
    (folder / "dist").mkdir()
    release.pack(Project(folder), "smoke", "checkpoints", folder / "dist/headroom-smoke.tar.gz")
    assert release.for_tier(folder, "smoke", "scratch") == release.Release()
    found = release.for_tier(folder, "smoke", "checkpoints")
    assert set(found.folders) == {f"results/smoke/{x}/checkpoint" for x in ("sft/sft", "grpo/grid-05", "grpo/grid-11")}
    assert not [name for name in found.files if "/evaluate/" in name or name.startswith("figures/")]
    evals = release.for_tier(folder, "smoke", "evals").files
    assert "results/smoke/evaluate/sft/episodes.parquet" in evals
    assert not [name for name in evals if "/contrast/" in name or name.startswith("figures/")]
    tables = release.for_tier(folder, "smoke", "tables").files
    assert "figures/smoke/data/gate.csv" in tables
    assert "results/smoke/contrast/contrasts.csv" in tables
    assert not [name for name in tables if name.endswith(".pdf")]


def test_a_lora_adapter_is_released_with_the_checkpoints_and_taken_as_a_whole_folder(folder: Path) -> None:
    make("train.grpo", "grpo/grid-06", {"checkpoint/model.safetensors": "w", "adapter/adapter_model.safetensors": "a"})
    (folder / "dist").mkdir()
    release.pack(Project(folder), "smoke", "checkpoints", folder / "dist/headroom-smoke.tar.gz")
    found = release.for_tier(folder, "smoke", "checkpoints")
    assert {f"results/smoke/grpo/grid-06/{name}" for name in release.WEIGHTS} <= set(found.folders)
    assert not [name for name in found.files if "adapter" in name]
    assert not [name for name in release.files(Project(folder), "smoke", "evals") if "/adapter/" in name]


def test_the_lists_of_sources_that_each_start_writes_are_in_no_release(folder: Path) -> None:
    (folder / "src").symlink_to(SOURCE)
    path = folder / Lists(folder, "results/smoke/config/sources").sources("provenance.digest")
    assert path.is_file()
    assert not [name for name in release.files(Project(folder), "smoke", "checkpoints") if "/sources/" in name]


def test_a_small_archive_of_released_tables_leaves_the_lock_and_gives_what_it_holds(folder: Path) -> None:
    pack(folder, "evals")
    before = (folder / lock.NAME).read_bytes()
    (folder / "dist").mkdir()
    release.pack(Project(folder), "smoke", "tables", folder / "dist/headroom-smoke.tar.gz")
    assert (folder / lock.NAME).read_bytes() == before
    assert "results/smoke/contrast/contrasts.csv" in release.for_tier(folder, "smoke", "tables").files
    taken = release.for_tier(folder, "smoke", "evals").files
    assert not [name for name in taken if name.endswith("episodes.parquet")]


def test_an_archive_that_is_none_stops_the_workflow_with_its_name(folder: Path) -> None:
    (folder / "dist").mkdir()
    (folder / "dist/headroom-smoke.tar.gz").write_text("x")
    with pytest.raises(ValueError, match=r"headroom-smoke\.tar\.gz: cannot be read"):
        release.for_tier(folder, "smoke", "evals")


def test_the_lock_keeps_other_scales_and_reads_what_it_writes(tmp_path: Path) -> None:
    from headroom.provenance.manifest import FileEntry

    entry = FileEntry(sha256="a" * 64, size=3)
    odd = "results/tiny/a folder/ünï  code.csv"
    lock.save(tmp_path, "tiny", {odd: entry})
    lock.save(tmp_path, "smoke", {"figures/smoke/a.pdf": entry})
    assert lock.load(tmp_path / lock.NAME) == {odd: entry, "figures/smoke/a.pdf": entry}
    lock.save(tmp_path, "smoke", {})
    assert list(lock.load(tmp_path / lock.NAME)) == [odd]


def test_the_commands_pack_and_unpack(folder: Path, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["release", "--scale", "smoke", "--with", "tables"])
    assert done.exit_code == 0, done.output
    assert "headroom-smoke.tar.gz" in done.stdout
    monkeypatch.chdir(clone)
    archive = str(folder / "dist/headroom-smoke.tar.gz")
    (clone / lock.NAME).unlink(missing_ok=True)
    done = runner.invoke(app, ["unpack", archive, "--only", "figures/smoke/data", "--tier", ""])
    assert done.exit_code == 0, done.output
    assert "note: results.lock lists 0 of them" in done.output
    assert "snakemake --cores 2 --config scale=smoke tier=evals" in done.output
    assert [path.name for path in clone.rglob("*.csv")] == ["gate.csv"]
    assert runner.invoke(app, ["release", "--scale", "smoke", "--with", "everything"]).exit_code == 1


def test_what_to_type_keeps_the_scale() -> None:
    assert making("tiny") == "make reproduce"
    assert making("smoke") == "make smoke"
    assert making("paper-qwen3-8b") == "snakemake --cores 2 --config scale=paper-qwen3-8b"
    assert render([Stale("figures/smoke/a.pdf", "figure a", ("style",))], "smoke").endswith("-n --config scale=smoke\n")
