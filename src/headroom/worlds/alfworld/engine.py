"""Games in the engine: every position that was visited is kept, so that play goes on from any of them.

The state, the actions that apply and the goal are the planner's (``fast-downward-textworld``); the texts are the
game's grammar (``render.py``). What the original does at each step or load and is done once here: the translation of
PDDL, the parsing of grammar and conditions, and the words of a command. The planner's library holds one game at a
time; when a game comes back, a position's state is made again there by its operators alone, in microseconds.

Not thread-safe, as the original: the planner's library has global state, and the translation swaps ``sys.stdout``.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from headroom.worlds.alfworld import package
from headroom.worlds.alfworld.render import Context, Entity, Facts, Grammar
from headroom.worlds.alfworld.scenes import GameFile

NOTHING_HAPPENS = "Nothing happens."


@dataclass(frozen=True)
class Operator:
    """An action of a game on certain things."""

    identifier: int
    command: str
    feedback: str  # the grammar's rule
    mapping: dict[Any, Any]
    effects: int
    goes_to: str  # a receptacle's identifier; "" for every other action


@dataclass(eq=False)
class Position:
    """A point of a game: the facts as the grammar reads them, and where the planner has its state."""

    facts: Facts
    at: str  # the receptacle that the agent went to last; "" before the first
    won: bool
    parent: Position | None
    by: Operator | None
    state: int  # in the planner's registry, as of the load number `load`
    load: int
    commands: dict[str, Operator] | None = None  # what is admitted here
    after: dict[str, Position] = field(default_factory=dict)


class Game:
    """A translated game with every position of it that was visited."""

    def __init__(self, source: GameFile) -> None:
        """Translate the problem and parse the grammar (both once)."""
        self.source = source
        self.grammar = Grammar(source.grammar)
        self.task, self.sas = translate(source)
        logic = package.textworld()[0]
        self.types = logic.TypeHierarchy()
        for kind in self.task.types:
            if kind.name not in self.types._types:
                self.types.add(logic.Type(kind.name, kind.supertype_names))
        self.type_of = {thing.name: thing.type_name for thing in self.task.objects}
        self.actions = {action.name: action for action in self.task.actions}
        self.changing = {effect.literal.predicate for action in self.task.actions for effect in action.effects}
        self.initial = self._initial()
        self.entities = self._entities()
        self.operators: dict[int, Operator] = {}  # those whose words never change
        self.start: Position | None = None
        self.positions = 0
        self._propositions: dict[str, Any] = {}
        objects = [re.escape(entity.name) for entity in self.entities.values() if entity.type == "object"]
        self._objects = re.compile(rf"\b(?:{'|'.join(objects)})(?!\w)")

    def forget(self) -> None:
        """Drop every position; they are played again on demand."""
        self.start, self.positions = None, 0

    @cached_property
    def replanning(self) -> str:
        """The second translation, which only the planner's search needs."""
        return translate(self.source, optimize=True)[1]

    def proposition(self, name: str) -> Any:
        """The planner's name of a fact (``Atom holds(agent1, mug_bar_01)``) as TextWorld's proposition."""
        known = self._propositions.get(name)
        if known is None:
            logic = package.textworld()[0]
            sort, _, rest = name.partition(" ")
            predicate, _, arguments = rest.removesuffix(")").partition("(")
            variables = [logic.Variable(each, self.type_of[each]) for each in arguments.split(", ") if each]
            known = logic.Proposition(predicate if sort == "Atom" else f"not_{predicate}", variables)
            self._propositions[name] = known
        return known

    def carried(self, position: Position) -> str:
        """The name of the object that the agent carries (it carries one at most); empty when there is none."""
        return "".join(self.entities[fact.names[1]].name for fact in position.facts.of("holds"))

    def names_object(self, text: str) -> bool:
        """Whether a text names one of the game's objects (``mug 1``), so that it can be seen or is held."""
        return self._objects.search(text) is not None

    def _initial(self) -> list[Any]:
        """The problem's own facts; ``=`` and costs are none."""
        logic = package.textworld()[0]
        atoms = [atom for atom in self.task.init if getattr(atom, "predicate", "=") != "="]
        return [
            logic.Proposition(atom.predicate, [logic.Variable(each, self.type_of[each]) for each in atom.args])
            for atom in atoms
        ]

    def _entities(self) -> dict[str, Entity]:
        """Everything under the name that is shown: the first of three cabinets is ``cabinet 3``, as in ALFWorld."""
        mentioned = {variable.name for fact in self.initial for variable in fact.arguments}
        shown: dict[str, str] = {}
        found: Counter[str] = Counter()
        for identifier in sorted(self.type_of, reverse=True):
            name, bar, _ = identifier.partition("_bar_")
            if bar and identifier in mentioned:
                name += "basin" if "basin" in identifier else ""
                found[name] += 1
                name += f" {found[name]}"
            shown[identifier] = name
        return {each: Entity(each, self.type_of[each], name) for each, name in shown.items()}


@cache
def engine() -> Engine:
    """The engine of this process. A library that is unloaded and loaded again crashes the process at its end."""
    return Engine()


