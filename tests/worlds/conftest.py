"""Small task pages, written by the tests, that run through the same scripts as the benchmark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.miniwob.chromium import ChromiumNotFound, find_chromium
from headroom.worlds.miniwob.tasks import page_folder
from headroom.worlds.miniwob.world import MiniWob

TEMPLATE = """<!DOCTYPE html><html><head>
<link rel="stylesheet" href="{core}/core.css"><script src="{core}/core.js"></script>
<script>
var log = [];
var note = function (text) {{ log.push(text); document.getElementById('log').textContent = log.join(' '); }};
var genProblem = function () {{ log = []; {problem} }};
window.onload = function () {{ core.startEpisode(); }};
</script></head>
<body><div id="wrap"><div id="query">Do it.</div><div id="area">{area}<p id="log"></p></div></div></body></html>"""


@pytest.fixture(scope="session", autouse=True)
def _chromium() -> None:
    try:
        find_chromium()
    except ChromiumNotFound as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="session")
def write_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """Write a page ``name`` with the body ``area`` and the script ``problem`` at each reset; returns the folder."""
    folder = tmp_path_factory.mktemp("pages")
    core = (page_folder().parent / "core").as_uri()

    def write(name: str, area: str, problem: str = "") -> Path:
        (folder / f"{name}.html").write_text(TEMPLATE.format(core=core, area=area, problem=problem))
        return folder

    return write


@pytest.fixture(scope="module")
def world() -> Iterator[MiniWob]:
    """The benchmark's pages, without memory, so that every question reaches the browser."""
    with MiniWob(MiniWobSettings(memo_megabytes=0)) as opened:
        yield opened


class Stage:
    """One page and the actions on it."""

    def __init__(self, world: MiniWob, task: str) -> None:
        self.world = world
        self.history = History(task, 1)

    def look(self) -> Observation:
        return self.world.observe([self.history])[0]

    def act(self, action: Action) -> Observation:
        self.history = self.history.then(action)
        return self.look()


@pytest.fixture(scope="session")
def hand_made(write_page: Callable[[str, str, str], Path]) -> Iterator[MiniWob]:
    """A world over the pages that tests write."""
    with MiniWob(MiniWobSettings(memo_megabytes=0, tabs=1), folder=write_page("empty", "", "")) as opened:
        yield opened


@pytest.fixture
def stage(write_page: Callable[[str, str, str], Path], hand_made: MiniWob) -> Callable[[str, str], Stage]:
    """Open a hand-made page: ``stage(area, problem)``."""

    def open_stage(area: str, problem: str = "") -> Stage:
        name = f"page{abs(hash((area, problem)))}"
        write_page(name, area, problem)
        return Stage(hand_made, name)

    return open_stage
