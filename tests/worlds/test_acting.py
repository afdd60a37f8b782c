"""What a hand can and cannot do, on small pages: the agent gets no shortcut that a person would not have."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from headroom.worlds.base import Action, Element, History, Observation, Outcome

pytestmark = pytest.mark.browser

Open = Callable[..., "Stage"]  # noqa: F821 - the fixture's class
ON_CLICK = "document.getElementById('target').onclick = function () { note('clicked'); };"


def click(role: str, name: str, occurrence: int = 0) -> Action:
    return Action("click", role, name, occurrence)


def fill(text: str, name: str = "field", role: str = "textbox") -> Action:
    return Action("fill", role, name, 0, text)


def press(key: str, role: str = "", name: str = "") -> Action:
    return Action("press", role, name, 0, key)


def logged(observation: Observation) -> list[str]:
    """What the page noted."""
    return observation.elements[-1].name.split() if observation.elements[-1].role == "text" else []


def element(observation: Observation, role: str) -> Element:
    return next(candidate for candidate in observation.elements if candidate.role == role)


# -- clicks


def test_a_click_sends_the_whole_sequence_of_events(stage: Open) -> None:
    types = "['pointerdown','mousedown','focus','pointerup','mouseup','click']"
    page = stage(
        "<button id=target>Go</button>",
        f"var target = document.getElementById('target');"
        f"{types}.forEach(function (t) {{ target['on' + t] = function () {{ note(t); }}; }});",
    )
    seen = page.act(click("button", "Go"))
    assert seen.outcome is Outcome.OK
    assert logged(seen) == ["pointerdown", "mousedown", "focus", "pointerup", "mouseup", "click"]


def test_a_covered_button_cannot_be_clicked(stage: Open) -> None:
    cover = "<div style='position:absolute;left:0;top:40px;width:160px;height:160px;background:red'></div>"
    page = stage(f"<button id=target>Go</button>{cover}", ON_CLICK)
    seen = page.act(click("button", "Go"))
    assert seen.outcome is Outcome.OCCLUDED
    assert logged(seen) == []


def test_a_partly_covered_button_is_clicked_where_it_shows(stage: Open) -> None:
    cover = "<div style='position:absolute;left:0;top:0;width:30px;height:200px;background:red'></div>"
    page = stage(f"<button id=target style='width:45px'>Go</button>{cover}", ON_CLICK)
    assert logged(page.act(click("button", "Go"))) == ["clicked"]


def test_a_disabled_button_says_so_and_gets_no_event(stage: Open) -> None:
    page = stage("<fieldset disabled><button id=target>Go</button></fieldset>", ON_CLICK)
    assert "disabled" in element(page.look(), "button").states
    seen = page.act(click("button", "Go"))
    assert (seen.outcome, logged(seen)) == (Outcome.DISABLED, [])


def test_an_element_outside_a_scrolled_box_is_scrolled_to(stage: Open) -> None:
    page = stage(
        "<div id=box style='height:50px;overflow-y:scroll'><div style='height:500px'>far</div>"
        "<button id=target>Go</button></div>",
        ON_CLICK + "document.getElementById('box').onscroll = function () { note('scrolled'); };",
    )
    assert logged(page.act(click("button", "Go"))) == ["scrolled", "clicked"]


def test_what_overflow_hidden_cuts_off_is_not_listed(stage: Open) -> None:
    page = stage("<div style='height:20px;overflow:hidden'><p>near</p><p style='margin-top:90px'>far</p></div>")
    assert [e.name for e in page.look().elements] == ["near"]


@pytest.mark.parametrize("style", ["display:none", "visibility:hidden", "opacity:0", "position:absolute;left:-900px"])
def test_what_cannot_be_seen_is_not_listed_and_not_clickable(stage: Open, style: str) -> None:
    page = stage(f"<button id=target style='{style}'>Go</button><button>Other</button>", ON_CLICK)
    assert [e.name for e in page.look().elements] == ["Other"]
    assert page.act(click("button", "Go")).outcome is Outcome.UNKNOWN_TARGET


def test_equal_names_need_a_number(stage: Open) -> None:
    page = stage(
        "<button onclick=\"note('first')\">Go</button><button onclick=\"note('second')\">Go</button>",
    )
    assert [e.occurrence for e in page.look().elements] == [1, 2]
    assert page.act(click("button", "Go")).outcome is Outcome.AMBIGUOUS
    assert page.act(click("button", "Go", 3)).outcome is Outcome.UNKNOWN_TARGET
    assert logged(page.act(click("button", "Go", 2))) == ["second"]


def test_a_prevented_mousedown_keeps_the_focus_where_it_was(stage: Open) -> None:
    page = stage(
        "<input id=field aria-label=field><button id=target>Go</button>",
        "document.getElementById('target').onmousedown = function (e) { e.preventDefault(); };",
    )
    page.act(click("textbox", "field"))
    assert "focused" in element(page.act(click("button", "Go")), "textbox").states


def test_a_click_on_a_checkbox_toggles_it_once(stage: Open) -> None:
    page = stage("<label><input type=checkbox onchange=\"note('change')\"> Tea</label>")
    seen = page.act(click("checkbox", "Tea"))
    assert "checked" in element(seen, "checkbox").states
    assert logged(seen) == ["change"]
    assert "checked" not in element(page.act(click("checkbox", "Tea")), "checkbox").states


def test_nothing_leaves_the_page(stage: Open) -> None:
    page = stage(
        "<a href='http://example.org/'>away</a><form action='/x'><button>Send</button></form>"
        "<a href='#' onclick=\"note('stayed')\">here</a>",
    )
    assert page.act(click("link", "away")).failure == ""
    assert page.act(click("button", "Send")).failure == ""
    assert logged(page.act(click("link", "here"))) == ["stayed"]


# -- typing


def test_typing_sends_key_and_input_events_and_replaces_the_text(stage: Open) -> None:
    page = stage(
        "<input id=target aria-label=field value=old>",
        "['keydown','keypress','beforeinput','input','keyup'].forEach(function (t) {"
        " document.getElementById('target')['on' + t] = function () { note(t); };"
        " document.getElementById('target').addEventListener('beforeinput', function () {}); });",
    )
    seen = page.act(fill("x"))
    assert element(seen, "textbox").value == "x"
    assert [name for name in logged(seen) if name != "beforeinput"] == ["keydown", "keypress", "input", "keyup"]


def test_a_page_that_prevents_keys_cannot_be_typed_into(stage: Open) -> None:
    prevent = "document.getElementById('target').onkeydown = function (e) { e.preventDefault(); };"
    page = stage("<input id=target aria-label=field value=0>", prevent)
    assert element(page.act(fill("5")), "textbox").value == "0"


@pytest.mark.parametrize(("attribute", "outcome"), [("readonly", Outcome.DISABLED), ("disabled", Outcome.DISABLED)])
def test_a_field_that_is_closed_stays_as_it_is(stage: Open, attribute: str, outcome: Outcome) -> None:
    page = stage(f"<input aria-label=field value=old {attribute}>")
    seen = page.act(fill("new"))
    assert (seen.outcome, element(seen, "textbox").value) == (outcome, "old")


def test_a_covered_field_cannot_be_typed_into(stage: Open) -> None:
    cover = "<div style='position:absolute;left:0;top:0;width:400px;height:210px;background:red'></div>"
    page = stage(f"<input aria-label=field value=old>{cover}")
    seen = page.act(fill("new"))
    assert (seen.outcome, element(seen, "textbox").value) == (Outcome.OCCLUDED, "old")


def test_maxlength_holds(stage: Open) -> None:
    page = stage("<input aria-label=field maxlength=3>")
    assert element(page.act(fill("abcdef")), "textbox").value == "abc"


def test_change_comes_when_the_field_is_left_and_only_if_it_changed(stage: Open) -> None:
    page = stage("<input aria-label=field value=a onchange=\"note('change')\"><button>Go</button>")
    assert logged(page.act(fill("b"))) == []
    assert logged(page.act(click("button", "Go"))) == ["change"]
    page.act(fill("b"))
    assert logged(page.act(click("button", "Go"))) == ["change"]


def test_enter_submits_a_form_through_its_button(stage: Open) -> None:
    page = stage("<form><input aria-label=field><button onclick=\"note('sent')\">Go</button></form>")
    assert logged(page.act(press("Enter", "textbox", "field"))) == ["sent"]


def test_a_date_field_takes_a_date_and_nothing_else(stage: Open) -> None:
    page = stage("<input type=date aria-label=field>")
    assert page.act(fill("soon")).outcome is Outcome.UNSUPPORTED
    assert element(page.act(fill("10/11/2011")), "textbox").value == "2011-10-11"


@pytest.mark.parametrize(
    "text", ["é", "日本語", "👩‍👩‍👧", "a\u202eb", "\u2028", '"</script>', "${1}", "\\u0041", "\x00", "\ud800"]
)
def test_any_text_can_be_typed_and_is_never_code(stage: Open, text: str) -> None:
    page = stage("<input aria-label=field>")
    seen = page.act(fill(text))
    assert (seen.outcome, seen.failure) == (Outcome.OK, "")
    if text.isprintable() and "\ud800" not in text:
        assert element(seen, "textbox").value == text


# -- keys, choices, scrolling


def test_tab_moves_the_focus_and_keys_go_to_it(stage: Open) -> None:
    page = stage("<input aria-label=one><input aria-label=two>")
    page.act(click("textbox", "one"))
    page.act(press("Tab"))
    values = {e.name: e.value for e in page.act(press("z")).elements}
    assert values == {"one": "", "two": "z"}


def test_text_is_copied_and_pasted_by_keys(stage: Open) -> None:
    page = stage("<textarea aria-label=one>some text</textarea><input aria-label=two>")
    for key, name in (("Control+a", "one"), ("Control+c", "one"), ("Control+v", "two")):
        seen = page.act(press(key, "textbox", name))
    assert {e.name: e.value for e in seen.elements}["two"] == "some text"


@pytest.mark.parametrize("key", ["", "Hyper+q", "NoSuchKey", "ab", "+"])
def test_a_key_that_does_not_exist_is_unsupported_and_harmless(stage: Open, key: str) -> None:
    page = stage("<input aria-label=field>")
    seen = page.act(press(key, "textbox", "field"))
    assert seen.outcome is (Outcome.OK if key == "+" else Outcome.UNSUPPORTED)


def test_an_option_is_selected_by_its_text(stage: Open) -> None:
    page = stage("<select aria-label=size onchange=\"note('change')\"><option>S<option>M<option disabled>L</select>")
    choose = lambda option: page.act(Action("select", "combobox", "size", 0, option))  # noqa: E731
    seen = choose("M")
    assert (element(seen, "combobox").value, logged(seen)) == ("M", ["change"])
    assert element(seen, "combobox").options == ("S", "M", "L")
    assert choose("L").outcome is Outcome.DISABLED
    assert choose("XL").outcome is Outcome.UNSUPPORTED


def test_a_multiple_list_toggles_each_option(stage: Open) -> None:
    page = stage("<select multiple aria-label=sizes><option>S<option>M<option>L</select>")
    for option in ("S", "L", "S"):
        seen = page.act(Action("select", "listbox", "sizes", 0, option))
    assert element(seen, "listbox").value == "L"


def test_scrolling_moves_a_box_and_tells_it(stage: Open) -> None:
    box = "<div id=box style='height:50px;overflow-y:auto'><p>top</p><div style='height:500px'></div></div>"
    page = stage(box, "var b = document.getElementById('box'); b.onscroll = function () { note('at' + b.scrollTop); };")
    first = logged(page.act(Action("scroll", "text", "top", 0, "down")))
    assert len(first) == 1
    assert first != ["at0"]
    assert page.act(Action("scroll", "text", "top", 0, "sideways")).outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize(
    "action",
    [
        Action("fill", "button", "Go", 0, "x"),
        Action("select", "button", "Go", 0, "x"),
    ],
)
def test_a_verb_that_does_not_fit_the_role_is_unsupported(stage: Open, action: Action) -> None:
    assert stage("<button>Go</button>").act(action).outcome is Outcome.UNSUPPORTED


def test_a_malformed_action_costs_a_turn_of_page_time(stage: Open) -> None:
    page = stage("", "setTimeout(function () { note('later'); }, 500);")
    seen = page.act(Action("malformed", text="clik it"))
    assert seen.outcome is Outcome.MALFORMED
    assert logged(seen) == ["later"]


CLOSING = {
    "disabled": ("field.disabled = true", "field.disabled = false"),
    "hidden": ("field.style.display = 'none'", "field.style.display = ''"),
    "invisible": ("field.style.visibility = 'hidden'", "field.style.visibility = ''"),
}


@pytest.mark.parametrize("how", CLOSING)
def test_the_focus_leaves_a_field_that_closes_at_once_and_without_an_event(stage: Open, how: str) -> None:
    """A browser takes it when it draws a frame; how an episode was come by must not decide whether one was drawn."""
    close, reopen = CLOSING[how]
    page = stage(
        '<input id="field" aria-label="Field">',
        f"""
        var field = document.getElementById('field');
        field.oninput = function () {{
          setTimeout(function () {{ {close}; }}, 300);
          setTimeout(function () {{ {reopen}; note(document.activeElement === field ? 'kept' : 'lost'); }}, 900);
        }};
        field.onblur = function () {{ note('blur'); }};
        field.addEventListener('focusout', function () {{ note('focusout'); }});
        """,
    )
    filled = page.act(Action("fill", "textbox", "Field", text="x"))
    time.sleep(0.3)
    later = page.act(Action("malformed"))
    assert not any("focused" in seen.states for seen in (*filled.elements, *later.elements))
    assert logged(later) == ["lost"]
    page.world.observe([History(page.history.task, 77)])
    assert page.look() == later
