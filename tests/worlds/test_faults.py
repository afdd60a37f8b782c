"""A browser that dies, hangs or meets a broken page costs time, never an answer and never another's answer."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, History, Observation
from headroom.worlds.miniwob.browser import Browser, BrowserError, BrowserGoneError
from headroom.worlds.miniwob.world import MiniWob

pytestmark = pytest.mark.browser

Write = Callable[[str, str, str], Path]
HISTORIES = [
    History(task, seed, (Action("malformed"),))
    for task in ("click-test", "click-link", "choose-date", "email-inbox")
    for seed in range(12)
]


@pytest.fixture(scope="module")
def expected() -> list[Observation]:
    with MiniWob(MiniWobSettings(memo_megabytes=0)) as world:
        return world.observe(HISTORIES)


@pytest.fixture
def impatient() -> Iterator[MiniWob]:
    with MiniWob(MiniWobSettings(memo_megabytes=0, call_timeout_seconds=3)) as world:
        yield world


@pytest.mark.parametrize("which", [0, -1], ids=["the browser", "a child"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_felled_browser_is_replaced_and_every_episode_replayed(
    impatient: MiniWob, expected: list[Observation], blow: signal.Signals, which: int
) -> None:
    if which == -1 and blow is signal.SIGSTOP:
        pytest.skip("which child hangs decides what is seen")
    victim = impatient.browser_processes()[which]
    posted = 0
    post = Browser.post

    def post_and_strike(self: Browser, *arguments: object, **named: object) -> int:
        nonlocal posted
        posted += 1
        number = post(self, *arguments, **named)  # type: ignore[arg-type]
        if posted == 12:  # in the middle of the batch, whatever the machine's speed
            os.kill(victim, blow)
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Browser, "post", post_and_strike)
        got = impatient.observe(HISTORIES)
    assert posted >= 12
    assert got == expected
    if which == 0:
        assert impatient.statistics.restarts >= 1
    assert impatient.statistics.failures == 0


def test_a_page_that_never_returns_fails_alone_after_its_tries(write_page: Write) -> None:
    write_page("good", "<button>Go</button>", "")
    folder = write_page("endless", "<button onclick='while (true) {}'>Go</button>", "")
    go = (Action("click", "button", "Go"),)
    settings = MiniWobSettings(memo_megabytes=0, call_timeout_seconds=2, tries=2)
    with MiniWob(settings, folder=folder) as world:
        bad, *good = world.observe([History("endless", 1, go), *(History("good", seed, go) for seed in range(8))])
        assert bad.failure
        assert bad.done
        assert bad.raw_reward == 0.0
        assert [seen.failure for seen in good] == [""] * 8
        assert world.statistics.failures == 1
        # The page itself is not at fault before the click.
        assert world.observe([History("endless", 1)])[0].failure == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("throws", "throw new Error('no problem today');"),
        ("loops", "while (true) {}"),
        ("forgets", "delete window.core; core = undefined;"),
        ("navigates", "location.href = 'about:blank';"),
        ("pays-nonsense", "window.WOB_DONE_GLOBAL = 1; core.getUtterance = function () { return {}.x.y; };"),
    ],
)
def test_a_broken_page_is_a_failure_with_a_reason_and_is_not_remembered(
    write_page: Write, name: str, problem: str
) -> None:
    folder = write_page(name, "", problem)
    with MiniWob(MiniWobSettings(call_timeout_seconds=2, tries=2), folder=folder) as world:
        seen = world.observe([History(name, 1)])[0]
        assert seen.failure
        assert seen.done
        before = world.statistics.resets
        world.observe([History(name, 1)])
        assert world.statistics.resets > before


def test_a_timer_that_throws_or_rearms_itself_for_ever_is_no_failure(write_page: Write) -> None:
    again = "(function again() { setTimeout(again, 0); })(); setInterval(function () { throw 1; }, 10);"
    folder = write_page("busy", "<button>Go</button>", again)
    with MiniWob(MiniWobSettings(), folder=folder) as world:
        assert world.observe([History("busy", 1, (Action("click", "button", "Go"),))])[0].failure == ""


def test_an_executable_that_is_no_browser_gives_failures_not_exceptions() -> None:
    with MiniWob(MiniWobSettings(tries=2, call_timeout_seconds=1), chromium=Path("/bin/true")) as world:
        assert all(seen.failure for seen in world.observe(HISTORIES[:3]))
        with pytest.raises(BrowserError):
            world.screenshot(HISTORIES[0])
    with pytest.raises(BrowserGoneError, match="does not start"):
        Browser(Path("/nonexistent/chromium"))


def test_closing_ends_all_processes_and_removes_the_profile() -> None:
    world = MiniWob()
    world.reset("click-test", 1)
    processes = world.browser_processes()
    profile = Path(world._pool._browser._profile)  # type: ignore[union-attr]
    assert profile.exists()
    world.close()
    world.close()
    assert not profile.exists()
    gone = threading.Event()
    for _ in range(100):
        if not any(_runs(number) for number in processes):
            gone.set()
            break
        threading.Event().wait(0.05)
    assert gone.is_set()


def test_a_closed_world_opens_again_when_asked() -> None:
    with MiniWob(MiniWobSettings(memo_megabytes=0)) as world:
        first = world.reset("click-link", 4)
        world.close()
        assert world.reset("click-link", 4) == first


def _runs(number: int) -> bool:
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
