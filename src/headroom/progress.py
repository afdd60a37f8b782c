"""One progress line for every long job: a live bar on a terminal, a line every ten seconds in a log file."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LOG_SECONDS = 10.0
"""Between two lines when the output is not a terminal."""


class Progress:
    """Shows ``label``, how much of ``total`` is done, the time left and a short text.

    The time left is extrapolated from the work done since the start, so work that a resumed job finds finished
    (``start``) does not count. Everything goes to standard error; the result of a job never depends on it.
    """

    def __init__(self, label: str, total: int, *, start: int = 0) -> None:
        self.label, self.total, self.start = label, total, start
        self._began = self._printed = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._began = self._printed = time.monotonic()
        if sys.stderr.isatty():
            from rich import progress as rich
            from rich.console import Console

            self._bar = rich.Progress(
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.MofNCompleteColumn(),
                rich.TimeRemainingColumn(),
                rich.TextColumn("{task.fields[text]}", markup=False),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.label, total=self.total, completed=self.start, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, text: str = "") -> None:
        """Say that ``done`` of ``total`` is finished; cheap enough for every step."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, text=text)
            return
        now = time.monotonic()
        if now - self._printed >= LOG_SECONDS or done >= self.total:
            self._printed = now
            print(line(self.label, done, self.total, self.start, now - self._began, text), file=sys.stderr, flush=True)


def line(label: str, done: int, total: int, start: int, seconds: float, text: str) -> str:
    """The line of a log file: ``sft 120/400  loss 0.31  1:10 left``."""
    fresh = done - start
    left = f"{_clock(seconds * (total - done) / fresh)} left" if fresh > 0 and done < total else ""
    took = f"{_clock(seconds)} in all" if done >= total else ""
    return "  ".join(part for part in (f"{label} {done}/{total}", text, left, took) if part)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
