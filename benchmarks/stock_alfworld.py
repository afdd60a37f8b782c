"""ALFWorld's own text environment as it comes, for comparison: TextWorld's PDDL environment and ALFWorld's names.

What ``alfworld-play-tw`` builds, without the parts that only an interactive game or a handcoded expert needs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from headroom.worlds.alfworld import package
from headroom.worlds.alfworld.scenes import GameFile


def missing() -> str:
    """Why the comparison cannot run here; empty when it can."""
    try:
        package.check_installed()
    except package.EngineMissingError as problem:
        return str(problem)
    return ""


class StockGame:
    """One game in the original environment."""

    def __init__(self, source: GameFile) -> None:
        """Load a game, as the original does it from a file."""
        package.textworld()
        # Importing alfworld creates this folder; the user's home is not the place for a benchmark's.
        os.environ.setdefault("ALFWORLD_DATA", tempfile.mkdtemp(prefix="alfworld-data-"))
        import textworld
        from alfworld.agents.utils.misc import Demangler
        from textworld.envs.pddl import PddlEnv

        argv, stdout = sys.argv, sys.stdout
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "game.tw-pddl"
            file.write_text(json.dumps(source.as_json()), encoding="utf-8")
            self._game = PddlEnv(textworld.EnvInfos(admissible_commands=True))
            self._game.load(str(file))
        names = Demangler(game_infos=self._game._entity_infos)
        for info in self._game._entity_infos.values():
            info.name = names.demangle_alfred_name(info.id)
        sys.argv, sys.stdout = argv, stdout

    def reset(self) -> tuple[str, list[str], bool]:
        """The introduction, the sorted commands that the game admits, and whether it is won."""
        argv, stdout = sys.argv, sys.stdout
        state = self._game.reset()
        sys.argv, sys.stdout = argv, stdout
        return state.feedback, state["admissible_commands"], bool(state["won"])

    def step(self, command: str) -> tuple[str, list[str], bool]:
        """As :meth:`reset`, after a command."""
        state, _, done = self._game.step(command)
        return state.feedback, state["admissible_commands"], bool(done)
