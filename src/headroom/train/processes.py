"""The processes of one job: one a GPU, started by torchrun; without it, one that knows of no other.

Every process holds the same turns and so computes the same advantages, denominators and rows; each plays its share of
the pages and scores its share of the microbatches. Seeds are functions of (run seed, step, page, sample), so who plays
a page changes nothing. Only the first process writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch

from headroom.provenance import record

T = TypeVar("T")

_PATIENCE = timedelta(hours=4)
"""A process may wait this long for the slowest one's pages."""


@dataclass(frozen=True)
class Processes:
    """This process among those of its job: ``rank`` in [0, ``count``)."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def mine(self, items: Sequence[T]) -> list[T]:
        """This process's share of a list that all hold."""
        return list(items[self.rank :: self.count])

    def deal(self, items: Sequence[T]) -> list[tuple[T, bool]]:
        """This process's share and whether an item counts; the last one is repeated where the shares are uneven.

        Sharded weights are gathered by all processes together, so all must make the same number of passes.
        """
        rounds = range(self.rank, -(-len(items) // self.count) * self.count, self.count)
        return [(items[min(place, len(items) - 1)], place < len(items)) for place in rounds]

    def gather(self, value: T) -> list[T]:
        """The value of every process, by rank. Values are pickled between processes of one job, never from a file."""
        if self.count == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def together(self, make: Callable[[], list[T]]) -> list[T]:
        """The shares that all processes make of one list, in the list's order.

        Raises:
            FloatingPointError: in all processes, if one of them meets it.
        """
        if self.count == 1:
            return make()
        share: list[T] | FloatingPointError
        try:
            share = make()
        except FloatingPointError as error:
            share = error
        shares = self.gather(share)
        for found in shares:
            if isinstance(found, FloatingPointError):
                raise found
        length = sum(len(found) for found in shares if isinstance(found, list))
        return [shares[place % self.count][place // self.count] for place in range(length)]  # type: ignore[index]


ALONE = Processes()


@contextmanager
def start(count: int) -> Iterator[Processes]:
    """Join the processes of this job: NCCL between GPUs, gloo between processors.

    Raises:
        SystemExit: as many processes were not started, or there are fewer GPUs than processes.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != count:
        launcher = "python" if count == 1 else f"torchrun --standalone --nproc-per-node={count}"
        raise SystemExit(
            f"trainer.processes is {count}, but {started} were started; start the stage with {launcher} -m, "
            "as its rule does"
        )
    if count == 1:
        yield ALONE
        return
    from torch import distributed

    on_gpu = torch.cuda.is_available()
    if on_gpu:
        if torch.cuda.device_count() < count:
            raise SystemExit(
                f"trainer.processes is {count}, but this job sees {torch.cuda.device_count()} GPUs; ask for one each "
                "(resources: gpu) or lower trainer.processes"
            )
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=_PATIENCE)
    try:
        yield Processes(distributed.get_rank(), count)
    finally:
        distributed.destroy_process_group()


@dataclass
class Follower:
    """What a process that does not write has in place of the job's record."""

    folder: Path
    output: Path
    ending: str = "finished"
    notes: dict[str, Any] = field(default_factory=dict)

    def scratch(self, *_parts: str) -> Path:
        """The first process's resume folder: all read it, the first writes it."""
        return self.folder


@contextmanager
def job(processes: Processes, stage: str, output: Path, *scratch: str, **framing: Any) -> Iterator[Any]:
    """``record.job`` in the first process, a :class:`Follower` in the others; ``scratch`` names the resume folder."""
    if processes.first:
        with record.job(stage, output, **framing) as running:
            if processes.count > 1:
                processes.gather(running.scratch(*scratch))
            yield running
    else:
        yield Follower(processes.gather(Path())[0], output)
