"""The wheel's own Selenium environment, driven by this project's actions: the reference for parity and speed.

Ours names an element by role and accessible name; theirs by a reference number in its own list of DOM elements.
The adapter finds the one from the other by text or by position in the page, never by anything of our driver's.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headroom.worlds.base import Action, Observation

# Ours: roles; theirs: tags. The n-th of ours is the n-th of theirs.
FIELD_TAGS = ("input_text", "input_password", "input_number", "textarea", "input_date", "input_time")
BY_POSITION = {
    "textbox": FIELD_TAGS,
    "spinbutton": FIELD_TAGS,
    "searchbox": FIELD_TAGS,
    "checkbox": ("input_checkbox",),
    "radio": ("input_radio",),
    "combobox": ("select",),
}


def missing() -> str:
    """Why the reference cannot run here, or an empty string."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"no {program} on the PATH (Debian packages chromium and chromium-driver)"
    return ""


class SeleniumEnvironment:
    """One task of the wheel, through gymnasium, with integer seeds passed as they are."""

    def __init__(self, task: str, *, wait_milliseconds: float = 0.0, screenshots: bool = False) -> None:
        """Start its browser; ``wait_milliseconds`` is the pause after each action, for pages that animate."""
        import os

        import gymnasium
        import miniwob

        os.environ["MINIWOB_CHROME_BINARY"] = str(Path(shutil.which("chromium") or "chromium"))
        os.environ["MINIWOB_CHROMEDRIVER"] = str(Path(shutil.which("chromedriver") or "chromedriver"))
        gymnasium.register_envs(miniwob)
        self._environment: Any = gymnasium.make(
            f"miniwob/{task}-v1", disable_env_checker=True, wait_ms=wait_milliseconds
        ).unwrapped
        self._screenshots = screenshots
        self._elements: Sequence[dict[str, Any]] = ()

    def reset(self, seed: int) -> str:
        """Start the episode of ``seed`` and return its utterance."""
        observation, _ = self._environment.reset(seed=seed, options={"record_screenshots": self._screenshots})
        self._elements = observation["dom_elements"]
        return str(observation["utterance"])

    def step(self, seen: Observation, action: Action) -> tuple[float, bool]:
        """Take our ``action``, meant for our observation ``seen``; return the raw reward and whether it is over."""
        reference = self.reference(seen, action)
        if action.verb == "click":
            theirs = self._environment.create_action("CLICK_ELEMENT", ref=reference)
        elif action.verb in ("fill", "select"):
            theirs = self._environment.create_action("FOCUS_ELEMENT_AND_TYPE_TEXT", ref=reference)
            theirs["text"] = action.text
        else:
            raise ValueError(f"the adapter does not know the verb {action.verb!r}")
        observation, _, done, _, information = self._environment.step(theirs)
        self._elements = observation["dom_elements"]
        return float(information["raw_reward"]), bool(done)

    def reference(self, seen: Observation, action: Action) -> int:
        """The reference number of the element that ``action`` names on the page ``seen``.

        Raises:
            LookupError: their page has no such element.
        """
        if action.role in BY_POSITION:
            tags = BY_POSITION[action.role]
            ours = [element for element in seen.elements if BY_POSITION.get(element.role) is tags]
            index = next(
                number
                for number, element in enumerate(ours)
                if (element.role, element.name, element.occurrence) == (action.role, action.name, action.occurrence)
            )
            found = [element for element in self._elements if element["tag"] in tags]
        else:
            index = max(action.occurrence, 1) - 1
            found = [element for element in self._elements if _named(element, action.name)]
        if len(found) <= index:
            raise LookupError(f"their page has no {action}")
        # A text beside other children is a pseudo-element of negative number: its parent is what can be clicked.
        return int(found[index]["ref"] if found[index]["ref"] > 0 else found[index]["parent"])

    def close(self) -> None:
        """Close its browser."""
        self._environment.close()

    def __enter__(self) -> SeleniumEnvironment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _named(element: dict[str, Any], name: str) -> bool:
    """By its text, or, for an icon without text, by its class."""
    text = str(element["text"]).strip()
    if text:
        return text == name and element["tag"] not in ("p", "label")
    return name.lower() in str(element["classes"]).lower().split()
