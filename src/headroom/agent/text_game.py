"""The dialect of text games such as ALFWorld: commands, and a prediction of what will be seen next.

::

    goal: put a clean mug in coffeemachine.
    page:
    text "You arrive at cabinet 1. The cabinet 1 is closed."
    command "open cabinet 1"
    command "go to countertop 1"
    history:
    do "go to cabinet 1" -> ok
    action:

An answer is ``do "open cabinet 1" expect "cabinet 1" "yes"``: a command, and the agent's prediction of where it will
be and whether it will see objects there (arXiv 2607.21273). The prediction is never shown to it again. A missing or
malformed ``expect`` block is no prediction, but the command counts all the same; a text that does not begin with
``do "..."`` is malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from headroom.agent.dialect import LOCATION, OBJECTS
from headroom.agent.grammar import MALFORMED, QUOTED, quote, unquote
from headroom.agent.prompt import frame, past_malformed
from headroom.worlds.base import Action, Observation

COMMAND = "command"
"""Verb of an action, and role of an element that is a command which the game would accept."""
DO, EXPECT = "do", "expect"

_DO = re.compile(rf"\s*{DO}\s+({QUOTED})")
_EXPECT = re.compile(rf"\s+{EXPECT}\s+({QUOTED})\s+({QUOTED})\s*")

INSTRUCTIONS = """\
You play a text game to reach a goal. Each turn you read the goal, what the game said, the commands that it would \
accept (where it lists them) and your last commands with their outcomes.
Answer with exactly one line and nothing else:
do "COMMAND" expect "LOCATION" "OBJECTS"
COMMAND is the command to give, copied from the list where there is one. LOCATION is where you will be after it, \
such as cabinet 1. OBJECTS is yes if you will see any object there, else no."""


class TextGame:
    """See the module and :class:`headroom.agent.dialect.Dialect`."""

    name = "text game"
    instructions = INSTRUCTIONS
    merges = False  # as one slot, a command would hide its verb, and an object its kind

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """See :class:`headroom.agent.dialect.Dialect`."""
        return frame(observations, actions, _past)

    def parse(self, text: str) -> Action:
        """See :class:`headroom.agent.dialect.Dialect`."""
        found = _DO.match(text)
        command = unquote(found[1]) if found else ""
        return Action(COMMAND, text=command) if command else Action(MALFORMED, text=text)

    def write(self, action: Action, facts: Mapping[str, str]) -> str:
        """See :class:`headroom.agent.dialect.Dialect`. Facts that lack a field are not predicted."""
        if action.verb == MALFORMED:
            return action.text
        if not action.text or action != Action(COMMAND, text=action.text):
            msg = f"{action!r} is not a command of a text game"
            raise ValueError(msg)
        answer = f"{DO} {quote(action.text)}"
        if LOCATION in facts and OBJECTS in facts:
            answer += f" {EXPECT} {quote(facts[LOCATION])} {quote(facts[OBJECTS])}"
        return answer

    def prediction(self, text: str) -> Mapping[str, str]:
        """See :class:`headroom.agent.dialect.Dialect`."""
        command = _DO.match(text)
        block = _EXPECT.fullmatch(text, command.end()) if command else None
        if block is None or self.parse(text).verb == MALFORMED:
            return {}
        return {LOCATION: unquote(block[1]), OBJECTS: unquote(block[2])}

    def assemble(self, sections: Sequence[tuple[str, Sequence[str]]], read: Callable[[Sequence[str], str], str]) -> str:
        """See :class:`headroom.agent.dialect.Dialect`."""
        parts: list[str] = []
        for word, content in sections:
            parts += [word] if word else []
            parts.append(quote(read(content, COMMAND if word == DO else "")))
        return " ".join(parts)


def _past(action: Action) -> str:
    return past_malformed(action) if action.verb == MALFORMED else f"{DO} {quote(action.text)}"


TEXT_GAME = TextGame()
