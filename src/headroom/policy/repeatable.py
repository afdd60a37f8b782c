"""Equal inputs give equal bytes: the settings of torch that every stage with a model begins with."""

from __future__ import annotations

import os

import torch


def repeatable() -> None:
    """One thread (two jobs side by side beat two threads), and an error where an operation could differ between runs.

    ``torch.use_deterministic_algorithms(True)`` sets the same switch, and imports torch's compiler for it: more than a
    second of processor time in each of some eighty jobs.

    A GPU has no deterministic kernel for some of what a policy needs (a cumulative sum, the backward pass of masked
    attention): there they warn instead, and equal bytes are promised on processors only.
    """
    torch.set_num_threads(1)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it no matrix product of a GPU is repeatable
    torch.set_deterministic_debug_mode("warn" if torch.cuda.is_available() else "error")
