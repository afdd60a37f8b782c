"""A copy of the project whose jobs have all run, as stand-ins that write small files in milliseconds.

Snakemake, the rules, the resolution of settings and the closures are the real ones; only ``python -m headroom.<stage>``
is replaced, by a ``sitecustomize`` that the jobs' PYTHONPATH picks up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STAND_IN = '''
"""Stand-in for the stages: writes whatever a stage could write, then ends."""
import os, sys
from pathlib import Path

argv = sys.orig_argv
if "-m" in argv and argv[argv.index("-m") + 1].startswith("headroom."):
    output = Path(argv[argv.index("--output") + 1])
    files = ["manifest.json", "run.json", *os.environ["STAND_IN_FILES"].split()]
    if output.suffix:
        folder = output.parent.parent if output.parent.name == "data" else output.parent
        kind = "data" if output.parent.name == "data" else "draw"
        targets = [output, folder / "records" / f"{output.stem}.{kind}.run.json"]
        if kind == "draw":
            targets += [output.with_suffix(".png"), folder / "captions" / f"{output.stem}.txt"]
        others = (folder / name for name in os.environ["STAND_IN_FIGURES"].split())
        targets += [other for other in others if not other.exists()]
        if output.name == "claims.csv":
            beside = ("data/deviations.csv", "claims.html", "captions/claims.rst")
            targets += [folder / name for name in beside]
    else:
        targets = [output / name for name in files]
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{target}\\n")
    os._exit(0)
'''


class Study:
    """A finished copy of the study, and questions to ``snakemake -n`` about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snakemake(self, *options: str, scale: str = "smoke", tier: str = "scratch") -> subprocess.CompletedProcess[str]:
        """Run the real snakemake on the copy."""
        names = set(re.findall(r'"<results>/[^"]*?([\w.-]+\.(?:parquet|csv|json|txt))"', self._rules()))
        figures = set(re.findall(r'"<figures>/([^"{}]+\.\w+)"', self._rules()))
        folders = {f"{name}/file" for name in re.findall(r'directory\("<results>/[^"]*?([\w-]+)"\)', self._rules())}
        return subprocess.run(
            [sys.executable, "-m", "snakemake", "--cores", "2", *options, "--config", f"scale={scale}", f"tier={tier}"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "STAND_IN_FILES": " ".join(sorted(names | folders)),
                "STAND_IN_FIGURES": " ".join(sorted(figures)),
            },
            timeout=300,
        )

    def _rules(self) -> str:
        return "".join(path.read_text() for path in sorted((self.folder / "workflow/rules").glob("*.smk")))

    def stale(self, *options: str, scale: str = "smoke") -> set[str]:
        """Jobs that would run now: ``grpo grid-05`` or ``contrast``, without the target rule."""
        done = self.snakemake("-n", *options, scale=scale)
        assert done.returncode == 0, done.stdout + done.stderr
        text = done.stdout + done.stderr
        jobs = set()
        for block in re.split(r"\n(?=(?:local)?rule |(?:local)?checkpoint )", text):
            if match := re.match(r"(?:local)?(?:rule|checkpoint) (\w+):", block):
                wildcards = re.search(r"^    wildcards: (.*)$", block, re.MULTILINE)
                values = [part.partition("=")[2] for part in wildcards[1].split(", ")] if wildcards else []
                jobs.add(" ".join([match[1], *values]))
        assert jobs or "Nothing to be done" in text or "results are up to date" in text, text
        return jobs - {"all"}

    @contextmanager
    def edited(self, name: str, old: str = "", new: str = "") -> Iterator[None]:
        """Replace ``old`` by ``new`` in a file (append a line of comment where both are empty), then put all back."""
        path = self.folder / name
        content, times = path.read_text(), path.stat()
        assert old in content, f"{name} does not hold {old!r}"
        path.write_text(content.replace(old, new) if old else content + "\n# edited\n")
        try:
            yield
        finally:
            path.write_text(content)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory, copy_project: Callable[[Path], Path]) -> Study:
    """The smoke study, finished by stand-ins."""
    folder = copy_project(tmp_path_factory.mktemp("workflow") / "a project")
    (folder / "src" / "sitecustomize.py").write_text(STAND_IN)
    made = Study(folder)
    done = made.snakemake()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return made
