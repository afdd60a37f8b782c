"""What an observation holds, on small pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headroom.worlds.base import Element

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


def seen(stage: Open, area: str, problem: str = "") -> list[Element]:
    return list(stage(area, problem).look().elements)


@pytest.mark.parametrize(
    ("area", "element"),
    [
        ("<button>Go</button>", Element("button", "Go")),
        ("<input type=submit value=Send>", Element("button", "Send")),
        ("<a href='#'>more</a>", Element("link", "more")),
        ("<span class=alink onclick='1'>word</span>", Element("link", "word")),
        ("<div style='cursor:pointer'>card</div>", Element("button", "card")),
        (
            "<span class='star icon' onclick='1' style='display:inline-block;width:9px;height:9px'></span>",
            Element("button", "star"),
        ),
        ("<div onclick='1' style='background-color:cyan;width:9px;height:9px'></div>", Element("button", "cyan")),
        ("<h2>Title</h2>", Element("heading", "Title")),
        ("<p>plain <b>bold</b> text</p>", Element("text", "plain bold text")),
        ("<img alt=leaf src=''>", Element("img", "leaf")),
        ("<input placeholder=Name:>", Element("textbox", "Name")),
        ("<label>Tea <input type=checkbox checked></label>", Element("checkbox", "Tea", states=("checked",))),
        ("<label for=n>Age:</label><input id=n type=number value=7>", Element("spinbutton", "Age", "7")),
        ("<p>City <input></p>", Element("textbox", "City")),
        ("<input aria-label=pin type=password value=abc>", Element("textbox", "pin", "•••")),
        ("<textarea aria-label=note readonly>hi</textarea>", Element("textbox", "note", "hi", ("readonly",))),
        (
            "<select aria-label=s><option>A<option selected>B</select>",
            Element("combobox", "s", "B", options=("A", "B")),
        ),
        ("<table><tr><td>Color</td><td>red</td></tr></table>", Element("cell", "Color", "red")),
        ("<div role=tab aria-selected=true tabindex=0>One</div>", Element("tab", "One", states=("selected",))),
    ],
)
def test_an_element_has_the_role_and_name_a_reader_would_give(stage: Open, area: str, element: Element) -> None:
    assert seen(stage, area) == [element]


def test_the_goal_is_the_utterance_and_is_not_repeated(stage: Open) -> None:
    look = stage("<p>page</p>").look()
    assert look.utterance == "Do it."
    assert [e.name for e in look.elements] == ["page"]


def test_a_listener_added_by_script_makes_a_button_and_one_taken_away_does_not(stage: Open) -> None:
    area = "<span id=a>one</span><span id=b>two</span>"
    add = "['a','b'].forEach(function (i) { document.getElementById(i).addEventListener('click', note); });"
    take = "document.getElementById('b').removeEventListener('click', note);"
    assert [(e.role, e.name) for e in seen(stage, area, add + take)] == [("button", "one"), ("text", "two")]


def test_a_row_that_can_be_clicked_keeps_the_buttons_in_it(stage: Open) -> None:
    area = (
        "<div style='cursor:pointer' onclick=\"note('row')\"><div>Ann</div><div>Hello</div>"
        "<span class=star onclick=\"note('star');event.stopPropagation()\">*</span></div>"
    )
    page = stage(area)
    assert [(e.role, e.name, e.value) for e in page.look().elements] == [
        ("button", "Ann", "Hello"),
        ("button", "*", ""),
    ]


def test_shapes_are_named_by_size_colour_and_kind(stage: Open) -> None:
    area = (
        "<svg width=100 height=100><circle cx=20 cy=20 r=5 fill=red></circle>"
        "<rect x=50 y=50 width=30 height=30 fill=blue></rect><text x=10 y=80 font-size=10 fill=black>7</text></svg>"
    )
    assert [(e.role, e.name, e.value) for e in seen(stage, area)][:2] == [
        ("img", "small red circle", "20,20"),
        ("img", "large blue rectangle", "65,65"),
    ]
    assert seen(stage, area)[2].name == "small black digit 7"


@pytest.mark.parametrize(
    "tampering",
    [
        "Array.prototype.toJSON = function () { return 1; };",
        "JSON.stringify = function () { return '[]'; };",
        "Object.prototype.extra = 1;",
        "window.__headroom = 1;",
        "document.elementFromPoint = null;",
        "window.setTimeout = null; window.Date = null;",
        "throw new Error('broken');",
        "core.getUtterance = function () { return {toString: null}; };",
        "window.WOB_DONE_GLOBAL = {}; window.WOB_RAW_REWARD_GLOBAL = 'lots';",
        "alert('x'); confirm('y'); prompt('z');",
        "document.body.innerHTML = '';",
        "var f = document.createElement('iframe'); f.srcdoc = '<script>alert(1)<\\/script>'; document.body.append(f);",
        "for (var i = 0; i < 3000; i++) document.body.append(document.createElement('button'));",
        "var x = document.createElement('div'); document.body.append(x); x.textContent = '\\\\ud800'.repeat(9);",
    ],
)
def test_a_hostile_page_gives_an_observation_or_a_failure_but_raises_nothing(stage: Open, tampering: str) -> None:
    look = stage(f"<button>Go</button><!-- {hash(tampering)} -->", tampering).look()
    assert look.failure or look.elements or look.done or "innerHTML" in tampering
    str(look).encode("utf-8")
