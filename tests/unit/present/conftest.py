"""One synthetic study for all tests here, and a degenerate one."""

from pathlib import Path

import pytest
from synthetic_study import write_study


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every table of a whole study."""
    return write_study(tmp_path_factory.mktemp("study"), seeds=4)


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of a study with one run, two pages a task and no second seed of anything."""
    return write_study(tmp_path_factory.mktemp("sparse"), seeds=2, runs=["grid-05"])


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tables of a study without any run."""
    return write_study(tmp_path_factory.mktemp("empty"), seeds=2, runs=[])
