"""Digests of many files at disk speed, each file read once, several at a time, with an optional memory on disk.

The memory trusts a file whose size, times of change and inode are what they were; the time of the last *status* change
cannot be set by a user, so restoring ``mtime`` after an edit does not deceive it. A file that changed within the last
two seconds is never remembered: another write could fall into the same tick of the clock.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from headroom.files import write_text
from headroom.progress import Progress
from headroom.provenance.digest import sha256_file
from headroom.provenance.manifest import FileEntry

NAME = ".digests.json"
SHOW_ABOVE = 256 << 20
"""Bytes to read from which on a progress bar is shown."""
SETTLED_SECONDS = 2.0

Key = tuple[int, int, int, int]


def _key(path: Path) -> Key:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


class Hasher:
    """Digests of files: each read once in the life of this object.

    Args:
        memory: File that remembers digests between runs; None reads every byte again.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory = memory
        self.read_bytes = 0
        self._lock = threading.Lock()
        self._known: dict[Path, FileEntry] = {}
        self._remembered: dict[str, list[object]] = _load(memory) if memory else {}
        self._changed = False

    def entry(self, path: Path) -> FileEntry:
        """Digest and size of one file.

        Raises:
            OSError: it cannot be read.
        """
        with self._lock:
            if path in self._known:
                return self._known[path]
        key = _key(path)
        remembered = self._remembered.get(str(path))
        if remembered is not None and tuple(remembered[:4]) == key:
            found = FileEntry(sha256=str(remembered[4]), size=key[0])
        else:
            found = FileEntry(sha256=sha256_file(path, self._count), size=path.stat().st_size)
            if self.memory is not None and time.time() - max(key[1], key[2]) / 1e9 > SETTLED_SECONDS:
                with self._lock:
                    self._remembered[str(path)] = [*key, found.sha256]
                    self._changed = True
        with self._lock:
            self._known[path] = found
        return found

    def prefetch(self, paths: Iterable[Path]) -> None:
        """Digest many files, the large ones first; what cannot be read is left for ``entry`` to report."""
        sizes = {}
        for path in set(paths) - self._known.keys():
            try:
                sizes[path] = path.stat().st_size
            except OSError:
                continue
        order = sorted(sizes, key=lambda path: (-sizes[path], path))
        total = sum(sizes.values())
        workers = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            work = [pool.submit(self._try, path) for path in order]
            if total > SHOW_ABOVE:
                self._show(total, work)
        self._save()

    def _show(self, total: int, work: Sequence[Future[None]]) -> None:
        start = self.read_bytes
        with Progress("hashing, MB", total >> 20) as bar:
            while not all(item.done() for item in work):
                bar.update(min(self.read_bytes - start, total - (1 << 20)) >> 20)
                time.sleep(0.1)
            bar.update(total >> 20)

    def _try(self, path: Path) -> None:
        try:
            self.entry(path)
        except OSError:
            return

    def _count(self, count: int) -> None:
        with self._lock:
            self.read_bytes += count

    def _save(self) -> None:
        if self.memory is None or not self._changed or not self.memory.parent.is_dir():
            return
        try:
            write_text(self.memory, json.dumps(self._remembered, sort_keys=True, ensure_ascii=True) + "\n")
        except OSError:  # a read-only disk: the next run reads again
            return
        self._changed = False


def _load(memory: Path) -> dict[str, list[object]]:
    """What is remembered; nothing when the file is missing or damaged."""
    try:
        content = json.loads(memory.read_bytes())
        return {str(path): list(value) for path, value in content.items() if len(value) == 5}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
