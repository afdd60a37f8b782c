"""Tasks that one click solves, or a fixed sequence of clicks."""

from __future__ import annotations

import re

from headroom.worlds.base import Action, Outcome
from headroom.worlds.miniwob.oracles.page import Page, click


def only_button(page: Page) -> Action:
    """click-test, click-dialog: there is one button."""
    return click(page.first("button"))


def button_in_capitals(page: Page) -> Action:
    """click-test-2, click-test-transfer: "Click button ONE."."""
    (name,) = page.asked(r"button ([A-Z]+)")
    return click(page.first("button", name=name))


def quoted_button(page: Page) -> Action:
    """click-button, unicode-test: 'Click on the "next" button.'; any button of that name counts."""
    return click(page.first("button", name=page.quoted()[0]))


def quoted_link(page: Page) -> Action:
    """click-link: 'Click on the link "sit,".'; any link of that name counts."""
    return click(page.first("link", name=page.quoted()[0]))


def dialog_button(page: Page) -> Action:
    """click-dialog-2: Cancel, OK, or the x in the corner, whose accessible name is Close."""
    name = page.quoted()[0]
    return click(page.first("button", name="Close" if name == "x" else name))


def numbered_tab(page: Page) -> Action:
    """click-tab: "Click on Tab #2."."""
    (name,) = page.asked(r"(Tab #\d)")
    return click(page.first("tab", name=name))


def only_field(page: Page) -> Action:
    """focus-text: there is one text box."""
    return click(page.first("textbox"))


def nth_field(page: Page) -> Action:
    """focus-text-2: "Focus into the 2nd input textbox."."""
    (number,) = page.asked(r"(\d)(?:st|nd|rd|th)")
    return click(page.nth(int(number), "textbox"))


def one_then_two(page: Page) -> Action:
    """click-button-sequence: the page does not show what was pressed, so the oracle counts the clicks that landed."""
    landed = [
        action
        for action, after in zip(page.actions, page.observations[1:], strict=True)
        if action.verb == "click" and action.name == "ONE" and after.outcome is Outcome.OK
    ]
    return click(page.first("button", name="TWO" if landed else "ONE"))


def expand_then_submit(page: Page) -> Action:
    """click-collapsible: open the one section, then Submit."""
    section = page.find(lambda element: element.name.startswith("Section #"))
    if "expanded" not in section.states:
        return click(section)
    return click(page.first("button", name="Submit"))


def best_ticket(page: Page) -> Action:
    """buy-ticket: four offers, each a duration ("7h 5m") and a button ("Book for $512").

    Durations are shown to the minute and compared to the millisecond: on one page in 150 two look the same.
    """
    (superlative,) = page.asked(r"the (cheapest|shortest|longest|most expensive)")
    books = [element for element in page.elements if element.name.startswith("Book for $")]
    durations = [match for element in page.elements if (match := re.fullmatch(r"(\d+)h (\d+)m", element.name))]
    price = {book: int(book.name.removeprefix("Book for $")) for book in books}
    minutes = {book: 60 * int(duration[1]) + int(duration[2]) for book, duration in zip(books, durations, strict=True)}
    by, pick = {
        "cheapest": (price, min),
        "most expensive": (price, max),
        "shortest": (minutes, min),
        "longest": (minutes, max),
    }[superlative]
    return click(pick(books, key=by.__getitem__))
