"""How far an evaluation is and when it will end: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 10.0


class Progress:
    """Counts episodes of one label; ``advance`` is cheap and may be called often."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done, self.successes = label, total, 0, 0
        self._started = self._spoke = time.monotonic()

    def advance(self, episodes: int, successes: int) -> None:
        """Count finished episodes."""
        self.done += episodes
        self.successes += successes
        now = time.monotonic()
        if now - self._spoke >= QUIET_SECONDS or self.done >= self.total:
            self._spoke = now
            self.say(now - self._started)

    def say(self, elapsed: float) -> None:
        """Write the line."""
        left = elapsed / self.done * (self.total - self.done) if self.done else float("nan")
        share = f"{self.successes / self.done:.1%}" if self.done else "-"
        end = "\r" if sys.stderr.isatty() and self.done < self.total else "\n"
        text = f"{self.label}: {self.done}/{self.total} episodes, success {share}, {elapsed:.0f} s, {left:.0f} s left"
        sys.stderr.write(f"{text:<78}{end}")
        sys.stderr.flush()


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """A progress display for ``total`` episodes."""
    yield Progress(label, total)
