"""MiniWoB++ as a world: histories in, observations out, whatever becomes of the browser meanwhile.

A batch is answered from memory where possible; the rest is grouped by task, so that one call plays several episodes
on the page that already shows their task, and the calls of all pages are in flight together. A history that a fault
left unanswered is then asked again alone, up to ``tries`` times, so that no history can fail another.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headroom.config.models import WorldSettings
from headroom.worlds.base import Element, History, Observation
from headroom.worlds.miniwob import pages
from headroom.worlds.miniwob.browser import Browser, BrowserError, RefusedCallError
from headroom.worlds.miniwob.chromium import find_chromium
from headroom.worlds.miniwob.memo import Memo
from headroom.worlds.miniwob.pages import Job, Page, PageError
from headroom.worlds.miniwob.tasks import EXCLUDED, RELOAD, TASKS, page_folder

JOBS_PER_CALL = 16
VIEW_WIDTH, VIEW_HEIGHT = 160, 210  # pixels of the task's own area in the window
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
    cpu_seconds: float = 0.0
    """Processor time of all browsers, closed ones included."""


@dataclass(slots=True)
class _Flight:
    """A call in the air."""

    page: Page
    jobs: list[Job]
    loading: bool


class MiniWob:
    """The pages of the ``miniwob`` package behind the :class:`~headroom.worlds.base.World` protocol."""

    def __init__(
        self, settings: WorldSettings | None = None, chromium: Path | None = None, folder: Path | None = None
    ) -> None:
        """Find a browser; it starts with the first question.

        Args:
            settings: tabs, memory, tries and time limits.
            chromium: the browser's executable; found by :func:`find_chromium` by default.
            folder: of task pages that follow MiniWoB++'s ``core.js``; the installed package's by default.

        Raises:
            ChromiumNotFound: there is no browser.
        """
        self.settings = settings or WorldSettings()
        self._chromium = chromium or find_chromium()
        self._folder = folder or page_folder()
        self._browser: Browser | None = None
        self._begin_frame = True
        self._pages: list[Page] = []
        self._uses = 0
        self._memo = Memo(self.settings.memo_megabytes * 1_000_000)
        self._cpu_of_closed = 0.0
        self._counts = WorldStatistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- questions -------------------------------------------------------------------------------------------------

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        """The observation at the end of each history, in order; see :class:`~headroom.worlds.base.World`.

        Raises:
            ValueError: a task name is unknown.
        """
        for history in histories:
            self._check_task(history.task)
        answers: dict[History, Observation] = {}
        missing: list[History] = []
        for history in dict.fromkeys(histories):
            known = self._known(history)
            if known is None:
                missing.append(history)
            else:
                answers[history] = known
        if missing:
            for history, observation in self._live(missing).items():
                answers[history] = observation
                self._memo.put(history, observation)
        return [answers[history] for history in histories]

    def reset(self, task: str, seed: int) -> Observation:
        """The first page of an episode."""
        return self.observe([History(task, seed)])[0]

    def step(self, histories: Sequence[History]) -> list[Observation]:
        """Observations one action later: :meth:`observe` under the name an agent's loop reads better with."""
        return self.observe(histories)

    def boxes(self, history: History) -> tuple[tuple[Element, float, float, float, float], ...]:
        """The elements at a point of an episode with their boxes (left, top, width, height; CSS pixels).

        Raises:
            BrowserError: after the configured number of tries.
        """
        return pages.boxes(self._alone(history, boxes=True)[1])

    def screenshot(self, history: History) -> bytes:
        """A PNG (160 x 210) of the task at a point of an episode. Pixels are not promised to repeat, text is.

        Raises:
            BrowserError: after the configured number of tries.
        """
        from PIL import Image

        for attempt in range(self.settings.tries):
            try:
                page, _ = self._alone(history)
                picture = pages.screenshot(self._started(), page, self.settings.call_timeout_seconds)
                break
            except BrowserError:
                self._restart()
                if attempt + 1 == self.settings.tries:
                    raise
        out = io.BytesIO()
        with Image.open(io.BytesIO(picture)) as image:
            image.crop((0, 0, VIEW_WIDTH, VIEW_HEIGHT)).convert("RGB").save(out, format="PNG")
        return out.getvalue()

    @property
    def statistics(self) -> WorldStatistics:
        """Counters up to now."""
        self._counts.memo_hits = self._memo.hits
        self._counts.cpu_seconds = self._cpu_of_closed + (self._browser.cpu_seconds() if self._browser else 0.0)
        return self._counts

    def browser_processes(self) -> list[int]:
        """Process numbers of the browser, its own first, for tests that end it; starts one if none runs."""
        return self._started().process_ids(START_SECONDS)

    def close(self) -> None:
        """End the browser; safe to call twice."""
        if self._browser is not None:
            self._browser.close()
            self._cpu_of_closed += self._browser.cpu_seconds()
        self._browser, self._pages = None, []

    def _check_task(self, task: str) -> None:
        if task in EXCLUDED:
            raise ValueError(f"task {task!r} is excluded: {EXCLUDED[task]}")
        if not (self._folder / f"{task}.html").is_file():
            raise ValueError(f"no task is called {task!r}; headroom.worlds.miniwob.tasks.TASKS lists all {len(TASKS)}")

    # -- memory ----------------------------------------------------------------------------------------------------

    def _known(self, history: History) -> Observation | None:
        observation = self._memo.get(history)
        if observation is None and history.actions:
            # Nothing happens after an episode's end, so the end answers for every longer history.
            parent = self._memo.get(History(history.task, history.seed, history.actions[:-1]))
            if parent is not None and parent.done:
                return parent
        return observation

    # -- playing ---------------------------------------------------------------------------------------------------

    def _live(self, histories: list[History]) -> dict[History, Observation]:
        problems: dict[History, str] = {}
        answers = self._together(histories, problems)
        for attempt in range(2, self.settings.tries + 1):
            missing = [history for history in histories if history not in answers]
            self._counts.retries += len(missing)
            # The last try is alone, so that a history that fells the browser fells no other.
            batches = [missing] if attempt < self.settings.tries else [[history] for history in missing]
            for batch in batches:
                answers.update(self._together(batch, problems))
        for history in histories:
            if history not in answers:
                self._counts.failures += 1
                reason = problems.get(history, "the browser failed")
                answers[history] = Observation("", (), done=True, failure=f"{reason}; {self.settings.tries} tries")
        return answers

    def _together(self, histories: list[History], problems: dict[History, str]) -> dict[History, Observation]:
        """One pass over the histories with all pages in flight; what a fault leaves unanswered is missing."""
        answers: dict[History, Observation] = {}
        waiting = self._units(histories)
        flights: dict[int, _Flight] = {}
        try:
            browser = self._started()
            while waiting or flights:
                self._dispatch(browser, waiting, flights)
                limit = self.settings.call_timeout_seconds * pages.GRACE
                number, answer = browser.next_answer(flights, limit)
                flight = flights.pop(number)
                try:
                    if flight.loading:
                        pages.loaded(answer)
                        flights[self._run(browser, flight.page, flight.jobs)] = _Flight(flight.page, flight.jobs, False)
                    else:
                        self._take(flight, answer, answers, problems)
                except PageError as failure:
                    problems.update(dict.fromkeys((job.history for job in flight.jobs), str(failure)))
                    self._discard(browser, flight.page)
        except BrowserError as failure:
            problems.update({history: str(failure) for history in histories if history not in answers})
            self._restart()
        return answers

    def _units(self, histories: list[History]) -> deque[list[History]]:
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
        """Give waiting units to idle pages: the page that shows their task, else a new one, else the idlest."""
        for _ in range(len(waiting)):
            unit = waiting.popleft()
            busy = {id(flight.page) for flight in flights.values()}
            page = self._page_for(browser, unit[0].task, busy)
            if page is None:
                waiting.append(unit)
                continue
            jobs = self._jobs(page, unit)
            self._uses += 1
            page.last_used = self._uses
            stale = page.episodes > 0 and unit[0].task in RELOAD and jobs[0].continues < 0
            if page.task != unit[0].task or stale or page.episodes >= pages.RECYCLE_EPISODES:
                jobs = [Job(history) for history in unit]
                flights[self._load(browser, page, unit[0].task)] = _Flight(page, jobs, True)
            else:
                flights[self._run(browser, page, jobs)] = _Flight(page, jobs, False)

    def _page_for(self, browser: Browser, task: str, busy: set[int]) -> Page | None:
        showing = [page for page in self._pages if page.task == task]
        if showing:
            return next((page for page in showing if id(page) not in busy), None)
        if len(self._pages) < self.settings.tabs:
            self._pages.append(pages.open_page(browser, self.settings.call_timeout_seconds))
            return self._pages[-1]
        idle = [page for page in self._pages if id(page) not in busy]
        return min(idle, key=lambda page: page.last_used, default=None)

    @staticmethod
    def _jobs(page: Page, unit: list[History]) -> list[Job]:
        """Jobs for a unit; a history that goes on from where the page stands is played first, without a reset."""
        state = page.state
        if state is not None and page.task == state.task:
            for index, history in enumerate(unit):
                played = len(state.actions)
                same = history.seed == state.seed and len(history.actions) >= played
                if same and history.actions[:played] == state.actions and len(history.actions) > played:
                    rest = [Job(other) for position, other in enumerate(unit) if position != index]
                    return [Job(history, continues=played), *rest]
        return [Job(history) for history in unit]

    def _run(self, browser: Browser, page: Page, jobs: list[Job]) -> int:
        for job in jobs:
            played = len(job.history.actions) - max(0, job.continues)
            self._counts.resets += job.continues < 0
            self._counts.steps += played
            self._counts.replays += max(0, played - 1)
        return pages.post_run(browser, page, jobs, self.settings.call_timeout_seconds)

    def _load(self, browser: Browser, page: Page, task: str) -> int:
        self._counts.loads += 1
        return pages.post_load(browser, page, task, (self._folder / f"{task}.html").as_uri())

    def _take(
        self, flight: _Flight, answer: dict[str, Any], answers: dict[History, Observation], problems: dict[History, str]
    ) -> None:
        raw = pages.results(answer, len(flight.jobs))
        for job, item in zip(flight.jobs, raw, strict=True):
            try:
                answers[job.history] = pages.observation(item)
            except PageError as failure:
                problems[job.history] = str(failure)
        last = flight.jobs[-1].history
        if len(raw) != sum("error" not in item for item in raw):
            raise PageError(problems.get(last, "the page failed"))
        flight.page.state = None if answers[last].done else last

    def _alone(self, history: History, *, boxes: bool = False) -> tuple[Page, dict[str, Any]]:
        """Play one history on a page and leave the page there.

        Raises:
            BrowserError: the last try's.
        """
        self._check_task(history.task)
        for attempt in range(self.settings.tries):
            try:
                browser = self._started()
                page = self._page_for(browser, history.task, set())
                assert page is not None
                limit = self.settings.call_timeout_seconds * pages.GRACE
                if page.task != history.task or history.task in RELOAD:
                    number = self._load(browser, page, history.task)
                    pages.loaded(browser.next_answer([number], limit)[1])
                number = self._run(browser, page, [Job(history, boxes=boxes)])
                raw = pages.results(browser.next_answer([number], limit)[1], 1)[0]
                pages.observation(raw)
                return page, raw
            except BrowserError:
                self._restart()
                if attempt + 1 == self.settings.tries:
                    raise
        raise AssertionError

    # -- the browser -----------------------------------------------------------------------------------------------

    def _started(self) -> Browser:
        if self._browser is None:
            browser = Browser(self._chromium, begin_frame=self._begin_frame)
            self._browser = browser
            if self._begin_frame:
                try:
                    self._pages = [pages.open_page(browser, START_SECONDS)]
                except RefusedCallError:
                    # A full Chromium has no frame control: slower pictures, the same text.
                    self._begin_frame = False
                    self.close()
                    return self._started()
        return self._browser

    def _restart(self) -> None:
        self._counts.restarts += 1
        self.close()

    def _discard(self, browser: Browser, page: Page) -> None:
        """Close a page that failed; others go on."""
        self._pages = [other for other in self._pages if other is not page]
        pages.close_page(browser, page)
