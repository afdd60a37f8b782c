"""The view of a running study: how far, how long, and what the jobs say."""

from __future__ import annotations

import importlib.util
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console

SCRIPT = Path(__file__).parents[2] / "tools" / "progress.py"
LOG = """\
[Mon Nov 30 06:02:11 2026]
Finished jobid: 13 (Rule: evaluate)
28 of 38 steps (74%) done
grid-05  step 1/2  success 0.375  ETA 4 s
sft 20/60  loss 2.5\rsft 60/60  loss 0.6
"""


def view():
    spec = importlib.util.spec_from_file_location("progress_tool", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.View()


def test_the_bar_follows_snakemake_and_the_lines_follow_the_jobs() -> None:
    shown = view()
    for line in LOG.replace("\r", "\n").splitlines():
        shown.take(line)
    console = Console(width=100, file=io.StringIO())
    console.print(shown)
    text = console.file.getvalue()
    assert "28 of 38 jobs" in text
    assert "about 0 min left" in text
    assert "grid-05  step 1/2" in text
    assert "Finished jobid" not in text


def test_a_pipe_gets_every_line_as_it_is() -> None:
    done = subprocess.run([sys.executable, SCRIPT], input=LOG.encode(), capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == LOG.replace("\r", "\n").splitlines()


def test_after_a_failure_the_last_lines_stay_on_the_terminal() -> None:
    master, slave = pty.openpty()
    text = LOG + "train.sft: x: no such key\n"
    subprocess.run([sys.executable, SCRIPT], input=text.encode(), stdout=slave, check=True)
    os.close(slave)
    shown = os.read(master, 100_000).decode(errors="replace").replace("\r", "")
    os.close(master)
    assert shown.splitlines()[-1].endswith("train.sft: x: no such key")
