"""Show how far the study is: ``snakemake ... 2>&1 | python tools/progress.py``.

On a terminal: one bar with the time left, and under it the last lines that the running jobs have written (step,
success, ETA). Elsewhere every line passes as it is. Whole logs are in results/<scale>/logs/ in either case.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import deque

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

STEPS = re.compile(r"^(\d+) of (\d+) steps \(\d+%\) done$")
NOISE = re.compile(
    r"^(\[\w{3} \w{3} +\d+ [\d:]+ \d{4}\]|Finished jobid: .*|Select jobs to execute.*|Execute \d+ jobs.*|\s*)$"
)
KEPT = 200
SHOWN = 8


class View:
    """What the terminal shows, from the lines so far."""

    def __init__(self) -> None:
        self.done, self.total = 0, 0
        self.last: deque[str] = deque(maxlen=KEPT)
        self.started = time.monotonic()

    def take(self, line: str) -> None:
        """Read one line of snakemake or of a job."""
        if steps := STEPS.match(line):
            self.done, self.total = int(steps[1]), int(steps[2])
        elif not NOISE.match(line):
            self.last.append(line)

    def left(self) -> str:
        """Time gone and time left, from the share of jobs that have ended."""
        gone = time.monotonic() - self.started
        text = f"{gone / 60:.0f} min gone"
        if self.done:
            text += f", about {gone / self.done * (self.total - self.done) / 60:.0f} min left"
        return text

    def __rich__(self) -> Group:
        bar = ProgressBar(total=max(self.total, 1), completed=self.done, width=40)
        head = Text(f"{self.done} of {self.total or '?'} jobs, {self.left()}", style="bold")
        tail = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in list(self.last)[-SHOWN:]]
        first = Table.grid(padding=(0, 2))
        first.add_row(bar, head)
        return Group(first, *tail)


def main() -> None:
    """Read standard input to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # snakemake ends its jobs first; this shows it to the end
    stream = open(sys.stdin.fileno(), encoding="utf-8", errors="replace", newline="")  # noqa: PTH123, SIM115
    lines = (part for line in stream for part in re.split(r"[\r\n]", line) if part)
    console = Console(stderr=False)
    if not console.is_terminal:
        for line in lines:
            print(line, flush=True)
        return
    view = View()
    with Live(view, console=console, refresh_per_second=4, transient=True):
        for line in lines:
            view.take(line)
    if view.done < view.total or not view.total:
        console.print("\n".join(list(view.last)[-40:]), highlight=False, markup=False)


if __name__ == "__main__":
    main()
