"""Content digests: sha256, streamed, so that a file of several GB costs 1 MiB of memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20


def sha256_bytes(content: bytes) -> str:
    """Hex sha256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def sha256_text(text: str) -> str:
    """Hex sha256 of the UTF-8 form of a text."""
    return sha256_bytes(text.encode("utf-8"))


def sha256_file(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """Hex sha256 of a file's content.

    Args:
        path: A readable file.
        progress: Called with the number of bytes of every chunk that was read.

    Raises:
        OSError: the file cannot be read.
    """
    state = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        buffer = memoryview(bytearray(CHUNK))
        while count := stream.readinto(buffer):
            state.update(buffer[:count])
            if progress is not None:
                progress(count)
    return state.hexdigest()
