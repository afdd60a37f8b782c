"""The slot codec: exact round trips, determinism, limits; the plain codec's ends and padding."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent import slots
from headroom.agent.codec import ACTION_ROOM, PlainCodec, SlotCodec, load_codec
from headroom.agent.grammar import parse, render
from headroom.agent.prompt import prompt_text
from headroom.agent.slots import words_of
from headroom.agent.tokenizer import Turn
from headroom.worlds.base import Action, Element, Observation, Outcome

words = st.sampled_from(["Ana", "Lu", "Peru", "bob", "Submit", "Click", "@x", "a-b", "É", "1", ",", "the"])
strings = st.lists(words, max_size=4).map(" ".join) | st.text(max_size=6)
elements = st.builds(
    Element,
    role=st.sampled_from(["button", "text", "cell", "textbox", "combobox"]),
    name=strings,
    value=strings,
    occurrence=st.integers(0, 9),
    options=st.lists(strings, max_size=3).map(tuple),
)
pages = st.builds(Observation, utterance=strings, elements=st.lists(elements, min_size=1, max_size=8).map(tuple))


@st.composite
def page_and_action(draw: st.DrawFn) -> tuple[Observation, Action]:
    """A page and an action on one of its elements, all of whose words stand in the prompt."""
    page = draw(pages)
    element = draw(st.sampled_from(page.elements))
    goal = page.utterance.split()
    verb = draw(st.sampled_from(["click", "fill", "select", "press", "scroll"]))
    first = draw(st.integers(0, max(0, len(goal) - 1)))
    span = " ".join(goal[first : first + draw(st.integers(1, 3))])
    text = draw(
        st.sampled_from([span, *(e.name for e in page.elements), *(o for e in page.elements for o in e.options)])
    )
    occurrence = 0 if element.role in {"text", "cell"} else element.occurrence
    return page, Action(verb, element.role, element.name, occurrence, "" if verb == "click" else text)


def _differ_in_more_than_spacing(page: Observation) -> bool:
    """The documented limit: strings that differ in spacing alone are one string to the tiny model."""
    seen: dict[tuple[str, ...], str] = {}
    for element in page.elements:
        for text in (element.name, element.value, *element.options):
            if seen.setdefault(words_of(text), text) != text:
                return False
    return all(seen.get(words_of(span), span) == span for span in _goal_spans(page))


def _goal_spans(page: Observation) -> list[str]:
    goal = page.utterance.split()
    return [" ".join(goal[i : i + n]) for i in range(len(goal)) for n in (1, 2, 3)]


@given(page_and_action())
def test_an_action_whose_words_are_on_the_page_survives_the_tokens(
    codec: SlotCodec, both: tuple[Observation, Action]
) -> None:
    page, action = both
    # A span of the goal that begins or ends inside a merged string cannot be typed (its parts have no slot).
    prompt = codec.encode_prompt(prompt_text([page], []))
    text = render(action)
    ids = codec.encode_action(text, prompt)
    if _differ_in_more_than_spacing(page) and codec.other_id not in ids:
        assert codec.decode_action(ids, prompt) == text


@given(page_and_action())
def test_any_click_on_a_page_of_few_words_can_be_written(codec: SlotCodec, both: tuple[Observation, Action]) -> None:
    page, action = both
    prompt = codec.encode_prompt(prompt_text([page], []))
    ids = codec.encode_action(render(Action("click", action.role, action.name, action.occurrence)), prompt)
    assert codec.other_id not in ids


@given(pages)
def test_equal_prompts_have_equal_ids(codec: SlotCodec, page: Observation) -> None:
    text = prompt_text([page], [])
    assert np.array_equal(codec.encode_prompt(text).ids, codec.encode_prompt(text).ids)


@given(st.text(), st.lists(st.integers(-5, 200), max_size=12))
def test_no_prompt_and_no_token_sequence_raises(codec: SlotCodec, text: str, ids: list[int]) -> None:
    prompt = codec.encode_prompt(text)
    assert prompt.ids.dtype == np.int32
    decoded = codec.decode_action(ids, prompt)
    action = parse(decoded)
    assert action.verb == "malformed" or parse(render(action)) == action


@given(st.data())
def test_shuffled_tokens_never_pass_for_another_action_by_chance_of_their_text(
    codec: SlotCodec, data: st.DataObject
) -> None:
    # Without a leading verb token nothing may parse, whatever closed words follow one another.
    page = Observation('press " Ok "', (Element("button", "press"),))
    prompt = codec.encode_prompt(prompt_text([page], []))
    closed = [index for token, index in codec.tokens.items() if token[0] not in "[<" or len(token) == 1]
    ids = data.draw(st.lists(st.sampled_from(closed), max_size=8))
    assert parse(codec.decode_action(ids, prompt)).verb == "malformed"


def test_a_word_has_one_slot_in_goal_page_history_and_action(codec: SlotCodec) -> None:
    page = Observation(
        "Enter Zebra and click Submit.", (Element("textbox", "", value="Zebra"), Element("text", "Zebra"))
    )
    text = prompt_text([page, page], [Action("fill", "textbox", "", text="Zebra")])
    tokens = codec.slot_text(text).split()
    assert "Zebra" not in tokens
    (slot,) = {token for token in tokens if token.startswith("<s")}
    assert tokens.count(slot) == 4
    prompt = codec.encode_prompt(text)
    assert codec.tokens[slot] in codec.encode_action('fill textbox "" "Zebra"', prompt)


def test_closed_words_keep_their_token_and_open_words_do_not(codec: SlotCodec) -> None:
    assert {"Click", "on", "the", "button", "Submit", "Enter"} <= codec.tokens.keys()
    assert not any(token.startswith(("Name", "Else", "Word")) for token in codec.tokens)


def test_another_page_draws_other_slots(codec: SlotCodec) -> None:
    drawn = set()
    for n in range(40):
        page = Observation("Enter Zebra.", (Element("text", f"Other{n}"),))
        drawn.add(codec.slot_text(prompt_text([page], [])).split()[2])
    assert len(drawn) > 10


def test_a_multi_word_option_that_the_goal_names_is_one_unit(codec: SlotCodec) -> None:
    page = Observation("Pick Ana Lu now.", (Element("combobox", "", options=("Ana Lu", "Bo Ci")),))
    tokens = codec.slot_text(prompt_text([page], [])).split()
    slot = tokens[tokens.index("[options]") + 1]
    assert slot in tokens[: tokens.index("[page:]")]
    assert tokens.index("[;]") == tokens.index("[options]") + 2


def test_a_string_of_which_the_goal_names_a_part_stays_in_words(codec: SlotCodec) -> None:
    page = Observation("Pick Lu now.", (Element("button", "Ana Lu"),))
    tokens = codec.slot_text(prompt_text([page], [])).split()
    goal = {token for token in tokens[: tokens.index("[page:]")] if token.startswith("<s")}
    name = tokens[tokens.index("[button]") + 1 : tokens.index("[action:]")]
    assert len(name) == 2
    assert name[1] in goal


def test_more_open_words_than_slots_fall_back_to_one_token_that_hits_nothing(codec: SlotCodec) -> None:
    names = [f"Open{n}" for n in range(80)]
    page = Observation("Click Target.", tuple(Element("button", name) for name in (*names, "Target")))
    prompt = codec.encode_prompt(prompt_text([page], []))
    ids = list(prompt.ids)
    assert ids.count(codec.other_id) == 81 - 64  # 80 names and "Target"; 64 units have a slot
    assert codec.other_id not in codec.encode_action('click button "Target"', prompt)  # the goal comes first
    last = codec.encode_action('click button "Open79"', prompt)
    assert codec.decode_action(last, prompt) != 'click button "Target"'


def test_an_empty_name_is_a_name(codec: SlotCodec) -> None:
    page = Observation("Enter x.", (Element("textbox", ""),))
    prompt = codec.encode_prompt(prompt_text([page], []))
    for text in ('click textbox ""', 'fill textbox "" "x"', 'press ""', 'fill textbox "" ""'):
        assert codec.decode_action(codec.encode_action(text, prompt), prompt) == text


def test_typed_text_is_put_together_as_the_goal_spells_it(codec: SlotCodec) -> None:
    page = Observation("Type 01/02/2015 or a.b@c.org or two  words.", (Element("textbox", ""),))
    prompt = codec.encode_prompt(prompt_text([page], []))
    for typed in ("01/02/2015", "a.b@c.org", "two words", "2015/02/01"):
        text = f'fill textbox "" "{typed}"'
        assert codec.decode_action(codec.encode_action(text, prompt), prompt) == text


def test_text_that_stands_nowhere_in_the_prompt_cannot_be_typed(codec: SlotCodec) -> None:
    prompt = codec.encode_prompt(prompt_text([Observation("Type it.", (Element("textbox", ""),))], []))
    ids = codec.encode_action('fill textbox "" "unheard"', prompt)
    assert codec.other_id in ids
    assert codec.decode_action(ids, prompt) == f'fill textbox "" "{slots.REPLACEMENT}"'


def test_tokens_after_the_end_token_are_ignored(codec: SlotCodec) -> None:
    page = Observation("Click Zebra.", (Element("button", "Zebra"),))
    prompt = codec.encode_prompt(prompt_text([page], []))
    ids = codec.encode_action('click button "Zebra"', prompt)
    assert ids[-1] == codec.end_ids[0]
    assert codec.pad_id not in codec.end_ids
    assert codec.decode_action([*ids, *ids], prompt) == 'click button "Zebra"'


def test_too_long_a_page_loses_its_end_and_never_goal_or_history(codec: SlotCodec) -> None:
    page = Observation("Click Zebra.", tuple(Element("button", "Submit") for _ in range(900)))
    failed = Observation("Click Zebra.", page.elements, Outcome.OCCLUDED)
    ids = codec.encode_prompt(prompt_text([page, failed], [Action("click", "button", "Submit")])).ids
    assert len(ids) == 1024 - 64
    assert ids[0] == codec.tokens["[goal:]"]
    assert list(ids[-6:]) == [
        codec.tokens[token] for token in ("[history:]", "[click]", "[button]", "Submit", "[occluded]", "[action:]")
    ]


def test_the_saved_codec_is_the_same_codec_and_plain_transformers_reads_it(codec: SlotCodec, saved: Path) -> None:
    from transformers import AutoTokenizer

    page = Observation("Click on Zebra, Ana Lu.", (Element("button", "Zebra"), Element("checkbox", "Ana Lu")))
    text = prompt_text([page], [])
    again = load_codec(saved)
    assert isinstance(again, SlotCodec)
    ids = codec.encode_prompt(text).ids
    assert np.array_equal(again.encode_prompt(text).ids, ids)
    plain = AutoTokenizer.from_pretrained(str(saved))
    assert plain(codec.slot_text(text))["input_ids"] == list(ids)
    assert (plain.eos_token_id, plain.pad_token_id, len(plain)) == (codec.end_ids[0], codec.pad_id, codec.size)


def test_saving_twice_gives_equal_bytes_and_the_order_of_turns_does_not_matter(
    training_turns: list[Turn], saved: Path, tmp_path: Path
) -> None:
    turns = random.Random(3).sample(training_turns, len(training_turns))
    SlotCodec.build(turns, slot_count=64, closed_share=0.15, context=1024).save(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        file.name: file.read_bytes() for file in saved.iterdir()
    }


@pytest.mark.parametrize("name", ["tokenizer.json", "slots.json"])
def test_a_damaged_file_is_named(saved: Path, tmp_path: Path, name: str) -> None:
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_text('{"model": ')
    with pytest.raises(ValueError, match=name):
        load_codec(tmp_path)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no tokenizer"):
        load_codec(tmp_path)


def _plain_tokenizer(pad: str, template: str | None) -> object:
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    alphabet = {"<eos>": 0, "<eot>": 1, "<pad>": 2} | {c: i + 3 for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    bpe = Tokenizer(BPE(alphabet, []))
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False)
    bpe.decoder = ByteLevelDecoder()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", pad_token=pad)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<eot>"]})
    tokenizer.chat_template = template
    return tokenizer


@given(page_and_action())
def test_a_released_tokenizer_gives_back_any_action(both: tuple[Observation, Action]) -> None:
    codec = PlainCodec(_plain_tokenizer("<pad>", None))
    page, action = both
    prompt = codec.encode_prompt(prompt_text([page], []))
    assert codec.decode_action(codec.encode_action(render(action), prompt), prompt) == render(action)


def test_every_end_of_a_released_model_stops_and_padding_is_none_of_them() -> None:
    codec = PlainCodec(_plain_tokenizer("<eos>", None), end_ids=[1])
    assert codec.end_ids == (0, 1)
    assert codec.pad_id not in codec.end_ids
    prompt = codec.encode_prompt("goal: x\npage:\naction:")
    ids = codec.encode_action('press "Enter"', prompt)
    assert codec.decode_action([*ids[:-1], 1, 9], prompt) == 'press "Enter"'


def test_the_chat_template_gets_the_instructions_with_thinking_off() -> None:
    template = "{{ messages[0]['content'][:7] }}|{{ messages[1]['content'] }}|{{ enable_thinking }}"
    codec = PlainCodec(_plain_tokenizer("<pad>", template))
    shown = codec.decode_action(codec.encode_prompt("goal: x\npage:\naction:").ids, codec.encode_prompt(""))
    assert shown == "You ope|goal: x\npage:\naction:|False"


def test_a_page_too_long_for_a_released_model_is_cut_by_lines() -> None:
    codec = PlainCodec(_plain_tokenizer("<pad>", "{{ messages[1]['content'] }}"), limit=300)
    page = Observation("Go.", tuple(Element("button", f"b{n}") for n in range(100)))
    text = prompt_text([page, page], [Action("press", text="Enter")])
    prompt = codec.encode_prompt(text)
    shown = codec.decode_action(prompt.ids, prompt).split("\n")
    assert len(prompt.ids) <= 300
    assert shown[:3] == ["goal: Go.", "page:", 'button "b0"']
    assert shown[-3:] == ["history:", 'press "Enter" -> ok', "action:"]


def test_a_context_that_was_trained_with_cuts_the_same_pages_after_a_save(tmp_path: Path) -> None:
    page = Observation("Click it.", tuple(Element("button", f"Button number {n}") for n in range(80)))
    text = prompt_text([page], [])
    codec = PlainCodec(_plain_tokenizer("<pad>", "{{ messages[1]['content'] }}"), limit=300)
    cut = codec.encode_prompt(text).ids
    codec.save(tmp_path)
    for context, positions, same in ((None, 4096, True), (None, None, True), (4096, 4096, False)):
        again = load_codec(tmp_path, context=context, positions=positions)
        assert np.array_equal(again.encode_prompt(text).ids, cut) is same
    assert len(load_codec(tmp_path, positions=200).encode_prompt(text).ids) < len(cut) <= 300
    # A longer context than the model has positions is that of the model: in SFT, and in what reads its checkpoint.
    within = load_codec(tmp_path, context=4096, positions=200)
    assert 0 < len(within.encode_prompt(text).ids) <= 200 - ACTION_ROOM
    within.save(tmp_path / "saved")
    assert np.array_equal(load_codec(tmp_path / "saved").encode_prompt(text).ids, within.encode_prompt(text).ids)
