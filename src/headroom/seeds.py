"""Seeds by a stable hash of what they are for; no global random state anywhere.

``derive("grpo", run_seed, step)`` names a stream instead of consuming one: adding a use of randomness somewhere does
not shift the numbers elsewhere, and a resumed job draws what an unbroken one would have drawn.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Part = str | int | float | bool | bytes | None | tuple["Part", ...]

_ALLOWED = (str, int, float, bool, bytes, type(None), tuple)


def derive(*parts: Part) -> int:
    """Return a seed in [0, 2**63) that depends on the types, values and order of ``parts`` alone.

    The hash is SHA-256 over the length-prefixed ``repr`` of each part, so ``derive("a", "bc")`` and
    ``derive("ab", "c")`` differ, as do ``derive(1)`` and ``derive("1")``. It is the same on every machine,
    Python version and process (unlike ``hash``).

    Raises:
        TypeError: a part is not a plain value (its ``repr`` could hold an address or a library's formatting).
    """
    digest = hashlib.sha256()
    for part in parts:
        _check(part)
        text = repr(part).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "big"))
        digest.update(text)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def generator(*parts: Part) -> np.random.Generator:
    """Return a NumPy generator (Philox, counter-based) seeded by :func:`derive`."""
    import numpy as np

    return np.random.Generator(np.random.Philox(key=derive(*parts)))


def _check(part: object) -> None:
    if type(part) not in _ALLOWED:
        msg = f"a seed part must be a plain str, int, float, bool, bytes, None or tuple, not {type(part).__name__}"
        raise TypeError(msg)
    if isinstance(part, tuple):
        for inner in part:
            _check(inner)
