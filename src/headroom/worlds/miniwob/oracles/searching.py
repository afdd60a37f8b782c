"""Tasks where the target has to be found first: behind tabs, in trees, over pages, by trial."""

from __future__ import annotations

import re

from headroom.worlds.base import Action, Element, Observation
from headroom.worlds.miniwob.oracles.page import NotOnPageError, Page, after, click, fill


def link_behind_tabs(page: Page) -> Action:
    """click-tab-2 and its variants: go round the tabs until the link shows."""
    name = page.quoted()[0]
    if page.shows("link", name=name):
        return click(page.first("link", name=name))
    return click(after(page.all("tab"), lambda tab: "selected" in tab.states))


def link_in_sections(page: Page) -> Action:
    """click-collapsible-2: open the sections in turn until the link shows."""
    name = page.quoted()[0]
    if page.shows("link", name=name):
        return click(page.first("link", name=name))
    sections = [element for element in page.elements if element.name.startswith("Section #")]
    return click(after(sections, lambda section: "expanded" in section.states))


def name_in_tree(page: Page) -> Action:
    """navigate-tree: open the folders that are closed, top first, until the name shows."""
    name = page.quoted()[0]
    if page.shows("treeitem", name=name):
        return click(page.first("treeitem", name=name))
    for item in page.all("treeitem"):
        if "collapsed" in item.states:
            return click(item)
    raise NotOnPageError(name)


def search_result(page: Page) -> Action:
    """search-engine: search, turn to the page of three results, click the result."""
    name = page.quoted()[0]
    (position,) = page.asked(r"the (\d)(?:st|nd|rd|th) search result")
    field = page.first("textbox")
    if field.value != name:
        return fill(field, name)
    pages = {link.name: link for link in page.all("link") if link.name in ("1", "2", "3")}
    if not pages:
        return click(page.first("button", name="Search"))
    wanted = str((int(position) + 2) // 3)
    if "selected" not in pages[wanted].states:
        return click(pages[wanted])
    results = [link for link in page.all("link") if link.name not in ("<", ">", "1", "2", "3", "First", "Last")]
    return click(results[(int(position) - 1) % 3])


def posts_by_user(page: Page) -> Action:
    """social-media-some: one kind of button on some of a user's posts, then Submit."""
    kind, count, user = page.asked(r'"(\w+)" button on (\d+) posts? by (\S+)')
    return _press_then_submit(page, _post_buttons(page, user, kind)[: int(count)])


def all_posts_by_user(page: Page) -> Action:
    """social-media-all: one kind of button on all of a user's posts, then Submit."""
    kind, user = page.asked(r'"(\w+)" button on all posts by (\S+)')
    return _press_then_submit(page, _post_buttons(page, user, kind))


def _press_then_submit(page: Page, wanted: list[Element]) -> Action:
    """Press the wanted buttons and release all others; when that is so, Submit."""
    for button in page.all("button"):
        if ("pressed" in button.states) != (button in wanted):
            return click(button)
    return click(page.first("button", name="Submit"))


def _post_buttons(page: Page, user: str, kind: str) -> list[Element]:
    """The buttons of this kind on this user's posts: those that stand after the user's name."""
    buttons, author = [], ""
    for element in page.elements:
        if "@" in element.name:
            author = element.name.split()[-1]
        elif author == user and element.role == "button" and element.name.lower() == kind.lower():
            buttons.append(element)
    return buttons


def guessed_number(page: Page) -> Action:
    """guess-number: halve what the page's answers so far leave open."""
    low, high = 0, 9
    for observation in page.observations:
        for element in observation.elements:
            if match := re.search(r"number is (lower|higher) than (\d+)", element.name):
                if match[1] == "lower":
                    high = min(high, int(match[2]) - 1)
                else:
                    low = max(low, int(match[2]) + 1)
    guess = str((low + high) // 2)
    field = page.first("spinbutton", "textbox")
    return click(page.first("button")) if field.value == guess else fill(field, guess)


def generated_number(page: Page) -> Action:
    """generate-number: generate until the number fits, then submit."""
    shown = [int(element.name) for element in page.elements if re.fullmatch(r"\d+", element.name)]
    if shown and _fits(page.utterance, shown[0]):
        return click(page.first("button", name="Submit"))
    return click(page.first("button", name="Generate"))


def _fits(utterance: str, number: int) -> bool:
    if match := re.search(r"(less|greater) than (\d+)", utterance):
        return number < int(match[2]) if match[1] == "less" else number > int(match[2])
    return number % 2 == (1 if "odd" in utterance else 0)


def greatest_card(page: Page) -> Action:
    """find-greatest: look at every card, go back to the greatest, submit. One card at a time lies open."""
    seen: dict[int, int] = {}
    for observation in page.observations:
        seen |= {place: int(card.name) for place, card in _cards(observation) if card.name != "card"}
    cards = dict(_cards(page.observations[-1]))
    if not cards:
        raise NotOnPageError("no cards")
    wanted = next((place for place in cards if place not in seen), None) or max(seen, key=seen.__getitem__)
    if cards[wanted].name == "card":
        return click(cards[wanted])
    return click(page.first("button", name="Submit"))


def _cards(observation: Observation) -> list[tuple[int, Element]]:
    """(place from 1, card): named by its number when it lies open, "card" when it does not."""
    cards = (element for element in observation.elements if re.fullmatch(r"card|\d+", element.name))
    return list(enumerate(cards, 1))


def contact_detail(page: Page) -> Action:
    """phone-book: turn the pages until the name stands above, then click the phone, email or address."""
    name, kind = page.asked(r"Find (.+) in the contact book and click on their (phone|email|address)")
    if page.shows(name=name):
        links = [link for link in page.all("link") if link.name not in ("<", ">", "First", "Last")]
        return click(links[("phone", "email", "address").index(kind)])
    return click(page.first("link", name=">"))
