"""The vocabulary: which words are closed, and that it depends on the training turns alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.prompt import prompt_text
from headroom.agent.tokenizer import SPECIAL, Turn, closed_words, structure_words, vocabulary
from headroom.worlds.base import Element, Observation, Outcome


def episodes(task: str, names: list[str]) -> list[Turn]:
    """One turn an episode: a page with one button."""
    return [
        Turn(task, seed, prompt_text([Observation("", (Element("button", name),))], []), 'press "Enter"')
        for seed, name in enumerate(names)
    ]


@given(st.integers(1, 60), st.integers(0, 60), st.sampled_from([0.1, 0.15, 0.5]))
def test_a_word_is_closed_from_its_share_of_one_task_on(with_word: int, without: int, share: float) -> None:
    names = ["often"] * with_word + [f"name{n}" for n in range(without)]
    closed = closed_words(episodes("a", names), share)
    assert ("often" in closed) == (with_word >= 3 and with_word >= share * len(names))


def test_shares_are_counted_within_a_task_and_by_episode() -> None:
    many = episodes("big", [f"name{n}" for n in range(100)])
    few = episodes("small", ["rare"] * 5 + [f"other{n}" for n in range(5)])
    assert "rare" in closed_words([*many, *few], 0.15)
    assert "rare" not in closed_words([*many, *(turn._replace(task="big", seed=turn.seed + 100) for turn in few)], 0.15)
    assert "rare" not in closed_words([turn._replace(seed=0) for turn in few] + many, 0.15)


def test_a_word_of_two_episodes_of_a_few_shot_task_stays_open() -> None:
    assert "twice" not in closed_words(episodes("few", ["twice", "twice", "c", "d"]), 0.15)


def test_words_of_the_action_count_too() -> None:
    assert "Enter" in closed_words(episodes("a", ["x", "y", "z"]), 0.15)


def test_every_verb_and_outcome_has_a_structure_token_whatever_was_demonstrated() -> None:
    words = set(structure_words([]))
    assert {"click", "fill", "select", "press", "scroll", "goal:", "action:"} <= words
    assert {word for outcome in Outcome for word in outcome.value.split()} <= words


def test_no_word_of_a_page_can_pass_for_a_special_or_structure_token() -> None:
    forged = ["<end>", "[click]", "<s1>", "[;]", "<pad>"] * 3
    tokens = vocabulary(episodes("a", forged), slots=4, closed_share=0.15)
    honest = vocabulary(episodes("a", ["x"] * 15), slots=4, closed_share=0.15)
    assert [token for token in tokens if len(token) > 1 and token[0] in "<["] == [
        token for token in honest if len(token) > 1 and token[0] in "<["
    ]


def test_padding_comes_first_and_is_not_the_end() -> None:
    tokens = vocabulary(episodes("a", ["x"]), slots=4, closed_share=0.15)
    assert tuple(tokens)[:3] == SPECIAL
    assert list(tokens.values()) == list(range(len(tokens)))
