"""Tasks that ask for text in fields, then Submit."""

from __future__ import annotations

import re

from headroom.worlds.base import Action
from headroom.worlds.miniwob.oracles.page import FIELDS, NotOnPageError, Page, click, fill_then


def quoted_text(page: Page) -> Action:
    """enter-text, enter-text-dynamic: 'Enter "Kasie" into the text field and press Submit.'."""
    return fill_then([(page.first("textbox"), page.quoted()[0])], page.first("button"))


def cased_text(page: Page) -> Action:
    """enter-text-2: 'Type "KASIE" in all lower case letters ...'."""
    text = page.quoted()[0]
    text = text.upper() if "upper case" in page.utterance else text.lower()
    return fill_then([(page.first("textbox"), text)], page.first("button"))


def password_twice(page: Page) -> Action:
    """enter-password: the same password in both fields."""
    return fill_then([(field, page.quoted()[0]) for field in page.all("textbox")], page.first("button"))


def user_and_password(page: Page) -> Action:
    """login-user, login-user-popup: a popup that gets in the way is cancelled."""
    if page.shows("button", name="Cancel"):
        return click(page.first("button", name="Cancel"))
    return fill_then(zip(page.all("textbox"), page.quoted(), strict=False), page.first("button"))


def date(page: Page) -> Action:
    """enter-date: 03/25/2014, typed as the field wants it, 2014-03-25."""
    month, day, year = page.asked(r"(\d\d)/(\d\d)/(\d{4})")
    return fill_then([(page.first(*FIELDS), f"{year}-{month}-{day}")], page.first("button"))


def time(page: Page) -> Action:
    """enter-time: 1:05 PM, typed as the field wants it, 13:05."""
    hour, minute, half = page.asked(r"(\d+):(\d\d)\s*([AP])M")
    value = f"{int(hour) % 12 + (12 if half == 'P' else 0):02d}:{minute}"
    return fill_then([(page.first(*FIELDS), value)], page.first("button"))


def table_value(page: Page) -> Action:
    """read-table: the value of the row that the utterance names."""
    (key,) = page.asked(r"value of (.+) into the text field")
    return fill_then([(page.first("textbox"), page.first("cell", name=key).value)], page.first("button"))


def table_values(page: Page) -> Action:
    """read-table-2: two fields, each labelled with a key of the table."""
    wanted = [(field, page.first("cell", name=field.name).value) for field in page.all("textbox")]
    return fill_then(wanted, page.first("button"))


def nth_word(page: Page) -> Action:
    """find-word: "Find the 4th word in the paragraph, ..."; punctuation does not belong to the word."""
    (number,) = page.asked(r"(\d+)(?:st|nd|rd|th) word")
    words = " ".join(element.name for element in page.all("text")).split()
    word = re.sub(r"[^a-zA-Z]", "", words[int(number) - 1])
    return fill_then([(page.first("textbox"), word)], page.first("button"))


def copied_text(page: Page) -> Action:
    """copy-paste, copy-paste-2: the text of the (1st, 2nd, 3rd) text area into the field that was empty at first."""
    match = re.search(r"(\d)(?:st|nd|rd) text area", page.utterance)
    at_first = [element.value for element in page.observations[0].elements if element.role == "textbox"]
    areas = [place for place, value in enumerate(at_first, 1) if value]
    targets = [place for place, value in enumerate(at_first, 1) if not value]
    source = page.nth(areas[int(match[1]) - 1 if match else 0], "textbox")
    return fill_then([(page.nth(targets[0], "textbox"), source.value)], page.first("button"))


def arithmetic(page: Page) -> Action:
    """simple-arithmetic: "3 x 4 =", one operation."""
    for element in page.elements:
        if match := re.fullmatch(r"(\d) ([-+x]) (\d) =", element.name.strip()):
            left, right = int(match[1]), int(match[3])
            result = {"+": left + right, "-": left - right, "x": left * right}[match[2]]
            return fill_then([(page.first("textbox"), str(result))], page.first("button"))
    raise NotOnPageError("no equation")


def algebra(page: Page) -> Action:
    """simple-algebra: "x + 3 = 50" or "3 - x = 50"."""
    for element in page.elements:
        if match := re.fullmatch(r"(x|\d) ([-+]) (x|\d) = (\d+)", element.name.strip()):
            left, sign, right, total = match.groups()
            if sign == "+":
                result = int(total) - int(right if left == "x" else left)
            else:
                result = int(total) + int(right) if left == "x" else int(left) - int(total)
            return fill_then([(page.first("textbox"), str(result))], page.first("button"))
    raise NotOnPageError("no equation")


def film_search(page: Page) -> Action:
    """multi-layouts, multi-orderings: three labelled fields in any order, a button of any name."""
    genre, director, year = page.asked(r"Search for (.+) movies directed by (.+) from year (\d+)")
    wanted = {
        page.labelled("genre"): genre,
        page.labelled("director"): director,
        page.labelled("year", "date"): year,
    }
    fields = [(field, wanted[field]) for field in page.all("textbox") if field in wanted]
    return fill_then(fields, page.first("button"))


def radio_and_number(page: Page) -> Action:
    """form-sequence-2: one of three radio buttons, a number into one of three fields."""
    radio_number, number, field_number = page.asked(r'the (\d)\w\w radio .* "(-?\d+)" into the (\d)')
    radio = page.nth(int(radio_number), "radio")
    if "checked" not in radio.states:
        return click(radio)
    wanted = [(field, number if i == int(field_number) else "") for i, field in enumerate(page.all("textbox"), 1)]
    return fill_then(wanted, page.first("button"))
