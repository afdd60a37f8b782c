"""The open pages of a browser, and which of them plays what.

A task has one page, and a call plays several histories on it, one after the other. A history that goes on from where
the page stands comes first and is a step; the others are played from a reset. Giving each episode a page of its own
saves those replays but costs as much again: a page that has played much runs compiled code. So there are as many pages
as tasks, up to ``tabs``; only beyond that must a page load another task, which costs tens of milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import History, Observation
from headroom.worlds.miniwob import pages
from headroom.worlds.miniwob.browser import Browser, BrowserError, RefusedCallError
from headroom.worlds.miniwob.pages import Job, Page, PageError
from headroom.worlds.miniwob.tasks import RELOAD

JOBS_PER_CALL = 16
START_SECONDS = 30.0


@dataclass(slots=True)
class WorldStatistics:
    """What the world did so far."""

    resets: int = 0
    steps: int = 0
    """Actions played on pages, replayed ones included."""
    replays: int = 0
    """Actions played again because no page stood at the right point."""
    loads: int = 0
    restarts: int = 0
    retries: int = 0
    failures: int = 0
    memo_hits: int = 0
    played: int = 0
    """Observations that a page gave, where other jobs' are shared."""
    shared_hits: int = 0
    """Answers that another job's browser gave."""
    checked: int = 0
    """Of such answers, those that were played all the same ..."""
    mismatched: int = 0
    """... and those that the browser answered otherwise."""
    cpu_seconds: float = 0.0
    """Processor time of all browsers, closed ones included."""


@dataclass(slots=True)
class _Flight:
    """A call in the air."""

    page: Page
    jobs: list[Job]
    loading: bool


