"""What an oracle sees: the newest observation of an episode, with the look-ups that all oracles share.

An oracle reads what the agent reads (utterance and elements) and nothing else: never the page's hidden state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from headroom.worlds.base import Action, Element, Observation

MASK = "\u2022"
FIELDS = ("textbox", "searchbox", "spinbutton", "combobox")


class NotOnPageError(LookupError):
    """The page does not show what the oracle is looking for: it has no next action to offer."""


class Page:
    """The point of an episode that the oracle decides at."""

    def __init__(self, observations: Sequence[Observation], actions: Sequence[Action]) -> None:
        """``observations`` has one more entry than ``actions``; the last one is the page now."""
        self.observations = tuple(observations)
        self.actions = tuple(actions)
        self.utterance = observations[-1].utterance
        self.elements = observations[-1].elements

    def all(self, *roles: str, name: str | None = None) -> list[Element]:
        """The elements of these roles (all roles: none given) and this exact name, in page order."""
        return [
            element
            for element in self.elements
            if (not roles or element.role in roles) and (name is None or element.name == name)
        ]

    def first(self, *roles: str, name: str | None = None) -> Element:
        """The first of :meth:`all`.

        Raises:
            NotOnPageError: there is none.
        """
        return self.nth(1, *roles, name=name)

    def nth(self, number: int, *roles: str, name: str | None = None) -> Element:
        """Number ``number`` of :meth:`all`, counted from 1.

        Raises:
            NotOnPageError: there are fewer.
        """
        found = self.all(*roles, name=name)
        if len(found) < number:
            raise NotOnPageError(f"no {number}. {'/'.join(roles)} {name or ''}")
        return found[number - 1]

    def find(self, fits: Callable[[Element], bool]) -> Element:
        """The first element that fits.

        Raises:
            NotOnPageError: none does.
        """
        for element in self.elements:
            if fits(element):
                return element
        raise NotOnPageError("nothing fits")

    def labelled(self, *words: str) -> Element:
        """The first field whose name holds one of ``words``, whatever the case."""
        for element in self.all(*FIELDS):
            if any(word.lower() in element.name.lower() for word in words):
                return element
        raise NotOnPageError(f"no field for {words}")

    def shows(self, *roles: str, name: str | None = None) -> bool:
        """Whether :meth:`all` finds anything."""
        return bool(self.all(*roles, name=name))

    def quoted(self) -> list[str]:
        """The quoted parts of the utterance; quotation marks inside a quotation do not occur."""
        return re.findall(r'"([^"]*)"', self.utterance)

    def asked(self, pattern: str) -> tuple[str, ...]:
        """The groups of ``pattern`` in the utterance.

        Raises:
            NotOnPageError: the utterance is worded differently.
        """
        match = re.search(pattern, self.utterance)
        if match is None:
            raise NotOnPageError(f"the utterance {self.utterance!r} does not match {pattern!r}")
        return match.groups()


Oracle = Callable[[Page], Action]


def click(element: Element) -> Action:
    """Click it."""
    return Action("click", element.role, element.name, element.occurrence)


def fill(element: Element, text: str) -> Action:
    """Replace the field's text."""
    return Action("fill", element.role, element.name, element.occurrence, text)


def select(element: Element, option: str) -> Action:
    """Choose an option of a list."""
    return Action("select", element.role, element.name, element.occurrence, option)


def scroll(element: Element, direction: str) -> Action:
    """Scroll it one screen ``up`` or ``down``."""
    return Action("scroll", element.role, element.name, element.occurrence, direction)


def fill_then(wanted: Iterable[tuple[Element, str]], submit: Element) -> Action:
    """Fill the first field that does not hold its text yet; when all do, click ``submit``.

    A password field shows how many characters it holds, not which.
    """
    for field, text in wanted:
        if field.value not in (text, MASK * len(text)):
            return fill(field, text)
    return click(submit)


def check_then(boxes: Iterable[Element], wanted: Callable[[Element], bool], submit: Element) -> Action:
    """Click the first box that is not as wanted (checked or not); when all are, click ``submit``."""
    for box in boxes:
        if ("checked" in box.states) != wanted(box):
            return click(box)
    return click(submit)


def after(elements: Sequence[Element], current: Callable[[Element], bool]) -> Element:
    """The element after the first that is ``current``, round to the first; the first one when none is."""
    if not elements:
        raise NotOnPageError("nothing to go through")
    for index, element in enumerate(elements):
        if current(element):
            return elements[(index + 1) % len(elements)]
    return elements[0]
