"""ALFWorld's engine, where it is installed; no browser is needed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import package
from headroom.worlds.alfworld.world import AlfWorld


@pytest.fixture(scope="session", autouse=True)
def _chromium() -> None:
    """In place of the other worlds' browser."""


@pytest.fixture(scope="session")
def engine_here() -> None:
    """Skip without the engine."""
    try:
        package.check_installed()
    except package.EngineMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def world(engine_here: None) -> Iterator[AlfWorld]:
    """Generated scenes, without memory, so that every question is played."""
    with AlfWorld(AlfWorldSettings(memo_megabytes=0)) as opened:
        yield opened
