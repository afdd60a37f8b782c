"""What differs between worlds in what an agent reads and writes: one dialect a world.

A checkpoint carries the name of its dialect, because its policy knows no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headroom.agent import grammar, prompt
from headroom.worlds.base import Action, Observation


class Dialect(Protocol):
    """How observations become a prompt, and an answer an action."""

    name: str
    instructions: str

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """The prompt of the next turn, given all observations and actions of the episode so far.

        Raises:
            ValueError: there is not one observation more than actions.
        """
        ...

    def parse(self, text: str) -> Action:
        """Read an answer; total: what is no action is ``Action("malformed", text=text)``."""
        ...

    def write(self, action: Action, facts: Mapping[str, str]) -> str:
        """The answer of a demonstrator who knows the ``facts`` of the next observation; :meth:`parse` undoes it."""
        ...

    def prediction(self, text: str) -> Mapping[str, str]:
        """The fields of the next observation that an answer predicts; empty where it predicts none. Total."""
        ...


class WebPages:
    """The text track of MiniWoB++: elements by role and accessible name."""

    name = "web pages"
    instructions = prompt.INSTRUCTIONS

    def prompt_text(self, observations: Sequence[Observation], actions: Sequence[Action]) -> str:
        """See :class:`Dialect`."""
        return prompt.prompt_text(observations, actions)

    def parse(self, text: str) -> Action:
        """See :class:`Dialect`."""
        return grammar.parse(text)

    def write(self, action: Action, facts: Mapping[str, str]) -> str:  # noqa: ARG002
        """See :class:`Dialect`."""
        return grammar.render(action)

    def prediction(self, text: str) -> Mapping[str, str]:  # noqa: ARG002
        """See :class:`Dialect`."""
        return {}


WEB_PAGES = WebPages()
