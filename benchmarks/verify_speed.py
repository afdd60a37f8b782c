"""How fast is ``headroom verify`` at reading bytes, beside ``sha256sum`` on the same files?

    python benchmarks/verify_speed.py        writes benchmarks/verify_speed.json

A folder of files of the sizes that a study leaves (a few checkpoints, many tables) is digested by both, in turn, with
warm caches; the ratio is that of the fastest rounds, so that another job's load on the machine counts for little.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headroom.files import write_json
from headroom.provenance.cache import Hasher

SIZES = [48 << 20] * 4 + [2 << 20] * 24 + [40 << 10] * 200
ROUNDS = 5
RESULT = Path(__file__).with_suffix(".json")


def measure(folder: Path, sizes: list[int] = SIZES, rounds: int = ROUNDS) -> dict[str, float | int]:
    """Seconds of both, and their ratio.

    Raises:
        ValueError: a digest differs from that of ``sha256sum``.
    """
    generator = random.Random(7)
    paths = []
    for number, size in enumerate(sizes):
        path = folder / f"{number:04} file.bin"
        path.write_bytes(generator.randbytes(min(size, 1 << 20)) * max(1, size >> 20))
        paths.append(path)
    ours, theirs = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        done = subprocess.run(["sha256sum", *paths], capture_output=True, text=True, check=True)
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        hasher = Hasher()
        hasher.prefetch(paths)
        found = [hasher.entry(path).sha256 for path in paths]
        ours.append(time.perf_counter() - start)
        if found != [line.split()[0].lstrip("\\") for line in done.stdout.splitlines()]:
            raise ValueError("a digest differs from that of sha256sum")
    total = sum(path.stat().st_size for path in paths)
    return {
        "files": len(paths),
        "megabytes": round(total / (1 << 20), 1),
        "cores": len(os.sched_getaffinity(0)),
        "sha256sum_seconds": round(min(theirs), 4),
        "verify_seconds": round(min(ours), 4),
        "ratio": round(min(ours) / min(theirs), 3),
    }


def main() -> None:
    """Measure and write the numbers."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
    write_json(RESULT, found)
    print(json.dumps(found), file=sys.stdout)


if __name__ == "__main__":
    main()