class Engine:
    """A copy of the planner's library, which holds one game at a time."""

    def __init__(self) -> None:
        """Load the library."""
        self._library = package.fast_downward().load_lib()
        self._library.get_state_id.argtypes, self._library.get_state_id.restype = [], ctypes.c_int
        self._library.set_state_id.argtypes, self._library.set_state_id.restype = [ctypes.c_int], None
        self._game: Game | None = None
        self._planning = False
        self.loads = 0

    def clear(self) -> None:
        """Drop the game that the library holds."""
        if self._game is not None:
            self._library.cleanup()
            self._game = None

    def start(self, game: Game) -> Position:
        """Where a game begins."""
        if game.start is None:
            self._game = None  # the game may stand at another position
            self._load(game)
            names = [name for name in self._atoms() if name.startswith("Atom ")]
            by_signature: dict[Any, set[Any]] = {}
            for fact in (*game.initial, *map(game.proposition, names)):
                by_signature.setdefault(fact.signature, set()).add(fact)
            facts = Facts(game.types, {signature: frozenset(held) for signature, held in by_signature.items()})
            here = facts.matches("atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)", {})
            beside = [variable.name for found in here for place, variable in found.items() if place.name == "r"]
            game.start = self._position(game, facts, (beside or [""])[0], None, None)
        return game.start

    def commands(self, game: Game, position: Position) -> dict[str, Operator]:
        """What the game admits at a position: each command and the action that it stands for."""
        if position.commands is None:
            self._go(game, position)
            found = (package.fast_downward().Operator * self._library.get_applicable_operators_count())()
            self._library.get_applicable_operators(found)
            position.commands = {}
            for raw in found:
                operator = game.operators.get(raw.id) or self._operator(game, raw, position.facts)
                position.commands.setdefault(operator.command, operator)
        return position.commands

    def step(self, game: Game, position: Position, command: str) -> Position | None:
        """The position after a command; None where the game does not admit it."""
        known = position.after.get(command)
        if known is not None:
            return known
        operator = self.commands(game, position).get(command)
        if operator is None:
            return None
        self._go(game, position)
        made = [game.proposition(name) for name in self._apply(operator)]
        after = self._position(game, position.facts.after(made), operator.goes_to or position.at, position, operator)
        position.after[command] = after
        return after

    def says(self, game: Game, position: Position) -> str:
        """The game's answer to the command that led here; its introduction at the start."""
        start, mapping = (position.by.feedback, position.by.mapping) if position.by else ("#intro#", {})
        return game.grammar.derive(start, Context(position.facts, game.entities, mapping))

    def plan(self, game: Game, position: Position) -> list[str] | None:
        """The planner's commands from here to the goal; None when there are none."""
        self._go(game, position)
        if not self._planning:
            self._library.load_sas_replan(game.replanning.encode())
            self._planning = True
        if not self._library.replan(False):
            return None
        steps = (package.fast_downward().Operator * self._library.get_last_plan_length())()
        self._library.get_last_plan(steps)
        return [_worded(game, step, position.facts)[0].command for step in steps]

    def _load(self, game: Game) -> None:
        if self._game is not game:
            self._library.load_sas(game.sas.encode())
            self._game, self._planning = game, False
            self.loads += 1

    def _go(self, game: Game, position: Position) -> None:
        """Put the library into a position's state; play it again there if the game was away meanwhile."""
        self._load(game)
        lost = []
        while position.load != self.loads and position.parent is not None:
            lost.append(position)
            position = position.parent
        if position.load != self.loads:  # where the game begins: its state is the first of every registry
            position.load = self.loads
        self._library.set_state_id(position.state)
        for each in reversed(lost):
            assert each.by is not None
            self._apply(each.by)
            each.state, each.load = self._library.get_state_id(), self.loads

    def _apply(self, operator: Operator) -> list[str]:
        effects = (package.fast_downward().Atom * operator.effects)()
        self._library.apply_operator(operator.identifier, effects)
        return [effect.name for effect in effects]

    def _atoms(self) -> list[str]:
        atoms = (package.fast_downward().Atom * self._library.get_state_size())()
        self._library.get_state(atoms)
        return [atom.name for atom in atoms]

    def _position(self, game: Game, facts: Facts, at: str, parent: Position | None, by: Operator | None) -> Position:
        game.positions += 1
        won = bool(self._library.check_goal())
        return Position(facts, at, won, parent, by, self._library.get_state_id(), self.loads)

    @staticmethod
    def _operator(game: Game, raw: Any, facts: Facts) -> Operator:
        operator, template = _worded(game, raw, facts)
        # Words that look something up are kept only when no action can change what they look up.
        if not game.grammar.asks(template) & game.changing:
            game.operators[raw.id] = operator
        return operator


def _worded(game: Game, raw: Any, facts: Facts) -> tuple[Operator, str]:
    """A planner's operator (``gotolocation agent1 loc_0 loc_1 cabinet_bar_01``) as a command, and its template."""
    logic = package.textworld()[0]
    name, *arguments = raw.name.split()
    mapping = {
        logic.Placeholder(parameter.name.strip("?"), parameter.type_name): logic.Variable(each, parameter.type_name)
        for parameter, each in zip(game.actions[name].parameters, arguments, strict=False)
    }
    action = game.grammar.actions[name]
    command = game.grammar.derive(action.template, Context(facts, game.entities, mapping))
    goes_to = arguments[-1] if name == "gotolocation" else ""
    return Operator(raw.id, command, action.feedback_rule, mapping, raw.nb_effect_atoms, goes_to), action.template


def translate(source: GameFile, *, optimize: bool = False) -> tuple[Any, str]:
    """The planner's task and its text; ``sys.argv`` and ``sys.stdout``, which the translation takes, are put back."""
    arguments, output = sys.argv, sys.stdout
    try:
        translated: tuple[Any, str] = package.fast_downward().pddl2sas(source.domain, source.problem, optimize=optimize)
    finally:
        sys.argv, sys.stdout = arguments, output
    return translated
