"""ALFWorld's released games, as ``alfworld-download`` lays them out, and a listing of their SHA-256.

    python -m headroom.worlds.alfworld.released DATA      writes DATA/games.sha256 (``sha256sum -c`` reads it)

Pools of seeds stand for the splits: ``train`` for ``train``, ``evaluation`` for ``valid_unseen``, every other pool for
``valid_seen``. A seed's place in its pool, modulo the number of games of the task in that split, is the game's place
among the sorted paths. As in ALFWorld, games with movable receptacles, with slices, and those marked unsolvable are
left out. The release publishes no hashes: where the listing lies beside the games, each game is held against it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path

from headroom.files import write_text
from headroom.worlds import seeds
from headroom.worlds.alfworld.scenes import TASKS, GameFile

LISTING = "games.sha256"
ROOT = "json_2.1.1"
GAME = "game.tw-pddl"
SPLITS = ("train", "valid_seen", "valid_unseen")
SPLIT_OF_POOL = {"train": "train", "evaluation": "valid_unseen"}
OTHER_POOLS = "valid_seen"
AGAIN = "fetch the release again (alfworld-download), or accept it: python -m headroom.worlds.alfworld.released"


class Released:
    """The released games of a folder."""

    def __init__(self, data: str | None) -> None:
        """Find the games; with a listing, every listed file must be there (their content is checked when used).

        Raises:
            ValueError: the folder is not set, is not one of released games, or lacks a listed game.
        """
        if not data:
            raise ValueError("world.data: games: released needs the folder that alfworld-download filled")
        self.folder = Path(data).expanduser()
        if not (self.folder / ROOT).is_dir():
            raise ValueError(f"world.data: {self.folder} has no {ROOT}/; type: alfworld-download --data-dir {data}")
        self._listed = _read_listing(self.folder / LISTING)
        for path in self._listed:
            if not (self.folder / path).is_file():
                raise ValueError(f"{self.folder / path} is listed in {LISTING} and missing; {AGAIN} {data}")
        self._found: dict[tuple[str, str], tuple[str, ...]] = {}

    def paths(self, split: str, task: str) -> tuple[str, ...]:
        """The games of a task in a split, relative to the folder and sorted.

        Raises:
            ValueError: there is none.
        """
        key = split, task
        if key not in self._found:
            prefix = f"{ROOT}/{split}/{task}-"
            listed = self._listed or find(self.folder, split, task)
            self._found[key] = tuple(sorted(path for path in listed if path.startswith(prefix)))
        if not self._found[key]:
            raise ValueError(f"{self.folder / ROOT / split} has no games of {task}; {AGAIN} {self.folder}")
        return self._found[key]

    def path(self, task: str, seed: int) -> str:
        """Which game a seed stands for.

        Raises:
            ValueError: the seed is in no pool, or the split has no game of the task.
        """
        if seed not in _places():
            raise ValueError(f"seed {seed} is in no pool of {seeds.SEEDS_FILE.name}: no released game belongs to it")
        pool, place = _places()[seed]
        paths = self.paths(SPLIT_OF_POOL.get(pool, OTHER_POOLS), task)
        return paths[place % len(paths)]

    def game(self, task: str, seed: int) -> GameFile:
        """The game that a seed stands for, held against the listing.

        Raises:
            ValueError: it is missing, changed or unreadable; the message names the file and the remedy.
        """
        path = self.path(task, seed)
        file, remedy = self.folder / path, f"{AGAIN} {self.folder}"
        try:
            content = file.read_bytes()
        except OSError as problem:
            raise ValueError(f"{file} cannot be read ({problem.strerror}); {remedy}") from None
        if self._listed and hashlib.sha256(content).hexdigest() != self._listed[path]:
            raise ValueError(f"{file} is not the file that {LISTING} lists; {remedy}")
        try:
            data = json.loads(content)
            return GameFile(data["pddl_domain"], data["grammar"], data["pddl_problem"])
        except (ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{file} is no game of ALFWorld ({problem!r}); {remedy}") from None


def find(folder: Path, split: str, task: str) -> list[str]:
    """Games of a task in a split that ALFWorld would play, relative to ``folder``; reads each of them."""
    found = []
    for file in (folder / ROOT / split).glob(f"{task}-*/*/{GAME}"):
        path = file.relative_to(folder).as_posix()
        if "movable" in path or "Sliced" in path or _task(file.with_name("traj_data.json")) != task:
            continue
        try:
            solvable = json.loads(file.read_bytes()).get("solvable")
        except (ValueError, AttributeError):
            solvable = False
        if solvable:
            found.append(path)
    return sorted(found)


def listing(folder: Path) -> str:
    """The text of ``games.sha256``: hash and path of every game that the world can use."""
    paths = sorted(path for split in SPLITS for task in TASKS for path in find(folder, split, task))
    return "".join(f"{hashlib.sha256((folder / path).read_bytes()).hexdigest()}  {path}\n" for path in paths)


def main(arguments: list[str]) -> None:
    """Write the listing of a folder."""
    if len(arguments) != 1 or not (Path(arguments[0]) / ROOT).is_dir():
        raise SystemExit(f"usage: python -m headroom.worlds.alfworld.released DATA    (DATA holds {ROOT}/)")
    text = listing(Path(arguments[0]))
    if not text:
        raise SystemExit(f"{arguments[0]}: no games below {ROOT}/; nothing was written")
    write_text(Path(arguments[0]) / LISTING, text)
    sys.stdout.write(f"{LISTING}: {len(text.splitlines())} games\n")


def _task(trajectory: Path) -> str:
    try:
        return str(json.loads(trajectory.read_bytes()).get("task_type"))
    except (OSError, ValueError, AttributeError):
        return ""


def _read_listing(file: Path) -> dict[str, str]:
    """Path -> hash; empty where there is no listing."""
    if not file.is_file():
        return {}
    rows = [line.split("  ", 1) for line in file.read_text(encoding="utf-8").splitlines() if line]
    if not rows or any(len(row) != 2 or len(row[0]) != 64 for row in rows):
        remedy = "write it again: python -m headroom.worlds.alfworld.released"
        raise ValueError(f"{file} is not a listing of games; {remedy} {file.parent}")
    return {path: digest for digest, path in rows}


@cache
def _places() -> dict[int, tuple[str, int]]:
    """Seed -> its pool and its place there."""
    return {seed: (pool, place) for pool in seeds.POOLS for place, seed in enumerate(seeds.pool(pool))}


if __name__ == "__main__":
    main(sys.argv[1:])
