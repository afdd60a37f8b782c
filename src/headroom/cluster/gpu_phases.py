"""Seconds and peak memory by phase, as ``make gpu-check`` prints and writes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Phases:
    """The table: one row a phase, with wall seconds and the peaks of the allocator (none on a processor)."""

    on_gpu: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure one phase; the GPU has finished it when it ends."""
        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        yield
        if self.on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        allocated = torch.cuda.max_memory_allocated() if self.on_gpu else None
        reserved = torch.cuda.max_memory_reserved() if self.on_gpu else None
        self.rows.append(
            {"phase": name, "seconds": seconds, "peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved}
        )
        held = f"{allocated / 2**30:>7.1f} GiB" if allocated is not None else ""
        print(f"{name:<12} {seconds:>7.1f} s{held}", flush=True)
