"""The action language: exact inverse, total parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.grammar import MALFORMED, VERBS, parse, quote, render, unquote
from headroom.worlds.base import Action

anything = st.text(st.characters(exclude_categories=())) | st.text('"\\#\n\r\t u0nx\u2028')
roles = st.sampled_from(["button", "textbox", "menuitem", "x-role", "combobox"])


@st.composite
def actions(draw: st.DrawFn) -> Action:
    """Any action of the grammar."""
    verb = draw(st.sampled_from(VERBS))
    has_target = verb in {"click", "fill", "select"} or draw(st.booleans())
    return Action(
        verb,
        role=draw(roles) if has_target else "",
        name=draw(anything) if has_target else "",
        occurrence=draw(st.integers(0, 999999)) if has_target else 0,
        text="" if verb == "click" else draw(anything),
    )


@given(actions())
def test_an_action_survives_being_written_and_read(action: Action) -> None:
    assert parse(render(action)) == action


@given(actions())
def test_a_written_action_is_one_line_that_can_be_stored(action: Action) -> None:
    text = render(action)
    assert text.splitlines() == [text]
    assert text.encode("utf-8")


@given(anything)
def test_quoting_is_undone_exactly(text: str) -> None:
    assert unquote(quote(text)) == text


@given(anything)
def test_any_text_parses_and_what_is_no_action_is_kept_whole(text: str) -> None:
    action = parse(text)
    if action.verb == MALFORMED:
        assert action == Action(MALFORMED, text=text)
        assert render(action) == text
    else:
        assert parse(render(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('click button "Ok"', Action("click", "button", "Ok")),
        ('click button "Ok" #2', Action("click", "button", "Ok", 2)),
        ('fill textbox "Username" "bob"', Action("fill", "textbox", "Username", text="bob")),
        ('fill textbox "" #3 "bob"', Action("fill", "textbox", "", 3, "bob")),
        ('select combobox "Country" "Peru"', Action("select", "combobox", "Country", text="Peru")),
        ('press "Enter"', Action("press", text="Enter")),
        ('press textbox "Find" "Enter"', Action("press", "textbox", "Find", text="Enter")),
        ('scroll "down"', Action("scroll", text="down")),
        ('  click   button "Ok"\n', Action("click", "button", "Ok")),
        (r'click button "say \"hi\" \\ \n"', Action("click", "button", 'say "hi" \\ \n')),
    ],
)
def test_the_documented_forms_are_read(text: str, action: Action) -> None:
    assert parse(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "click",
        "click button",
        'click "Ok"',
        'click button "Ok" "more"',
        'click button "Ok" #0',
        'click button "Ok" #01',
        'click button "Ok" 2',
        'click button "Ok',
        'click Button "Ok"',
        'fill textbox "Name"',
        "press Enter",
        'tap button "Ok"',
        'click button "Ok"; click button "No"',
        'click button "a\nb"',
    ],
)
def test_other_texts_are_malformed(text: str) -> None:
    assert parse(text) == Action(MALFORMED, text=text)


@pytest.mark.parametrize(
    "action",
    [
        Action("tap", "button", "Ok"),
        Action("click"),
        Action("click", "button", "Ok", text="x"),
        Action("press", name="x"),
    ],
)
def test_what_the_grammar_cannot_say_is_refused(action: Action) -> None:
    with pytest.raises(ValueError, match="not an action"):
        render(action)
