"""How long does one figure take from its CSV, beside what no figure can do without: importing seaborn, an empty plot?

    python benchmarks/redraw.py        writes benchmarks/redraw.json

Every drawing of ``figures/tiny`` is made as its rule makes it, in a process of its own and into a temporary folder; the
empty plot likewise, in the same run. Processor seconds of each, so that another job's load counts for little.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from headroom.config.workflow import load_figures
from headroom.files import write_json

PROJECT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).with_suffix(".json")
NUMBERS = PROJECT / "figures" / "tiny" / "data"
EMPTY = """
import sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import seaborn
figure, axes = plt.subplots(figsize=(7.0, 2.9))
figure.savefig(sys.argv[1] + ".pdf")
figure.savefig(sys.argv[1] + ".png", dpi=200)
"""


def cpu_seconds(command: list[str]) -> float:
    """Processor seconds of a command, its children included.

    Raises:
        subprocess.CalledProcessError: it fails.
    """
    environment = os.environ | {
        "PYTHONPATH": str(PROJECT / "src"), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(tables: Mapping[str, Path], folder: Path, rounds: int = 1) -> dict[str, object]:
    """Fastest of ``rounds`` of the empty plot and of each figure (name -> CSV), and their ratios."""
    modules = {name: figure.module for name, figure in load_figures(PROJECT).items()}
    commands = {"empty plot": [sys.executable, "-c", EMPTY, str(folder / "empty")]}
    for name, table in tables.items():
        module, output = f"headroom.present.{modules[name]}", folder / "figures" / "tiny" / f"{name}.pdf"
        commands[name] = [sys.executable, "-m", module, "draw", "--data", str(table), "--output", str(output)]
    seconds = {name: min(cpu_seconds(command) for _ in range(rounds)) for name, command in commands.items()}
    empty = seconds.pop("empty plot")
    return {
        "empty_plot_cpu_seconds": round(empty, 2),
        "figures": {
            name: {"cpu_seconds": round(value, 2), "to_empty_plot": round(value / empty, 2)}
            for name, value in sorted(seconds.items())
        },
    }


def main() -> None:
    """Measure and write the numbers."""
    drawn = {name: NUMBERS / f"{name}.csv" for name in load_figures(PROJECT) if (NUMBERS / f"{name}.csv").is_file()}
    with tempfile.TemporaryDirectory() as folder:
        found = measure(drawn, Path(folder), rounds=3)
    write_json(RESULT, found)
    print(json.dumps(found), file=sys.stdout)


if __name__ == "__main__":
    main()
