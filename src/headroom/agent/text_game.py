"""The dialect of text games such as ALFWorld: commands, a prediction of what will be seen next, an answer to a question
about what is so now, and the agent's confidence.

::

    goal: put a clean mug in coffeemachine.
    page:
    text "You arrive at cabinet 1. The cabinet 1 is closed."
    command "open cabinet 1"
    command "go to countertop 1"
    history:
    do "go to cabinet 1" -> ok
    action:

An answer is ``do "open cabinet 1" expect "cabinet 1" "yes" know "nothing" sure "3"``: a command; the agent's prediction
of where it will be and whether it will see objects there; its answer to a fixed question about the state that it is in
(the anchor question); and how sure it is, in tenths, that it will reach the goal (arXiv 2607.21273). None of these is
ever shown to it again. Each block runs to the next one's word and may be left out; one that is malformed, or stands out
of order, says nothing, but the others and the command count all the same. A text that does not begin with ``do "..."``
is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from headroom.agent.dialect import LOCATION, OBJECTS, SUREST
from headroom.agent.grammar import MALFORMED, QUOTED, quote, unquote
from headroom.agent.prompt import frame, past_malformed
from headroom.worlds.base import Action, Observation

COMMAND = "command"
"""Verb of an action, and role of an element that is a command which the game would accept."""
DO, EXPECT, KNOW, SURE = "do", "expect", "know", "sure"
BLOCKS = {EXPECT: 2, KNOW: 1, SURE: 1}
"""The blocks behind the command, in their order -> strings in each."""
TENTHS = tuple(str(tenth) for tenth in range(SUREST + 1))

_DO = re.compile(rf"\s*{DO}\s+({QUOTED})")
_STRING = re.compile(QUOTED)
_PIECE = re.compile(rf"{QUOTED}|\S+")

INSTRUCTIONS = """\
You play a text game to reach a goal. Each turn you read the goal, what the game said, the commands that it would \
accept (where it lists them) and your last commands with their outcomes.
Answer with exactly one line and nothing else:
do "COMMAND" expect "LOCATION" "OBJECTS" know "ANSWER" sure "TENTHS"
COMMAND is the command to give, copied from the list where there is one. LOCATION is where you will be after it, \
such as {place}. OBJECTS is yes if you will see {objects} there, else no. ANSWER is {question}. TENTHS is a digit \
from 0 to 9: how sure you are that you will reach the goal."""


class TextGame:
    """See the module and :class:`headroom.agent.dialect.Dialect`."""

    merges = False  # as one slot, a command would hide its verb, and an object its kind
    words = TENTHS  # an answer's own, whatever the demonstrations happen to say

    def __init__(self, name: str, *, place: str, objects: str, question: str) -> None:
        """A world's own.

        Args:
            name: see :class:`headroom.agent.dialect.Dialect`.
            place: a location, for example.
            objects: what the field OBJECTS is about.
            question: the anchor question, as the end of a sentence that begins with "ANSWER is".
        """
        self.name = name
        self.instructions = INSTRUCTIONS.format(place=place, objects=objects, question=question)

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """See :class:`headroom.agent.dialect.Dialect`."""
        return frame(observations, actions, _past)

    def parse(self, text: str) -> Action:
        """See :class:`headroom.agent.dialect.Dialect`."""
        found = _DO.match(text)
        command = unquote(found[1]) if found else ""
        return Action(COMMAND, text=command) if command else Action(MALFORMED, text=text)

    def write(
        self, action: Action, facts: Mapping[str, str], anchor: str | None = None, sure: int | None = None
    ) -> str:
        """See :class:`headroom.agent.dialect.Dialect`. Facts that lack a field are not predicted."""
        if action.verb == MALFORMED:
            return action.text
        if not action.text or action != Action(COMMAND, text=action.text):
            msg = f"{action!r} is not a command of a text game"
            raise ValueError(msg)
        answer = f"{DO} {quote(action.text)}"
        if LOCATION in facts and OBJECTS in facts:
            answer += f" {EXPECT} {quote(facts[LOCATION])} {quote(facts[OBJECTS])}"
        if anchor is not None:
            answer += f" {KNOW} {quote(anchor)}"
        if sure is not None:
            answer += f" {SURE} {quote(TENTHS[sure])}"
        return answer

    def prediction(self, text: str) -> Mapping[str, str]:
        """See :class:`headroom.agent.dialect.Dialect`."""
        found = self._blocks(text).get(EXPECT)
        return {LOCATION: found[0], OBJECTS: found[1]} if found else {}

    def anchor(self, text: str) -> str | None:
        """See :class:`headroom.agent.dialect.Dialect`."""
        found = self._blocks(text).get(KNOW)
        return found[0] if found else None

    def confidence(self, text: str) -> float | None:
        """See :class:`headroom.agent.dialect.Dialect`. 0 where none is said."""
        said = self._blocks(text).get(SURE, ("",))[0]
        return TENTHS.index(said) / SUREST if said in TENTHS else 0.0

    def _blocks(self, text: str) -> dict[str, tuple[str, ...]]:
        """The strings of each block that is well formed and in its place."""
        command = _DO.match(text)
        if command is None or self.parse(text).verb == MALFORMED:
            return {}
        sections: list[tuple[str, list[str]]] = [("", [])]
        for piece in _PIECE.findall(text[command.end() :]):
            if piece in BLOCKS:
                sections.append((piece, []))
            else:
                sections[-1][1].append(piece)
        found: dict[str, tuple[str, ...]] = {}
        order, latest = list(BLOCKS), -1
        for word, pieces in sections[1:]:
            if order.index(word) > latest:
                latest = order.index(word)
                if len(pieces) == BLOCKS[word] and all(_STRING.fullmatch(piece) for piece in pieces):
                    found[word] = tuple(unquote(piece) for piece in pieces)
        return found

    def assemble(self, sections: Sequence[tuple[str, Sequence[str]]], read: Callable[[Sequence[str], str], str]) -> str:
        """See :class:`headroom.agent.dialect.Dialect`."""
        parts: list[str] = []
        for word, content in sections:
            parts += [word] if word else []
            parts.append(quote(read(content, COMMAND if word == DO else "")))
        return " ".join(parts)


def _past(action: Action) -> str:
    return past_malformed(action) if action.verb == MALFORMED else f"{DO} {quote(action.text)}"


TEXT_GAME = TextGame(
    "text game",
    place="cabinet 1",
    objects="any object",
    question="what you carry now: its name, such as mug 1, or nothing",
)
"""ALFWorld's."""
HIDDEN_RULE = TextGame(
    "hidden rule",
    place="kitchen",
    objects="a device that is on",
    question="how many devices were on when you last saw them: a number from 0 on",
)
TEXT_GAMES = {game.name: game for game in (TEXT_GAME, HIDDEN_RULE)}
