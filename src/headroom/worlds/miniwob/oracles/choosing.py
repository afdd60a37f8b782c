"""Tasks that ask for a choice among what the page offers: boxes, lists, spinners, calendars."""

from __future__ import annotations

import re

from headroom.worlds.base import Action, Element
from headroom.worlds.miniwob.oracles.page import NotOnPageError, Page, check_then, click, fill, select

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

# Words that mean the same to the task; a human knows them, the page does not show them.
SYNONYMS = (
    "big large huge enormous gigantic",
    "small tiny little mini petite",
    "red scarlet crimson vermillion",
    "happy cheerful joyful gleeful delighted",
    "sad unhappy sorrowful miserable tragic",
    "angry mad furious irritated",
    "evil wicked immoral sinful corrupt depraved",
    "wrong incorrect mistaken erroneous",
    "real genuine actual",
    "strange odd peculiar unusual weird",
    "stop cease halt end finish",
    "scared terrified panicked fearful frightened afraid",
    "quiet calm peaceful serene mild",
    "old aged archaic",
    "love like adore favor",
    "kill murder assassinate",
    "keep retain preserve sustain maintain",
    "hide conceal camouflage",
    "hate despise loathe detest dislike",
    "funny humorous amusing comical laughable",
    "fat fleshy plump chubby",
    "stupid dumb dull unwise",
    "delicious savory delectable appetizing",
    "cut slice carve chop",
    "brave courageous fearless",
    "begin start initiate launch",
    "answer reply response",
    "television televisions TV TVs",
    "house home houses homes",
    "fire flame fires flames",
    "pig pork swine",
    "rabbit rabbits bunny bunnies",
    "car cars automobile automobiles vehicle vehicles",
    "water",
)


def radio(page: Page) -> Action:
    """click-option: "Select xY3 and click Submit."."""
    (name,) = page.asked(r"Select (.+) and click Submit")
    option = page.first("radio", name=name)
    return click(page.first("button") if "checked" in option.states else option)


def list_option(page: Page) -> Action:
    """choose-list: "Select Poland from the list and click Submit."."""
    (name,) = page.asked(r"Select (.+) from the list and click Submit")
    options = page.first("combobox")
    return click(page.first("button")) if options.value == name else select(options, name)


def checkboxes(page: Page) -> Action:
    """click-checkboxes, -large, -transfer: "Select a, b and click Submit." or "Select nothing ..."."""
    (names,) = page.asked(r"Select (.+) and click Submit")
    wanted = names.split(", ")
    return check_then(page.all("checkbox"), lambda box: box.name in wanted, page.first("button"))


def similar_checkboxes(page: Page) -> Action:
    """click-checkboxes-soft: "Select words similar to big, fire and click Submit."."""
    (names,) = page.asked(r"similar to (.+) and click Submit")
    wanted = {word for group in SYNONYMS for word in group.split() if set(group.split()) & set(names.split(", "))}
    return check_then(page.all("checkbox"), lambda box: box.name in wanted, page.first("button"))


def spinner(page: Page) -> Action:
    """use-spinner: by its arrows, one step a click; the field refuses typing."""
    (number,) = page.asked(r"Select (-?\d+) with")
    value = int(page.first("textbox", "spinbutton").value or "0")
    if value == int(number):
        return click(page.first("button", name="Submit"))
    return click(page.first("button", name="up" if int(number) > value else "down"))


def calendar_date(page: Page) -> Action:
    """choose-date and its variants: open the calendar, page to the month, take the day, Submit."""
    month, day, year = (int(part) for part in page.asked(r"(\d+)/(\d+)/(\d+)"))
    field = page.first("textbox")
    if field.value == f"{month:02d}/{day:02d}/{year}":
        return click(page.first("button", name="Submit"))
    title = re.search(rf"({'|'.join(MONTHS)}) ?(\d{{4}})", " ".join(element.name for element in page.elements))
    if title is None:
        return click(field)
    distance = 12 * (year - int(title[2])) + month - 1 - MONTHS.index(title[1])
    if distance:
        return click(page.first(name="Next" if distance > 0 else "Prev"))
    return click(page.first("link", name=str(day)))


def autocomplete(page: Page) -> Action:
    """use-autocomplete: type the beginning, take a suggestion with the right end, Submit."""
    start, end = (*page.quoted(), "")[:2]
    field = page.first("textbox", "combobox", "searchbox")

    def fits(name: str) -> bool:
        return name.startswith(start) and name.endswith(end)

    if len(field.value) > len(start) and fits(field.value):
        return click(page.first("button", name="Submit"))
    for suggestion in page.all("option", "menuitem"):
        if fits(suggestion.name):
            return click(suggestion)
    return fill(field, start)


def odd_or_even(page: Page) -> Action:
    """odd-or-even: three numbers, each between its own Odd and Even button."""
    numbers = [int(element.name) for element in page.elements if re.fullmatch(r"-?\d+", element.name)]
    for row, number in enumerate(numbers, 1):
        button = page.nth(row, "button", name="Odd" if number % 2 else "Even")
        if "selected" not in button.states:
            return click(button)
    return click(page.first("button", name="Submit"))


def food(page: Page) -> Action:
    """order-food: two dishes by name, or some number of dishes of one kind; + adds one of the dish before it."""
    plus: dict[str, Element] = {}
    ordered: dict[str, int] = {}
    kinds: dict[str, set[str]] = {}
    dish = ""
    for element in page.elements:
        if element.name == "+":
            plus[dish] = element
        elif element.role == "img":
            kinds[dish].add(element.name)
        elif element.role == "text" and re.fullmatch(r"\d+", element.name):
            ordered[dish] = int(element.name)
        elif element.role == "text":
            dish = element.name
            kinds[dish] = set()
    order = page.first("button", name="Order!")
    if match := re.search(r"Order (\d) items that are (\S+)", page.utterance):
        dish = next(name for name in plus if match[2] in kinds[name])
        return click(order if ordered.get(dish, 0) == int(match[1]) else plus[dish])
    (names,) = page.asked(r"one of each item: (.*)")
    for name in re.split(r",\s+", names.strip()):
        if not ordered.get(name):
            if name not in plus:
                raise NotOnPageError(name)
            return click(plus[name])
    return click(order)
