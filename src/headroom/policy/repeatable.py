"""Equal inputs give equal bytes: the settings of torch that every stage with a model begins with."""

from __future__ import annotations

import torch


def repeatable() -> None:
    """One thread (two jobs side by side beat two threads), and an error where an operation could differ between runs.

    ``torch.use_deterministic_algorithms(True)`` sets the same switch, and imports torch's compiler for it: more than a
    second of processor time in each of some eighty jobs.
    """
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
