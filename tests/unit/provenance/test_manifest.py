"""Digests and manifests: content only, in one order, every byte of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.provenance import manifest
from headroom.provenance.digest import CHUNK, sha256_bytes, sha256_file


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_streamed_digest_equals_the_digest_of_the_whole(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    path = tmp_path / "file"
    path.write_bytes(content[:size])
    counted: list[int] = []
    assert sha256_file(path, counted.append) == hashlib.sha256(content[:size]).hexdigest()
    assert sum(counted) == size


names = st.text(st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..", manifest.MANIFEST, manifest.RECORD) and len(name.encode()) < 200
)


@given(st.dictionaries(names, st.binary(max_size=50), min_size=1, max_size=6), st.randoms())
def test_a_manifest_does_not_depend_on_order_names_or_times(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], random
) -> None:
    texts = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("m")
        shuffled = list(files)
        random.shuffle(shuffled)
        for name in shuffled:
            (folder / "sub é").mkdir(exist_ok=True)
            (folder / "sub é" / name).write_bytes(files[name])
            os.utime(folder / "sub é" / name, (random.random() * 1e9, random.random() * 1e9))
        built = manifest.build(folder)
        assert {item.sha256 for item in built.values()} == {sha256_bytes(content) for content in files.values()}
        texts.append(manifest.dump(built))
        (folder / manifest.MANIFEST).write_text(texts[-1], encoding="utf-8")
        assert manifest.load(folder / manifest.MANIFEST) == built == manifest.build(folder)
    assert texts[0] == texts[1]


def test_differences_tell_missing_undeclared_and_changed_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    before = manifest.build(tmp_path)
    (tmp_path / "a").unlink()
    (tmp_path / "b").write_text("B")
    (tmp_path / "d").write_text("d")
    after = manifest.build(tmp_path)
    assert manifest.differences(before, after) == ["missing: a", "undeclared: d", "changed: b"]
    assert manifest.differences(before, before) == []


def test_the_mark_that_snakemake_leaves_in_a_folder_is_no_part_of_the_result(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "weights").write_text("w")
    before = manifest.build(tmp_path)
    (tmp_path / "checkpoint" / ".snakemake_timestamp").touch()
    assert manifest.build(tmp_path) == before


def test_a_symbolic_link_in_a_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match="symbolic links"):
        manifest.build(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"sha256": "x", "size": 1}}', "\xff"])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / manifest.MANIFEST
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"manifest\.json: not a manifest"):
        manifest.load(path)
