"""Copies of a small study with real records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import build

from headroom.provenance.walk import Project


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("study") / "made")


@pytest.fixture
def folder(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the small study in a folder of its own, which is the working directory: do with it what you like."""
    copy = tmp_path / "a moved stüdy"
    shutil.copytree(made_once, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def project(folder: Path) -> Callable[[], Project]:
    """A fresh look at the small study."""
    return lambda: Project(folder)
