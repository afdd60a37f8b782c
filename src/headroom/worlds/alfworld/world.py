"""ALFWorld's text engine as a world: histories in, observations out.

The games are generated ("ALFWorld engine, synthetic scenes") or the released ones. A batch is answered from memory
where possible. For the rest, play goes on from the positions that were visited; one that was forgotten is reached again
by playing its commands.

What an agent reads is what the game said, without the banner and the task of its introduction (the task is the
utterance), and, if ``list_commands``, what it would accept, ``help`` excepted.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import engine, package
from headroom.worlds.alfworld.released import Released
from headroom.worlds.alfworld.scenes import TASKS, GameFile, check_bounds, game
from headroom.worlds.base import Action, Element, History, Observation, Outcome
from headroom.worlds.memo import Memo

MOST_GAMES = 512  # that are kept between questions, about 0.2 MB each
MOST_POSITIONS = 50_000  # of all of them, about 3 kB each
NOWHERE, NOTHING = "nowhere", "nothing"
_PLAYING = threading.Lock()  # all worlds of a process share one library; the translation swaps sys.stdout
_BANNER = re.compile(r"\A-= .*? =-\s*")
_TASK = re.compile(r"\s*Your task is to: .*\Z", re.DOTALL)


@dataclass
class WorldStatistics:
    """Counters since the world was opened."""

    played: int = 0  # histories that no memory answered
    translations: int = 0
    memo_hits: int = 0


class Source(Protocol):
    """Where games come from."""

    def game(self, task: str, seed: int) -> GameFile:
        """The game of (task, seed)."""
        ...


@dataclass(frozen=True)
class Generated:
    """Synthetic scenes of a bounded size."""

    receptacles: int
    objects: int

    def game(self, task: str, seed: int) -> GameFile:
        """The scene of (task, seed) as a game."""
        return game(task, seed, self.receptacles, self.objects)


class AlfWorld:
    """The engine behind the :class:`~headroom.worlds.base.World` protocol. Of all threads of a process one plays."""

    def __init__(self, settings: AlfWorldSettings | None = None) -> None:
        """Find the engine and the games; the first question loads them.

        Raises:
            EngineMissingError: (a ValueError) its packages are not installed.
            ValueError: the bounds of a scene are too small, or the released games are not there.
        """
        self.settings = settings or AlfWorldSettings()
        package.check_installed()
        self._source: Source
        if self.settings.games == "released":
            self._source = Released(self.settings.data)
        else:
            check_bounds(self.settings.receptacles, self.settings.objects)
            self._source = Generated(self.settings.receptacles, self.settings.objects)
        self._memo = Memo(self.settings.memo_megabytes * 1_000_000)
        self._games: OrderedDict[tuple[str, int], engine.Game] = OrderedDict()
        self._counts = WorldStatistics()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        """The observation at the end of each history, in order; see :class:`~headroom.worlds.base.World`.

        Raises:
            ValueError: a task is unknown, or a released game is missing or not the listed one.
        """
        self._check_tasks(histories)
        answers: dict[History, Observation] = {}
        with _PLAYING:
            # One game after the other, so that a batch of many games loads each of them once.
            for history in sorted(dict.fromkeys(histories), key=lambda each: (each.task, each.seed)):
                known = self._memo.get(history)
                answers[history] = known or self._play(history)
                if known is None:
                    self._memo.put(history, answers[history])
        return [answers[history] for history in histories]

    def plan(self, history: History) -> tuple[Action, ...] | None:
        """The planner's actions from the end of a history to the goal: () when it is reached, None when there are none.

        It knows where everything lies, which an agent has to find out.

        Raises:
            ValueError: as :meth:`observe`.
        """
        self._check_tasks([history])
        with _PLAYING:
            playing, game = engine.engine(), self._game(history)
            position, _ = _follow(playing, game, history.actions)
            commands = [] if position.won else playing.plan(game, position)
        return None if commands is None else tuple(Action("command", text=command) for command in commands)

    @property
    def statistics(self) -> WorldStatistics:
        """Counters up to now."""
        return replace(self._counts, memo_hits=self._memo.hits)

    def counts(self) -> dict[str, int]:
        """Nothing: no answer comes from outside this process."""
        return {}

    def close(self) -> None:
        """Forget every game; safe to call twice."""
        with _PLAYING:
            if self._games:
                engine.engine().clear()
            self._games.clear()

    @staticmethod
    def _check_tasks(histories: Sequence[History]) -> None:
        for history in histories:
            if history.task not in TASKS:
                raise ValueError(f"no task is called {history.task!r}; ALFWorld's are {', '.join(TASKS)}")

    def _play(self, history: History) -> Observation:
        playing, game = engine.engine(), self._game(history)
        position, outcome = _follow(playing, game, history.actions)
        self._counts.played += 1
        if outcome is Outcome.OK:
            said = playing.says(game, position).strip()
            if position.by is None:
                said = _TASK.sub("", _BANNER.sub("", said))
        else:
            said = engine.NOTHING_HAPPENS
        elements = [Element("text", said)]
        if self.settings.list_commands:
            commands = sorted(set(playing.commands(game, position)) - {"help"})
            elements += [Element("command", command) for command in commands]
        facts = (
            ("location", game.entities[position.at].name if position.at else NOWHERE),
            ("objects", "yes" if game.names_object(said) else "no"),
            ("anchor", game.carried(position) or NOTHING),
        )
        reward = float(position.won)
        return Observation(game.grammar.sentence, tuple(elements), outcome, reward, position.won, facts=facts)

    def _game(self, history: History) -> engine.Game:
        """The translated game of a history; the least recently used ones are forgotten above the bounds."""
        key = history.task, history.seed
        if key not in self._games:
            found = self._source.game(*key)
            try:
                self._games[key] = engine.Game(found)
            except Exception as error:  # a parser of the engine's: it has no error of its own
                where = self._source.path(*key) if isinstance(self._source, Released) else f"{key}"
                said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                raise ValueError(f"{where} is no game that ALFWorld's engine reads ({said}); fetch it again") from error
            self._counts.translations += 1
        self._games.move_to_end(key)
        positions = sum(game.positions for game in self._games.values())
        while len(self._games) > 1 and (len(self._games) > MOST_GAMES or positions > MOST_POSITIONS):
            positions -= self._games.popitem(last=False)[1].positions
        if positions > MOST_POSITIONS:
            self._games[key].forget()
        return self._games[key]


def _follow(playing: engine.Engine, game: engine.Game, actions: Sequence[Action]) -> tuple[engine.Position, Outcome]:
    """Where a history's actions lead, and what became of the last of them. Nothing happens after the end."""
    position, outcome = playing.start(game), Outcome.OK
    for action in actions:
        if position.won:
            break
        following = playing.step(game, position, action.text.strip()) if action.verb == "command" else None
        if following is not None:
            position, outcome = following, Outcome.OK
        else:
            outcome = Outcome.UNSUPPORTED if action.verb == "command" else Outcome.MALFORMED
    return position, outcome
