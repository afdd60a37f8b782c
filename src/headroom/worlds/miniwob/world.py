"""MiniWoB++ as a world: histories in, observations out, whatever becomes of the browser meanwhile.

A batch is answered from memory where possible, and by the open pages (``pool.py``) for the rest. A history that a
fault left unanswered is asked again, up to ``tries`` times and the last time alone, so that none can fail another.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headroom.config.models import MiniWobSettings
from headroom.worlds.base import Action, Element, History, Observation, Outcome
from headroom.worlds.memo import Memo
from headroom.worlds.miniwob import pages
from headroom.worlds.miniwob.browser import BrowserError
from headroom.worlds.miniwob.chromium import find_chromium
from headroom.worlds.miniwob.pool import START_SECONDS, PagePool, WorldStatistics
from headroom.worlds.miniwob.shared import open_shared
from headroom.worlds.miniwob.tasks import EXCLUDED, TASKS, page_folder

IDLE = Action("malformed")
NO_TARGET = (Outcome.UNKNOWN_TARGET, Outcome.AMBIGUOUS)  # decided before the page is touched
VIEW_WIDTH, VIEW_HEIGHT = 160, 210  # pixels of the task's own area in the window


class MiniWob:
    """The pages of the ``miniwob`` package behind the :class:`~headroom.worlds.base.World` protocol."""

    def __init__(
        self, settings: MiniWobSettings | None = None, chromium: Path | None = None, folder: Path | None = None
    ) -> None:
        """Find a browser; it starts with the first question.

        Args:
            settings: tabs, memory, tries and time limits.
            chromium: the browser's executable; found by :func:`find_chromium` by default.
            folder: of task pages that follow MiniWoB++'s ``core.js``; the installed package's by default.

        Raises:
            ChromiumNotFound: there is no browser.
        """
        self.settings = settings or MiniWobSettings()
        self._folder = folder or page_folder()
        chromium = chromium or find_chromium()
        self._pool = PagePool(chromium, self._folder, self.settings)
        self._memo = Memo(self.settings.memo_megabytes * 1_000_000)
        self._shared = open_shared(chromium, self._folder) if self.settings.share_memory else None

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
        histories = [self._canonical(history) for history in histories]
        for history in dict.fromkeys(histories):
            known = self._known(history)
            if known is None:
                missing.append(history)
            else:
                answers[history] = known
        if missing:
            for history, observation in self._asked(missing).items():
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
            ValueError: the task is unknown.
            BrowserError: after the configured number of tries.
        """
        return self._picture(history, boxes=True)[0]

    def screenshot(self, history: History) -> bytes:
        """A PNG (160 x 210) of the task at a point of an episode. Pixels are not promised to repeat, text is.

        Raises:
            ValueError: the task is unknown.
            BrowserError: after the configured number of tries.
        """
        from PIL import Image

        out = io.BytesIO()
        with Image.open(io.BytesIO(self._picture(history, boxes=False)[1])) as image:
            image.crop((0, 0, VIEW_WIDTH, VIEW_HEIGHT)).convert("RGB").save(out, format="PNG")
        return out.getvalue()

    @property
    def statistics(self) -> WorldStatistics:
        """Counters up to now."""
        self._pool.counts.memo_hits = self._memo.hits
        self._pool.counts.cpu_seconds = self._pool.cpu_seconds()
        return self._pool.counts

    def counts(self) -> dict[str, int]:
        """How many observations came from where, if some may have come from another job's browser."""
        if self._shared is None:
            return {}
        counts = self._pool.counts
        return {
            "played": counts.played,
            "remembered": counts.shared_hits,
            "remembered_and_played": counts.checked,
            "remembered_wrongly": counts.mismatched,
        }

    def browser_processes(self) -> list[int]:
        """Process numbers of the browser, its own first, for tests that end it; starts one if none runs."""
        return self._pool.started().process_ids(START_SECONDS)

    def close(self) -> None:
        """End the browser; safe to call twice."""
        self._pool.close()
        if self._shared is not None:
            self._shared.close()

    def _check_task(self, task: str) -> None:
        if task in EXCLUDED:
            raise ValueError(f"task {task!r} is excluded: {EXCLUDED[task]}")
        if "/" in task or not (self._folder / f"{task}.html").is_file():
            raise ValueError(f"no task is called {task!r}; headroom.worlds.miniwob.tasks.TASKS lists all {len(TASKS)}")

    def _canonical(self, history: History) -> History:
        """The same point of the episode, with actions that found no target replaced by one that only lets time pass.

        They did nothing but that, whatever their text was. A policy that has broken down writes a new text each turn;
        so its episodes share their past, and the page need not play it again for each of them.
        """
        same = History(history.task, history.seed)
        for number, action in enumerate(history.actions, start=1):
            idle = action.verb == IDLE.verb
            if not idle and number < len(history.actions):
                seen = self._memo.peek(same.then(action))
                idle = seen is not None and not seen.done and seen.outcome in NO_TARGET
            same = same.then(IDLE if idle else action)
        return same

    def _known(self, history: History) -> Observation | None:
        observation = self._memo.get(history)
        if observation is None and history.actions:
            # Nothing happens after an episode's end, so the end answers for every longer history.
            parent = self._memo.get(History(history.task, history.seed, history.actions[:-1]))
            if parent is not None and parent.done:
                return parent
        return observation

    def _asked(self, histories: list[History]) -> dict[History, Observation]:
        """Answers from what other jobs saw, and from the open pages for the rest."""
        if self._shared is None:
            return self._live(histories)
        answers, doubted = self._shared.known(histories)
        self._pool.counts.shared_hits += len(answers)
        missing = [history for history in histories if history not in answers]
        if missing:
            played = self._live(missing)
            self._pool.counts.played += len(played)
            self._shared.compare(doubted, played)
            self._shared.remember({history: page for history, page in played.items() if history not in doubted})
            self._pool.counts.checked, self._pool.counts.mismatched = self._shared.checked, self._shared.mismatched
            answers |= played
        return answers

    def _live(self, histories: list[History]) -> dict[History, Observation]:
        answers, problems = self._pool.play(histories)
        counts = self._pool.counts
        for attempt in range(2, self.settings.tries + 1):
            missing = [history for history in histories if history not in answers]
            counts.retries += len(missing)
            # The last try is alone, so that a history that fells the browser fells no other.
            batches = [missing] if attempt < self.settings.tries else [[history] for history in missing]
            for batch in filter(None, batches):
                more, reasons = self._pool.play(batch)
                answers.update(more)
                problems.update(reasons)
        for history in histories:
            if history not in answers:
                counts.failures += 1
                failure = f"{problems[history]}; {self.settings.tries} tries"
                answers[history] = Observation("", (), done=True, failure=failure)
        return answers

    def _picture(
        self, history: History, *, boxes: bool
    ) -> tuple[tuple[tuple[Element, float, float, float, float], ...], bytes]:
        """The boxes, or the window's PNG, at a point of an episode."""
        self._check_task(history.task)
        for left in reversed(range(self.settings.tries)):
            try:
                page, raw = self._pool.place(history, boxes=boxes)
                if boxes:
                    return pages.boxes(raw), b""
                return (), pages.screenshot(self._pool.started(), page, self.settings.call_timeout_seconds)
            except BrowserError:
                self._pool.restart()
                if left == 0:
                    raise
        raise AssertionError("tries is positive")
