"""Page seeds: five disjoint pools, listed in ``workflow/data/seeds.tsv``, and how far their pages overlap.

Disjoint seeds need not give disjoint pages: a task with few contents shows the same page under many seeds.
:func:`content_overlap` measures that.

The list is made by ``python -m headroom.worlds.seeds``; a test makes it again and compares.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from headroom.files import write_text
from headroom.seeds import derive
from headroom.worlds.base import History, Observation, World

POOLS: dict[str, int] = {"train": 2000, "selection": 100, "reading": 100, "evaluation": 100, "validation": 100}
"""Pool name to its number of seeds. A pool is used for nothing but what it is called after."""

BITS = 31  # the pages seed their generator with an integer; 31 bits are exact in every tool that may read the list
SEEDS_FILE = Path(__file__).resolve().parents[3] / "workflow" / "data" / "seeds.tsv"


def pool(name: str, count: int | None = None) -> tuple[int, ...]:
    """The first ``count`` page seeds of a pool; all of them by default.

    Raises:
        ValueError: there is no such pool, or it has fewer seeds.
    """
    seeds = _read().get(name)
    if seeds is None:
        raise ValueError(f"no seed pool is called {name!r}; {SEEDS_FILE.name} has {', '.join(_read())}")
    if count is None:
        return seeds
    if not 0 < count <= len(seeds):
        raise ValueError(f"seed pool {name!r} has {len(seeds)} seeds; {count} were asked for")
    return seeds[:count]


def generate() -> str:
    """The text of ``seeds.tsv``: seeds by a stable hash of pool and position, each number used once."""
    used: set[int] = set()
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n")
    writer.writerow(["pool", "seed"])
    for name, count in POOLS.items():
        position = written = 0
        while written < count:
            seed = derive("page seed", name, position) % 2**BITS
            position += 1
            if seed not in used:
                used.add(seed)
                writer.writerow([name, seed])
                written += 1
    return out.getvalue()


def content_overlap(
    world: World, tasks: Sequence[str], pools: Mapping[str, Sequence[int]], *, batch: int = 256
) -> dict[str, dict[str, float]]:
    """How many pages of the other pools a policy may have met in training, to the letter.

    Args:
        world: shows the first pages.
        tasks: task names.
        pools: seeds by pool name; must hold ``train`` and at least one other.
        batch: histories asked at once.

    Returns:
        task -> pool -> share in [0, 1] of the pool's seeds whose page (goal and all text, values and options of the
        first observation) is also the page of a train seed.

    Raises:
        ValueError: no ``train`` pool, an empty pool, or a seed in two pools.
    """
    if "train" not in pools or len(pools) < 2 or not all(pools.values()):
        raise ValueError("content_overlap needs the pool 'train' and another one, none of them empty")
    everything = [seed for seeds in pools.values() for seed in seeds]
    if len(set(everything)) != len(everything):
        raise ValueError("the pools share a seed")
    shares: dict[str, dict[str, float]] = {}
    for task in tasks:
        digests = {name: _digests(world, task, seeds, batch) for name, seeds in pools.items()}
        met = set(digests["train"])
        shares[task] = {
            name: sum(digest in met for digest in own) / len(own) for name, own in digests.items() if name != "train"
        }
    return shares


def page_digest(observation: Observation) -> str:
    """SHA-256 of the goal and of everything that the first page shows."""
    parts: list[str] = [observation.utterance]
    for element in observation.elements:
        parts += [element.role, element.name, element.value, *element.states, *element.options]
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _digests(world: World, task: str, seeds: Sequence[int], batch: int) -> list[str]:
    found: list[str] = []
    for start in range(0, len(seeds), batch):
        for observation in world.observe([History(task, seed) for seed in seeds[start : start + batch]]):
            if observation.failure:
                raise ValueError(f"no first page for {task}: {observation.failure}")
            found.append(page_digest(observation))
    return found


@cache
def _read() -> dict[str, tuple[int, ...]]:
    try:
        lines: Iterable[str] = SEEDS_FILE.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{SEEDS_FILE} is missing; make it by: python -m headroom.worlds.seeds") from None
    table: dict[str, list[int]] = {}
    for row in csv.DictReader(lines, delimiter="\t"):
        table.setdefault(row["pool"], []).append(int(row["seed"]))
    return {name: tuple(seeds) for name, seeds in table.items()}


if __name__ == "__main__":
    write_text(SEEDS_FILE, generate())
