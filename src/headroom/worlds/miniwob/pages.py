"""Open pages of one browser: loading a task, playing episodes on it, taking its picture."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from headroom.worlds.base import Element, History, Observation, Outcome
from headroom.worlds.miniwob.browser import HEIGHT, WIDTH, Browser, BrowserError, RefusedCallError
from headroom.worlds.miniwob.tasks import REBUILD

SCRIPTS = ("clock.js", "names.js", "observe.js", "hand.js", "keys.js", "act.js", "rebuild.js", "run.js")
RECYCLE_EPISODES = 1000  # a page that has played this many is loaded anew, so that nothing can pile up in it
GRACE = 1.25  # of the page's own limit; a later answer is a hang of the browser


class PageError(BrowserError):
    """One page failed to answer, or answered nonsense; other pages are not affected."""


@cache
def injected_script() -> str:
    """What runs in every page before the page's own scripts: the parts in one scope."""
    package = files("headroom.worlds.miniwob")
    parts = [package.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "(() => {\n'use strict';\nconst H = {};\n" + "\n".join(parts) + "\n})();"


@dataclass(frozen=True, slots=True)
class Job:
    """One history to play on a page: from a reset, or onwards from where the page stands."""

    history: History
    continues: int = -1
    """Number of actions that the page has already played; -1 for a reset."""
    boxes: bool = False

    def message(self) -> dict[str, Any]:
        """What the injected script expects."""
        actions = self.history.actions[max(0, self.continues) :]
        return {
            "seed": self.history.seed,
            "fresh": self.continues < 0,
            "rebuild": self.history.task in REBUILD,
            "actions": [asdict(action) for action in actions],
            "boxes": self.boxes,
        }


@dataclass(slots=True)
class Page:
    """A tab, the task it has loaded and the point of an episode where it stands."""

    target: str
    session: str
    task: str = ""
    state: History | None = None
    episodes: int = 0
    last_used: int = field(default=0)


def open_page(browser: Browser, timeout: float) -> Page:
    """Open a tab with the injected script in place.

    Raises:
        BrowserError: the browser refuses or does not answer.
    """
    create = {"url": "about:blank", "width": WIDTH, "height": HEIGHT}
    if browser.begin_frame:
        create["enableBeginFrameControl"] = True
    target = browser.call("Target.createTarget", create, timeout=timeout)["targetId"]
    attach = {"targetId": target, "flatten": True}
    session = browser.call("Target.attachToTarget", attach, timeout=timeout)["sessionId"]
    for method, parameters in (
        ("Page.enable", {}),
        ("Page.addScriptToEvaluateOnNewDocument", {"source": injected_script()}),
        ("Emulation.setFocusEmulationEnabled", {"enabled": True}),
    ):
        browser.call(method, parameters, session=session, timeout=timeout)
    return Page(target, session)


def post_load(browser: Browser, page: Page, task: str, url: str) -> int:
    """Ask a page to load a task; the answer comes when the new document has replaced the old one."""
    page.task, page.state, page.episodes = task, None, 0
    return browser.post("Page.navigate", {"url": url}, session=page.session)


def post_run(browser: Browser, page: Page, jobs: Sequence[Job], limit_seconds: float) -> int:
    """Ask a loaded page to play jobs, one after the other, in one call."""
    # JSON in ASCII is a JavaScript literal: what an agent wrote travels as data and is never code.
    argument = json.dumps([job.message() for job in jobs], ensure_ascii=True)
    page.episodes += sum(job.continues < 0 for job in jobs)
    page.state = None
    return browser.post(
        "Runtime.evaluate",
        {
            "expression": f"__headroom.run({argument})",
            "awaitPromise": True,
            "returnByValue": True,
            "timeout": limit_seconds * 1000,
        },
        session=page.session,
    )


def loaded(answer: dict[str, Any]) -> None:
    """Check the answer of :func:`post_load`.

    Raises:
        PageError: the page did not load.
    """
    problem = answer.get("error", {}).get("message") or answer.get("result", {}).get("errorText")
    if problem:
        raise PageError(f"the page does not load ({problem})")


def results(answer: dict[str, Any], expected: int) -> list[dict[str, Any]]:
    """The raw results in the answer of :func:`post_run`, one a job.

    Raises:
        PageError: the page threw, was interrupted, or answered something else.
    """
    if "error" in answer:
        raise PageError(f"the page gave no answer ({answer['error'].get('message', 'error')})")
    result = answer.get("result", {})
    if thrown := result.get("exceptionDetails"):
        text = thrown.get("exception", {}).get("description") or thrown.get("text", "")
        raise PageError(f"the page threw ({text.splitlines()[0] if text else 'no reason'})")
    value = result.get("result", {}).get("value")
    try:
        raw = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        raise PageError("the page's answer is not JSON") from None
    if not isinstance(raw, list) or len(raw) != expected or not all(isinstance(item, dict) for item in raw):
        raise PageError("the page's answer has another shape")
    return raw


def observation(raw: dict[str, Any]) -> Observation:
    """A checked observation from one raw result.

    Raises:
        PageError: the page failed in this job, or its result has another shape.
    """
    if "error" in raw:
        raise PageError(f"the page failed ({str(raw['error']).splitlines()[0]})")
    try:
        reward = raw["reward"]
        if not isinstance(raw["utterance"], str) or not isinstance(raw["done"], bool):
            raise TypeError
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not -1.0 <= reward <= 1.0:
            raise PageError(f"the page pays {reward!r}, which is no reward")
        return Observation(
            utterance=raw["utterance"],
            elements=tuple(_element(item) for item in raw["elements"]),
            outcome=Outcome(raw["outcome"]),
            raw_reward=float(reward),
            done=raw["done"],
        )
    except (KeyError, TypeError, ValueError):
        raise PageError("the page's observation has another shape") from None


def boxes(raw: dict[str, Any]) -> tuple[tuple[Element, float, float, float, float], ...]:
    """Elements with their boxes (left, top, width, height; CSS pixels of the window) from a raw result."""
    elements = observation(raw).elements
    return tuple((element, *map(float, box)) for element, box in zip(elements, raw["boxes"], strict=True))  # type: ignore[misc]


def _element(item: Any) -> Element:
    role, name, value, states, occurrence, options = item
    strings = (role, name, value, *states, *options)
    if not all(isinstance(text, str) for text in strings) or not isinstance(occurrence, int):
        raise TypeError
    return Element(role, name, value, tuple(states), occurrence, tuple(options))


def screenshot(browser: Browser, page: Page, timeout: float) -> bytes:
    """A PNG of the page's window as it stands. Painting lets real frames through, so the state is given up."""
    page.state = None
    if browser.begin_frame:
        shot = {"screenshot": {"format": "png"}}
        for _ in range(5):  # the first frames after a load may carry no picture
            answer = browser.call("HeadlessExperimental.beginFrame", shot, session=page.session, timeout=timeout)
            if data := answer.get("screenshotData"):
                return base64.b64decode(data)
        raise PageError("the browser painted nothing")
    answer = browser.call("Page.captureScreenshot", {"format": "png"}, session=page.session, timeout=timeout)
    return base64.b64decode(answer["data"])


def close_page(browser: Browser, page: Page) -> None:
    """Close a tab; a browser that refuses is no matter."""
    try:
        browser.post("Target.closeTarget", {"targetId": page.target})
    except RefusedCallError:
        return
