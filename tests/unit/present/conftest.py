"""One synthetic study for all tests here, and a degenerate one."""

from pathlib import Path

import pytest
from synthetic_dark_room import write_dark_room
from synthetic_study import write_study


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every table of a whole study."""
    return write_study(tmp_path_factory.mktemp("study"), seeds=4) | write_dark_room(tmp_path_factory.mktemp("arms"))


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of a study with one run, two pages a task and no second seed of anything."""
    folder = tmp_path_factory.mktemp("sparse")
    return write_study(folder, seeds=2, runs=["grid-05"]) | write_dark_room(folder / "arms", runs=1)


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of a study without any run."""
    folder = tmp_path_factory.mktemp("empty")
    return write_study(folder, seeds=2, runs=[]) | write_dark_room(folder / "arms", runs=0)
