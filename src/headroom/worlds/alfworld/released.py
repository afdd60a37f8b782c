"""ALFWorld's released games, as ``alfworld-download`` lays them out, and a listing of their SHA-256.

    python -m headroom.worlds.alfworld.released DATA      writes DATA/games.sha256 (``sha256sum -c`` reads it)

Every game is read as it will be played. Where one cannot be, nothing is written, unless ``--leave-out`` asks for a
listing without such games.

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

from headroom.config.worlds import LISTING
from headroom.files import write_text
from headroom.worlds import seeds
from headroom.worlds.alfworld.listing import AGAIN, ROOT, check_games
from headroom.worlds.alfworld.scenes import TASKS, GameFile

GAME = "game.tw-pddl"
SPLITS = ("train", "valid_seen", "valid_unseen")
SPLIT_OF_POOL = {"train": "train", "evaluation": "valid_unseen"}
OTHER_POOLS = "valid_seen"


class Released:
    """The released games of a folder."""

    def __init__(self, data: str | None) -> None:
        """Find the games; with a listing, every listed file must be there (their content is checked when used).

        Raises:
            ValueError: the folder is not set, is not one of released games, or lacks a listed game.
        """
        if not data:
            raise ValueError("world.data: games: released needs the folder that alfworld-download filled")
        self.folder = Path(data)
        self._listed = check_games(self.folder)
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
            return _parts(content)
        except ValueError as problem:
            raise ValueError(f"{file} is no game of ALFWorld ({problem}); {remedy}") from None


def _parts(content: bytes) -> GameFile:
    try:
        data = json.loads(content)
        return GameFile(data["pddl_domain"], data["grammar"], data["pddl_problem"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(repr(problem)) from None


def find(folder: Path, split: str, task: str, faults: list[str] | None = None) -> list[str]:
    """Games of a task in a split that ALFWorld would play, relative to ``folder``; reads each of them.

    A file that cannot be read is none of them; ``faults`` receives a line that says so.
    """
    found = []
    for file in (folder / ROOT / split).glob(f"{task}-*/*/{GAME}"):
        path = file.relative_to(folder).as_posix()
        if "movable" in path or "Sliced" in path or _task(file.with_name("traj_data.json")) != task:
            continue
        try:
            solvable = json.loads(file.read_bytes()).get("solvable")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            solvable = False
            if faults is not None:
                faults.append(f"{file}: cannot be read ({_line(error)})")
        if solvable:
            found.append(path)
    return sorted(found)


def listing(folder: Path) -> tuple[str, list[str]]:
    """The text of ``games.sha256``: hash and path of every game that the engine reads; and a line on each it does not.

    Raises:
        ValueError: the engine is not installed.
    """
    from headroom.worlds.alfworld import engine, package

    package.check_installed()
    faults: list[str] = []
    paths = sorted(path for split in SPLITS for task in TASKS for path in find(folder, split, task, faults))
    rows = []
    for done, path in enumerate(paths, start=1):
        try:
            content = (folder / path).read_bytes()
            engine.Game(_parts(content))
        except Exception as error:  # a parser of the engine's: it has no error of its own
            faults.append(f"{folder / path}: no game that ALFWorld's engine reads ({_line(error)})")
        else:
            rows.append(f"{hashlib.sha256(content).hexdigest()}  {path}\n")
        if done % 500 == 0:
            sys.stderr.write(f"{done} of {len(paths)} games read\n")
    return "".join(rows), faults


def main(arguments: list[str]) -> None:
    """Write the listing of a folder.

    Raises:
        SystemExit: there is no game, or (unless such are left out) one that the engine cannot read; nothing is written.
    """
    leave_out = "--leave-out" in arguments
    folders = [Path(argument) for argument in arguments if argument != "--leave-out"]
    if len(folders) != 1 or not (folders[0] / ROOT).is_dir():
        raise SystemExit(
            f"usage: python -m headroom.worlds.alfworld.released DATA [--leave-out]    (DATA holds {ROOT}/)"
        )
    (folder,) = folders
    try:
        text, faults = listing(folder)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    for line in faults:
        sys.stderr.write(f"{line}\n")
    if not text:
        raise SystemExit(f"{folder}: no games below {ROOT}/; nothing was written")
    if faults and not leave_out:
        raise SystemExit(
            f"{folder}: {len(faults)} games cannot be read; nothing was written: fetch them again (alfworld-download), "
            "or play without them: --leave-out"
        )
    try:
        write_text(folder / LISTING, text)
    except OSError as error:
        raise SystemExit(f"{folder / LISTING}: cannot be written ({error.strerror})") from error
    sys.stdout.write(f"{LISTING}: {len(text.splitlines())} games\n")


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _task(trajectory: Path) -> str:
    try:
        return str(json.loads(trajectory.read_bytes()).get("task_type"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


@cache
def _places() -> dict[int, tuple[str, int]]:
    """Seed -> its pool and its place there."""
    return {seed: (pool, place) for pool in seeds.POOLS for place, seed in enumerate(seeds.pool(pool))}


if __name__ == "__main__":
    main(sys.argv[1:])
