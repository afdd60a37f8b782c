"""Tasks that ask for a choice among what the page offers: boxes, lists, spinners, calendars."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headroom.worlds.base import Action, Element
from headroom.worlds.miniwob.oracles.page import Page, check_then, click, fill, select

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
    date = page.first("textbox")
    if date.value == f"{month:02d}/{day:02d}/{year}":
        return click(page.first("button", name="Submit"))
    title = re.search(rf"({'|'.join(MONTHS)}) ?(\d{{4}})", " ".join(element.name for element in page.elements))
    if title is None:
        return click(date)
    distance = 12 * (year - int(title[2])) + month - 1 - MONTHS.index(title[1])
    if distance:
        return click(page.first(name="Next" if distance > 0 else "Prev"))
    return click(page.first("link", name=str(day)))


def autocomplete(page: Page) -> Action:
    """use-autocomplete: type the beginning, take a suggestion with the right end, Submit."""
    start, end = (*page.quoted(), "")[:2]
    entry = page.first("textbox", "combobox", "searchbox")

    def fits(name: str) -> bool:
        return name.startswith(start) and name.endswith(end)

    suggestions = [suggestion for suggestion in page.all("option", "menuitem") if fits(suggestion.name)]
    # What was typed is only a beginning while a suggestion is open that could complete it.
    if fits(entry.value) and (entry.value != start or end or not suggestions):
        return click(page.first("button", name="Submit"))
    return click(suggestions[0]) if suggestions else fill(entry, start)


def odd_or_even(page: Page) -> Action:
    """odd-or-even: three numbers, each between its own Odd and Even button."""
    numbers = [int(element.name) for element in page.elements if re.fullmatch(r"-?\d+", element.name)]
    for row, number in enumerate(numbers, 1):
        button = page.nth(row, "button", name="Odd" if number % 2 else "Even")
        if "selected" not in button.states:
            return click(button)
    return click(page.first("button", name="Submit"))


@dataclass
class _Dish:
    """What the page shows of a dish: its kinds (icons), how many are ordered, the button that adds one."""

    name: str
    kinds: set[str] = field(default_factory=set)
    ordered: int = 0
    plus: Element | None = None


def food(page: Page) -> Action:
    """order-food: two dishes by name, or some number of dishes of one kind (of the first such dish), then Order!."""
    dishes = _menu(page)
    if match := re.search(r"Order (\d) items that are (\S+)", page.utterance):
        suitable = [dish.name for dish in dishes if match[2] in dish.kinds][:1]
        wanted = dict.fromkeys(suitable, int(match[1]))
    else:
        (names,) = page.asked(r"one of each item: (.*)")
        wanted = dict.fromkeys(re.split(r",\s+", names.strip()), 1)
    for dish in dishes:
        if dish.ordered < wanted.get(dish.name, 0) and dish.plus is not None:
            return click(dish.plus)
    return click(page.first("button", name="Order!"))


def _menu(page: Page) -> list[_Dish]:
    """The dishes in page order: a name, its icons, -, the number ordered (when there is one), +."""
    dishes: list[_Dish] = []
    for element in page.elements:
        if element.role == "text" and not re.fullmatch(r"\d+", element.name):
            dishes.append(_Dish(element.name))
        elif dishes and element.role == "img":
            dishes[-1].kinds.add(element.name)
        elif dishes and element.role == "text":
            dishes[-1].ordered = int(element.name)
        elif dishes and element.name == "+":
            dishes[-1].plus = element
    return dishes