class PagePool:
    """Up to ``settings.tabs`` pages of one browser that is started when needed and restarted after a fault."""

    def __init__(self, chromium: Path, folder: Path, settings: MiniWobSettings) -> None:
        self.settings = settings
        self.counts = WorldStatistics()
        self._chromium = chromium
        self._folder = folder
        self._browser: Browser | None = None
        self._begin_frame = True
        self._pages: list[Page] = []
        self._uses = 0
        self._cpu_of_closed = 0.0

    def play(self, histories: Sequence[History]) -> tuple[dict[History, Observation], dict[History, str]]:
        """One pass over distinct histories with all pages in flight.

        Returns:
            The observations, and for each history that a fault left without one the reason.
        """
        answers: dict[History, Observation] = {}
        problems: dict[History, str] = {}
        flights: dict[int, _Flight] = {}
        try:
            browser = self.started()
            waiting = self._units(histories)
            while waiting or flights:
                self._dispatch(browser, waiting, flights)
                number, answer = browser.next_answer(flights, self._patience)
                flight = flights.pop(number)
                try:
                    if flight.loading:
                        pages.loaded(answer)
                        flights[self._run(browser, flight.page, flight.jobs)] = _Flight(flight.page, flight.jobs, False)
                    else:
                        self._take(flight, answer, answers, problems)
                except PageError as error:
                    problems.update({job.history: str(error) for job in flight.jobs if job.history not in answers})
                    self._discard(browser, flight.page)
        except BrowserError as error:
            problems.update({history: str(error) for history in histories if history not in answers})
            self.restart()
        return answers, problems

    def place(self, history: History, *, boxes: bool = False) -> tuple[Page, dict[str, Any]]:
        """Play one history from a reset and leave a page there; the page and its raw result.

        Raises:
            BrowserError: a fault; the caller restarts and tries again.
        """
        browser = self.started()
        page = self._page_for(browser, history.task, set())
        assert page is not None  # no page is busy, so there is one
        if page.task != history.task or history.task in RELOAD:
            number = self._load(browser, page, history.task)
            pages.loaded(browser.next_answer([number], self._patience)[1])
        number = self._run(browser, page, [Job(history, boxes=boxes)])
        raw = pages.results(browser.next_answer([number], self._patience)[1], 1)[0]
        pages.observation(raw)
        return page, raw

    def started(self) -> Browser:
        """The running browser, started if there is none.

        Raises:
            BrowserError: it does not start.
        """
        while self._browser is None:
            self._browser = Browser(self._chromium, begin_frame=self._begin_frame)
            try:
                self._pages = [pages.open_page(self._browser, START_SECONDS)]
            except RefusedCallError:
                if not self._begin_frame:
                    raise
                self._begin_frame = False  # a full Chromium has no frame control: slower pictures, the same text
                self.close()
        return self._browser

    def restart(self) -> None:
        """Give up the browser; the next question starts another."""
        self.counts.restarts += 1
        self.close()

    def cpu_seconds(self) -> float:
        """Processor time of all browsers so far."""
        return self._cpu_of_closed + (self._browser.cpu_seconds() if self._browser else 0.0)

    def close(self) -> None:
        """End the browser; safe to call twice."""
        if self._browser is not None:
            self._browser.close()
            self._cpu_of_closed += self._browser.cpu_seconds()
        self._browser, self._pages = None, []

    # -- who plays what --------------------------------------------------------------------------------------------

    @staticmethod
    def _units(histories: Sequence[History]) -> deque[list[History]]:
        """Histories that one call plays: of one task, and one at a time where the page must be loaded for each."""
        by_task: dict[str, list[History]] = {}
        for history in histories:
            by_task.setdefault(history.task, []).append(history)
        units: deque[list[History]] = deque()
        for task, group in by_task.items():
            size = 1 if task in RELOAD else JOBS_PER_CALL
            units.extend(group[start : start + size] for start in range(0, len(group), size))
        return units

    def _dispatch(self, browser: Browser, waiting: deque[list[History]], flights: dict[int, _Flight]) -> None:
        """Put waiting units on idle pages; those that find none go on waiting."""
        for _ in range(len(waiting)):
            unit = waiting.popleft()
            task = unit[0].task
            page = self._page_for(browser, task, {id(flight.page) for flight in flights.values()})
            if page is None:
                waiting.append(unit)
                continue
            self._uses += 1
            page.last_used = self._uses
            jobs = _jobs(page, unit)
            stale = page.episodes >= (1 if task in RELOAD else pages.RECYCLE_EPISODES) and jobs[0].continues < 0
            if page.task != task or stale:
                flights[self._load(browser, page, task)] = _Flight(page, jobs, True)
            else:
                flights[self._run(browser, page, jobs)] = _Flight(page, jobs, False)

    def _page_for(self, browser: Browser, task: str, busy: set[int]) -> Page | None:
        """The page that shows a task, else a new one, else the idle one longest unused; None: wait for one."""
        for page in self._pages:
            if page.task == task:
                return None if id(page) in busy else page
        blank = next((page for page in self._pages if not page.task), None)
        if blank is None and len(self._pages) < self.settings.tabs:
            blank = pages.open_page(browser, self.settings.call_timeout_seconds)
            self._pages.append(blank)
        idle = (page for page in self._pages if id(page) not in busy)
        return blank or min(idle, key=lambda page: page.last_used, default=None)

    # -- calls -----------------------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return self.settings.call_timeout_seconds * pages.GRACE

    def _load(self, browser: Browser, page: Page, task: str) -> int:
        self.counts.loads += 1
        return pages.post_load(browser, page, task, (self._folder / f"{task}.html").as_uri())

    def _run(self, browser: Browser, page: Page, jobs: list[Job]) -> int:
        for job in jobs:
            played = len(job.history.actions) - max(0, job.continues)
            self.counts.resets += job.continues < 0
            self.counts.steps += played
            self.counts.replays += max(0, played - 1)
        return pages.post_run(browser, page, jobs, self.settings.call_timeout_seconds)

    @staticmethod
    def _take(
        flight: _Flight, answer: dict[str, Any], answers: dict[History, Observation], problems: dict[History, str]
    ) -> None:
        for job, item in zip(flight.jobs, pages.results(answer, len(flight.jobs)), strict=True):
            try:
                answers[job.history] = pages.observation(item)
            except PageError as error:
                problems[job.history] = str(error)
        failed = [job.history for job in flight.jobs if job.history not in answers]
        if failed:
            raise PageError(problems[failed[0]])
        last = flight.jobs[-1].history
        flight.page.state = None if answers[last].done else last

    def _discard(self, browser: Browser, page: Page) -> None:
        """Close a page that failed; others go on."""
        self._pages = [other for other in self._pages if other is not page]
        pages.close_page(browser, page)


def _jobs(page: Page, unit: list[History]) -> list[Job]:
    """Jobs for a unit; a history that goes on from where the page stands is played first, without a reset."""
    state = page.state
    if state is not None:
        played = len(state.actions)
        for index, history in enumerate(unit):
            ahead = len(history.actions) > played and history.actions[:played] == state.actions
            if ahead and (history.task, history.seed) == (state.task, state.seed):
                others = unit[:index] + unit[index + 1 :]
                return [Job(history, continues=played), *(Job(other) for other in others)]
    return [Job(history) for history in unit]
