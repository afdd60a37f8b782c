"""What a game says: its grammar, parsed once by TextWorld and then read without copying.

TextWorld's own derivation parses every template and condition again at each use and copies the context for each
symbol. Here a grammar is parsed once (the sentence of the task, in which games differ, is put in afterwards), so are
its conditions, and a context is two dictionaries that are never changed. Which facts match a condition, and in which
order, is still decided by TextWorld's ``State.all_assignments``. A test holds the text equal to the original's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType, SimpleNamespace
from typing import Any

from headroom.worlds.alfworld import package

TASK = "Your task is to: "
_TASK = re.compile(rf'("rhs":\s*"{TASK})((?:[^"\\]|\\.)*)"')
_PLACEHOLDER = "UNKNOWN GOAL."
_PREDICATE = re.compile(r"(\w+)\(")


@dataclass(frozen=True, slots=True)
class Entity:
    """A receptacle, an object, ... under the names that a grammar may ask for."""

    id: str
    type: str
    name: str
    definite: str = "the"
    indefinite: str = "a"

    def __str__(self) -> str:
        return self.name


class Facts:
    """What holds at a point of a game; shares with its predecessors all that did not change."""

    def __init__(self, types: Any, by_signature: dict[Any, frozenset[Any]]) -> None:
        self._by_signature = by_signature
        self._state = _state_class()(types, by_signature)

    def after(self, effects: list[Any]) -> Facts:
        """The facts once these propositions have become true, and their negations false."""
        changed = dict(self._by_signature)
        for made in effects:
            gone = made.negate()
            changed[gone.signature] = changed.get(gone.signature, frozenset()) - {gone}
            changed[made.signature] = changed.get(made.signature, frozenset()) | {made}
        return Facts(self._state._logic.types, changed)

    def of(self, predicate: str) -> list[Any]:
        """The facts of a predicate, in no order."""
        return [fact for signature, held in self._by_signature.items() if signature.name == predicate for fact in held]

    def matches(self, query: str, mapping: Mapping[Any, Any]) -> Iterator[Mapping[Any, Any]]:
        """Every way in which a condition holds, given what its placeholders stand for already."""
        yield from self._state.all_assignments(_query(query), mapping)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a text is said: the facts, everything's names, and what the placeholders stand for."""

    facts: Facts
    entities: Mapping[str, Entity]
    mapping: Mapping[Any, Any]

    def holds(self, condition: str) -> bool:
        """Whether there is a way in which a condition holds."""
        return next(self.facts.matches(condition, self.mapping), None) is not None

    def each(self, condition: str) -> Iterator[Context]:
        """A context for every way in which a condition holds."""
        for found in self.facts.matches(condition, self.mapping):
            yield Context(self.facts, self.entities, {**self.mapping, **found})

    def value(self, expression: str) -> str:
        """A grammar's own expression, such as ``o.indefinite + ' ' + o.name``: no builtins, entities are frozen."""
        named = {place.name: self.entities[variable.name] for place, variable in self.mapping.items()}
        return str(eval(_compiled(expression), {"__builtins__": {}}, named))  # noqa: S307


class Grammar:
    """The commands and texts of a game."""

    def __init__(self, text: str) -> None:
        """Parse a grammar; games that differ in the sentence of their task alone share one.

        Raises:
            ValueError: the grammar gives no task.
        """
        found = _TASK.search(text)
        if found is None:
            raise ValueError(f"the game's grammar has no {TASK!r}")
        self.sentence: str = json.loads(f'"{found[2]}"')
        self._logic = _logic(_TASK.sub(rf'\g<1>{_PLACEHOLDER}"', text, count=1))
        self.actions: Mapping[str, Any] = self._logic.actions

    def derive(self, start: str, context: Context) -> str:
        """The text that a template or rule gives at a point of a game."""
        return self._all(_symbols(start), context).replace(TASK + _PLACEHOLDER, TASK + self.sentence)

    @staticmethod
    def asks(template: str) -> set[str]:
        """Names of the predicates that a template looks up."""
        return {name.removeprefix("not_") for name in _PREDICATE.findall(template.partition("|")[2])}

    def _all(self, symbols: Iterable[Any], context: Context) -> str:
        return "".join(self._text(symbol, context) for symbol in symbols)

    def _text(self, symbol: Any, context: Context) -> str:
        kind = type(symbol).__name__
        if kind == "NonterminalSymbol":
            return self._rule(str(symbol), context)
        if kind == "EvalSymbol":
            return context.value(symbol.expression)
        if kind == "ConditionalSymbol":
            return "".join(self._each(symbol, context))
        if kind == "ListSymbol":
            items = list(self._each(symbol.symbol, context))
            if len(items) < 2:
                return items[0] if items else self._rule("list_empty", context)
            separator, last = self._rule("list_separator", context), self._rule("list_last_separator", context)
            return separator.join(items[:-1]) + last + items[-1]
        return str(symbol)

    def _each(self, symbol: Any, context: Context) -> Iterator[str]:
        for each in context.each(symbol.given) if symbol.given else (context,):
            yield self._text(symbol.expression, each)

    def _rule(self, name: str, context: Context) -> str:
        for rule in self._logic.grammar._rules[name]:
            if not rule.condition or context.holds(rule.condition):
                return self._all(rule.rhs, context)
        raise LookupError(f"the game's grammar has no rule for #{name}#")


@lru_cache(maxsize=64)
def _logic(grammar: str) -> Any:
    return package.textworld()[1].GameLogic(domain="", grammar=grammar)


@lru_cache(maxsize=4096)
def _symbols(start: str) -> tuple[Any, ...]:
    package.textworld()
    from textworld.envs.pddl import textgen

    return tuple(textgen._parse_and_convert(start, rule_name="symbols"))


@lru_cache(maxsize=4096)
def _query(text: str) -> Any:
    return package.textworld()[0].Rule.parse_conjunctive_query(text)


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> CodeType:
    return compile(expression.strip(), "grammar", "eval")


@cache
def _state_class() -> Any:
    class State(package.textworld()[0].State):  # type: ignore[misc]
        """TextWorld's matching, over facts that somebody else keeps."""

        def __init__(self, types: Any, by_signature: dict[Any, frozenset[Any]]) -> None:
            self._logic = SimpleNamespace(types=types)
            self._facts = by_signature

    return State
