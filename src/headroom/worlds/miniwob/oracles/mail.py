"""The mailbox tasks: find the mail by its sender, then delete, star, answer or forward it."""

from __future__ import annotations

from headroom.worlds.base import Action, Element
from headroom.worlds.miniwob.oracles.page import NotOnPageError, Page, click, fill


def mailbox(page: Page) -> Action:
    """email-inbox and its variants."""
    (sender,) = page.asked(r"by (\S+)")
    if "trash icon" in page.utterance or "delete" in page.utterance:
        return click(_icon(page, sender, "trash"))
    if "star icon" in page.utterance:
        return click(_icon(page, sender, "star"))
    if "reply" in page.utterance:
        return _write(page, sender, "reply", page.quoted()[0])
    (receiver,) = page.asked(r"forward that email to (\S+)\.")
    return _write(page, sender, "forward", receiver)


def _icon(page: Page, sender: str, name: str) -> Element:
    """The icon of the first mail by ``sender``: the first that stands after the name."""
    met = False
    for element in page.elements:
        met = met or element.name == sender
        if met and element.role == "button" and element.name.startswith(name):
            return element
    raise NotOnPageError(f"{name} of {sender}")


def _write(page: Page, sender: str, way: str, text: str) -> Action:
    """Open the mail, take reply or forward, fill the field, send."""
    if page.shows("button", name=f"send {way}"):
        field = page.all("textbox")[0]
        return click(page.first("button", name=f"send {way}")) if field.value == text else fill(field, text)
    for element in page.elements:
        if element.name.lower() == way:
            return click(element)
    return click(page.first(name=sender))
