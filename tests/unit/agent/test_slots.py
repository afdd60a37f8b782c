"""Units and slots of a prompt, below the codec."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.prompt import prompt_text
from headroom.agent.slots import MERGE_WORDS, action_text, lexemes, prompt_tokens, slot_table, words_of
from headroom.worlds.base import Element, Observation

CLOSED = frozenset({"Click", "the", "to", "(", ")", ",", "."})


def tokens_of(goal: str, *elements: Element, slots: int = 64) -> list[str]:
    table, lines = slot_table(prompt_text([Observation(goal, elements)], []), CLOSED, slots)
    return list(prompt_tokens(lines, table))


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=30, unique=True), st.integers(1, 16))
def test_units_never_share_a_slot_and_take_as_many_as_there_are(names: list[str], slots: int) -> None:
    text = prompt_text([Observation("", tuple(Element("button", name) for name in names))], [])
    table, _ = slot_table(text, CLOSED, slots)
    drawn = [table.tokens[name,] for name in names if (name,) in table.tokens]
    assert len(drawn) == len(set(drawn)) == min(slots, len(names))
    assert [table.units[token] for token in drawn] == names[: len(drawn)]


def test_a_string_of_closed_words_is_never_merged() -> None:
    assert tokens_of("Click to the", Element("button", "to the"))[-3:-1] == ["to", "the"]


def test_the_longest_string_wins_in_the_goal() -> None:
    tokens = tokens_of("Click Ana Lu Bo .", Element("button", "Ana Lu"), Element("button", "Ana Lu Bo"))
    goal = tokens[1 : tokens.index("[page:]")]
    assert len(goal) == 3
    assert goal[1] == tokens[-2]


def test_a_long_text_stays_in_words_so_that_each_can_be_pointed_at() -> None:
    sentence = " ".join(f"w{n}" for n in range(MERGE_WORDS + 1))
    assert len(tokens_of("Click", Element("text", sentence))) == len(tokens_of("Click")) + 1 + MERGE_WORDS + 1
    shorter = " ".join(f"w{n}" for n in range(MERGE_WORDS))
    assert len(tokens_of("Click", Element("text", shorter))) == len(tokens_of("Click")) + 1 + 1


def test_a_quoted_span_of_the_goal_is_one_unit() -> None:
    tokens = tokens_of('Click "Ana von Bo"')
    assert len(tokens[1 : tokens.index("[page:]")]) == 1 + 3  # Click, two quotation marks, one unit


def test_a_cell_key_is_the_token_before_its_value() -> None:
    tokens = tokens_of("Click Key", Element("cell", "Key"), Element("cell", "Long Value"), Element("cell", "Next"))
    key = tokens[2]
    place = tokens.index("[cell]")
    assert tokens[place + 1] == key
    assert len(tokens) == place + 4 + 1
    paired = tokens_of("Click Key", Element("cell", "Key", value="Long Value"), Element("cell", "Next"))
    place = paired.index("[cell]")
    assert paired[place + 1] == paired[2]
    assert paired[place + 2].startswith("<s")


def test_bullets_and_dots_are_one_word_by_their_number() -> None:
    assert words_of("•••• a... b") == ("••••", "a", "...", "b")


@given(st.text(max_size=30))
def test_words_lose_white_space_only(text: str) -> None:
    assert "".join(words_of(text)) == "".join(text.split())


@given(st.text())
def test_any_line_is_taken_apart(line: str) -> None:
    assert all(lexeme.text or lexeme.quoted for lexeme in lexemes(line))


@given(st.lists(st.sampled_from(["[click]", "[fill]", "[button]", "[;]", "[#2]", "<s1>", "the", "<other>", "[]", "["])))
def test_any_token_sequence_becomes_some_text(tokens: list[str]) -> None:
    table, _ = slot_table(prompt_text([Observation("Click Zebra", (Element("button", "Yak"),))], []), CLOSED, 64)
    assert isinstance(action_text(tokens, table), str)
