"""Observations remembered on disk, for all jobs of a study on one machine.

The world is a function of (task, seed, actions), and the jobs of a study ask it the same questions: runs of one
training seed meet the same pages, and every policy is evaluated on the same ones. Half of the study's processor time
would go into playing them again.

What is remembered never decides a result, and is watched: of each 256 answers that could be given from memory, one is
played in the browser all the same and compared (``HEADROOM_PAGES_CHECK`` names another number; 1 plays all). The first
that differs ends the use of the memory for the job, the browser's answer stands, and the count is in the job's record
(``notes.world``), where ``headroom verify`` reports it.

One SQLite file an *identity*: the sources of this package, the version of the pages, the browser's executable. Another
browser or another driver never sees it. Deleting it costs time only; so does a damaged one, which is left aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from headroom.worlds.base import Element, History, Observation, Outcome

VARIABLE = "HEADROOM_PAGES"
"""Environment variable: the folder of the files; unset or empty, nothing is remembered on disk."""

CHECK = "HEADROOM_PAGES_CHECK"
"""Environment variable: one answer in so many is played all the same, 256 by default; 1 plays and compares all."""

ASKED_AT_ONCE = 500  # SQLite's bound on the variables of a statement is 999 in old builds
WAIT_SECONDS = 10.0
_FORMAT = 1
_VALUES = {outcome.value: outcome for outcome in Outcome}


def identity(chromium: Path, pages: Path) -> str:
    """What an observation may depend on beside its history, as 32 hex digits.

    Args:
        chromium: the browser's executable, known by its path, size and time of change; so are the pages.
        pages: folder of the task pages; what they share lies beside it.

    Raises:
        ValueError: the browser or a page is not there.
    """
    digest = hashlib.sha256(str(_FORMAT).encode())
    pages = pages.resolve()
    for path in (chromium.resolve(), *sorted(pages.glob("*.html")), *sorted(pages.parent.glob("core/*"))):
        try:
            state = path.stat()
        except OSError as error:
            raise ValueError(f"{path}: cannot be found ({error.strerror}); type: make setup") from None
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    here = Path(__file__).parent
    for path in sorted([here.parent / "base.py", *here.glob("*.py"), *here.glob("*.js")]):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def key(history: History) -> bytes:
    """16 bytes that stand for a history."""
    actions = [[a.verb, a.role, a.name, a.occurrence, a.text] for a in history.actions]
    text = json.dumps([history.task, history.seed, actions], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()[:16]


def pack(observation: Observation) -> bytes:
    """An observation as compressed JSON; :func:`unpack` is its exact inverse."""
    elements = [[e.role, e.name, e.value, e.states, e.occurrence, e.options] for e in observation.elements]
    content = [observation.utterance, elements, observation.outcome.value, observation.raw_reward, observation.done]
    return zlib.compress(json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode("ascii"), 1)


def unpack(packed: bytes) -> Observation:
    """Undo :func:`pack`.

    Raises:
        ValueError: the bytes are damaged, or are no observation.
    """
    try:
        utterance, elements, outcome, raw_reward, done = json.loads(zlib.decompress(packed))
        page = Observation(
            utterance,
            tuple(
                Element(role, name, value, _texts(states), occurrence, _texts(options))
                for role, name, value, states, occurrence, options in elements
            ),
            _VALUES[outcome],
            raw_reward,
            done,
        )
    except (zlib.error, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"a remembered observation is damaged: {error!r}") from error
    if not _typed(page):
        raise ValueError("a remembered observation is damaged: a field has another type")
    return page


def _typed(page: Observation) -> bool:
    """Whether every field has the type that a page gives it; ``True`` is no number here."""
    texts = [page.utterance, *(text for e in page.elements for text in (e.role, e.name, e.value))]
    return (
        all(type(text) is str for text in texts)
        and all(type(element.occurrence) is int for element in page.elements)
        and type(page.raw_reward) in (int, float)
        and -1 <= page.raw_reward <= 1  # false for NaN
        and type(page.done) is bool
    )


def _texts(values: object) -> tuple[str, ...]:
    if type(values) is not list or not all(type(text) is str for text in values):
        raise TypeError("not a list of texts")
    return tuple(values)


class SharedMemo:
    """Observations of other jobs, and of this one for them. Never raises: without a sound file it remembers nothing."""

    def __init__(self, folder: Path, name: str, one_in: int = 256) -> None:
        """Open ``folder/name.sqlite``, made if it is not there; ``one_in`` answers is played and compared."""
        self._one_in = one_in
        self.checked = self.mismatched = 0
        self._connection: sqlite3.Connection | None = None
        path = folder / f"{name}.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A thread of its own may ask the world; only ever one at a time does.
            self._connection = sqlite3.connect(
                path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            # A machine that fails may leave the file damaged, which costs time only; a killed process does not.
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.execute("CREATE TABLE IF NOT EXISTS pages (key BLOB PRIMARY KEY, page BLOB) WITHOUT ROWID")
        except (OSError, ValueError, sqlite3.Error):  # ValueError: a path with a NUL byte
            self.close()

    def known(self, histories: Iterable[History]) -> tuple[dict[History, Observation], dict[History, Observation]]:
        """What is remembered of some histories: answers to give, and answers to play all the same and compare."""
        answers: dict[History, Observation] = {}
        to_check: dict[History, Observation] = {}
        if self._connection is None:
            return answers, to_check
        by_key = {key(history): history for history in histories}
        keys = list(by_key)
        damaged: list[bytes] = []
        try:
            for first in range(0, len(keys), ASKED_AT_ONCE):
                some = keys[first : first + ASKED_AT_ONCE]
                marks = ",".join("?" * len(some))
                rows = self._connection.execute(f"SELECT key, page FROM pages WHERE key IN ({marks})", some)  # noqa: S608 (question marks alone)
                for found, page in rows:
                    try:
                        observation = unpack(page)
                    except ValueError:
                        damaged.append(found)
                        continue
                    (to_check if found[0] % self._one_in == 0 else answers)[by_key[found]] = observation
            if damaged:  # forgotten, so that the browser's answer takes their place
                self._connection.executemany("DELETE FROM pages WHERE key = ?", [(found,) for found in damaged])
        except sqlite3.Error:
            self.close()
            return {}, {}
        return answers, to_check

    def compare(self, remembered: Mapping[History, Observation], played: Mapping[History, Observation]) -> None:
        """Count what the browser answered to remembered histories; the memory ends where it answered otherwise."""
        for history, observation in remembered.items():
            live = played[history]
            if live.failure:
                continue
            self.checked += 1
            if live != observation:
                self.mismatched += 1
                self.close()

    def remember(self, played: Mapping[History, Observation]) -> None:
        """Keep answers of the browser; failures are never kept."""
        if self._connection is None:
            return
        rows = [(key(history), pack(page)) for history, page in played.items() if not page.failure]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR IGNORE INTO pages VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            self.close()

    def close(self) -> None:
        """Stop using the file; safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def open_shared(chromium: Path, pages: Path) -> SharedMemo | None:
    """The memory that ``HEADROOM_PAGES`` names; None where it names none.

    Raises:
        ValueError: ``HEADROOM_PAGES_CHECK`` is no number of answers, or the browser or a page is not there.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    said = os.environ.get(CHECK) or "256"
    # A part of a byte decides, so that no more than 256 can be told apart.
    if not (said.isascii() and said.isdecimal() and len(said) <= 3 and 1 <= int(said) <= 256):
        raise ValueError(f"{CHECK}={said[:40]}: one answer in how many is compared must be 1 to 256; set it so, or not")
    return SharedMemo(Path(folder), identity(chromium, pages), int(said))
