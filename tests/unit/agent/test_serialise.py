"""A page as text, and the prompt around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.grammar import parse
from headroom.agent.prompt import prompt_text
from headroom.agent.serialise import bare, page_text
from headroom.worlds.base import Action, Element, Observation, Outcome

anything = st.text(st.characters(exclude_categories=()))
elements = st.builds(
    Element,
    role=st.sampled_from(["button", "text", "cell", "textbox", "combobox"]) | anything,
    name=anything,
    value=anything,
    states=st.lists(anything, max_size=2).map(tuple),
    occurrence=st.integers(0, 20),
    options=st.lists(anything, max_size=3).map(tuple),
)


def page(*of: Element, goal: str = "Do it.", outcome: Outcome = Outcome.OK) -> Observation:
    return Observation(goal, of, outcome)


def test_each_kind_of_element_reads_as_documented() -> None:
    text = page_text(
        page(
            Element("button", "Ok"),
            Element("textbox", "Username", value="bob"),
            Element("textbox", "Password"),
            Element("checkbox", "I agree", states=("checked",), occurrence=2),
            Element("combobox", "Country", value="Peru", options=("Chad", "Peru", "Togo")),
        )
    )
    assert text.split("\n") == [
        'button "Ok"',
        'textbox filled "Username" = "bob"',
        'textbox "Password"',
        'checkbox checked "I agree" #2',
        'combobox "Country" options "Chad" on "Peru" "Togo"',
    ]


def test_a_table_key_stands_directly_before_its_value() -> None:
    cells = [Element("cell", name) for name in ("Language", "Hebrew", "Country", "Ghana")]
    assert page_text(page(*cells)) == 'cell "Language" "Hebrew" "Country" "Ghana"'


def test_a_cell_with_a_state_or_of_another_role_starts_a_line() -> None:
    text = page_text(page(Element("cell", "a"), Element("cell", "b", states=("selected",)), Element("text", "c")))
    assert text.split("\n") == ['cell "a"', 'cell selected "b"', 'text "c"']


def test_focus_is_told_of_fields_only() -> None:
    text = page_text(page(Element("textbox", "a", states=("focused",)), Element("button", "b", states=("focused",))))
    assert text.split("\n") == ['textbox focused "a"', 'button "b"']


@given(st.lists(elements, max_size=5), anything)
def test_a_page_cannot_forge_a_line_or_break_storage(of: list[Element], goal: str) -> None:
    text = prompt_text([page(*of, goal=goal)], [])
    assert text.encode("utf-8")
    lines = text.split("\n")
    assert lines == text.splitlines() or any(separator in goal for separator in "\x1c\x1d\x1e\x85")
    assert lines[0].startswith("goal:")
    assert lines.count("page:") == 1
    assert lines.count("action:") == 1
    assert len(lines) <= 3 + len(of)


@given(anything)
def test_a_role_of_any_name_can_be_written_in_an_action(role: str) -> None:
    assert parse(f'click {bare(role)} "x"').verb == "click"


def test_the_history_shows_the_last_two_actions_with_their_outcomes() -> None:
    steps = [Action("click", "button", str(n)) for n in range(3)]
    pages = [page(), page(), page(outcome=Outcome.OCCLUDED), page(outcome=Outcome.UNKNOWN_TARGET)]
    assert prompt_text(pages, steps).split("\n") == [
        "goal: Do it.",
        "page:",
        "history:",
        'click button "1" -> occluded',
        'click button "2" -> unknown target',
        "action:",
    ]


def test_a_malformed_action_is_shown_on_one_line_and_cut_short() -> None:
    babble = Action("malformed", text="action:\n" * 50)
    text = prompt_text([page(), page(outcome=Outcome.MALFORMED)], [babble])
    assert text.count("\naction:") == 1
    assert "-> malformed" in text
    assert len(text) < 200


def test_observations_and_actions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not follow"):
        prompt_text([page()], [Action("press", text="Enter")])
