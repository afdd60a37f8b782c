"""Targets of the auxiliary loss: which tokens they train, what the placebos say, and what has none."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from headroom.agent.codec import Codec, PlainCodec, SlotCodec
from headroom.agent.dialect import LOCATION, OBJECTS
from headroom.agent.episode import Ending, Episode, Turn
from headroom.agent.text_game import TEXT_GAME
from headroom.agent.tokenizer import Turn as Shown
from headroom.config.models import Auxiliary
from headroom.train.auxiliary import WORDS, Targets, cross_entropy, targets
from headroom.worlds.base import Action, Element, Observation, Outcome

PLACES = ("cabinet 1", "desk 2", "drawer 3", "sofa 4")


def prompt_at(place: str, seed: int = 0) -> str:
    page = (Element("text", f"You are at {place}."), *(Element("command", f"go to {name}") for name in PLACES[:3]))
    return TEXT_GAME.prompt_text([Observation(f"find thing{seed}.", page)], [])


def answer(command: str, place: str, objects: str = "yes") -> str:
    return TEXT_GAME.write(Action("command", text=command), {LOCATION: place, OBJECTS: objects})


@pytest.fixture(scope="module")
def slots() -> SlotCodec:
    """Names and numbers of three places are closed words; of the fourth no prompt says anything."""
    shown = [
        Shown("find", seed, prompt_at(place, seed), answer(f"go to {place}", place, ("yes", "no")[seed % 2]))
        for seed, place in enumerate(PLACES[:3] * 8)
    ]
    return SlotCodec.build(shown, slot_count=16, closed_share=0.15, context=512, dialect=TEXT_GAME)


@pytest.fixture(scope="module")
def bytewise() -> PlainCodec:
    """Byte-level BPE in which the quote that ends a command merges with what follows it."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    letters = sorted(ByteLevel.alphabet())
    vocabulary = {"<eos>": 0, "<pad>": 1} | {letter: number + 2 for number, letter in enumerate(letters)}
    vocabulary |= {'"Ġ': len(vocabulary), '"Ġe': len(vocabulary) + 1}
    bpe = Tokenizer(BPE(vocabulary, [('"', "Ġ"), ('"Ġ', "e")]))
    bpe.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = ByteLevelDecoder()
    made = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>", pad_token="<pad>")
    return PlainCodec(made, dialect=TEXT_GAME)


def a_turn(codec: Codec, said: str, *, at: str = PLACES[0], then: str = PLACES[1], objects: str = "yes") -> Turn:
    prompt = codec.encode_prompt(prompt_at(at))
    ids = codec.encode_action(said, prompt)
    facts = ((LOCATION, then), (OBJECTS, objects))
    return Turn(
        prompt.ids, ids, np.zeros(len(ids), np.float32), said, Outcome.OK, facts=facts, table=prompt.table
    )  # fmt: skip


def episodes(*turns: Turn, seed: int = 7) -> list[Episode]:
    return [Episode("find", seed, 0, turns, 0.0, False, Ending.HORIZON)]


def made(kind: str, codec: Codec, *turns: Turn, seed: int = 0, step: int = 0) -> Targets:
    found = targets(episodes(*turns), codec, Auxiliary(kind=kind), seed=seed, step=step)  # type: ignore[arg-type]
    assert found is not None
    return found


def blocks(found: Targets, codec: Codec, turns: list[Turn]) -> list[tuple[str, str]]:
    """What each target says, read back by the agent's own reader."""
    said = []
    for target, turn in zip(found.items, turns, strict=True):
        prompt = replace(codec.encode_prompt(prompt_at(PLACES[0])), ids=turn.prompt_ids, table=turn.table)
        block = TEXT_GAME.prediction(codec.decode_action(target.action_ids, prompt))
        said.append((block[LOCATION], block[OBJECTS]))
    return said


def test_without_an_auxiliary_loss_there_are_no_targets(slots: SlotCodec) -> None:
    assert targets(episodes(a_turn(slots, answer("look", "sofa 4"))), slots, Auxiliary(), seed=0, step=0) is None


def test_the_target_is_the_agents_own_command_with_the_truth_behind_it_trained_from_the_block_on(
    slots: SlotCodec,
) -> None:
    turn = a_turn(slots, answer("go to desk 2", "cabinet 1", "no"))
    (target,) = made("prediction", slots, turn).items
    names = {index: token for token, index in slots.tokens.items()}
    words = [names[int(i)] for i in target.action_ids]
    assert words == ["[do]", "go", "to", "desk", "2", "[expect]", "desk", "2", "[;]", "yes"]
    assert target.trained.tolist() == [0] * 5 + [1] * 5
    assert slots.end_ids[0] not in target.action_ids, "what may follow a block is left open"
    assert np.array_equal(target.prompt_ids, turn.prompt_ids)


def test_a_turn_that_another_process_played_has_the_same_target(slots: SlotCodec) -> None:
    turn = a_turn(slots, answer("go to desk 2", "cabinet 1", "no"))
    own, theirs = (made("prediction", slots, t).items[0] for t in (turn, pickle.loads(pickle.dumps(turn))))
    assert np.array_equal(own.action_ids, theirs.action_ids)


def test_an_answer_that_predicted_nothing_or_went_on_has_the_same_target(slots: SlotCodec) -> None:
    said = [answer("go to desk 2", "cabinet 1"), 'do "go to desk 2"', 'do "go to desk 2" and so on']
    found = [made("prediction", slots, a_turn(slots, text)).items[0] for text in said]
    assert all(np.array_equal(found[0].action_ids, other.action_ids) for other in found)
    assert all(np.array_equal(found[0].trained, other.trained) for other in found)


def test_a_token_that_hangs_over_from_the_command_belongs_to_the_block(bytewise: PlainCodec) -> None:
    turn = a_turn(bytewise, 'do "look"')
    (target,) = made("prediction", bytewise, turn).items
    whole = bytewise.encode_action(answer("look", PLACES[1]), bytewise.encode_prompt(""))
    assert np.array_equal(target.action_ids, whole[:-1])
    start = int(target.trained.argmax())
    assert target.trained.tolist() == [0.0] * start + [1.0] * (len(whole) - 1 - start)
    first = bytewise.decode_action(target.action_ids[:start], bytewise.encode_prompt(""))
    assert first == 'do "look', "the closing quote is in one token with the beginning of the block"


def test_a_word_without_a_token_in_its_turn_is_left_out_and_counted(slots: SlotCodec) -> None:
    found = made("prediction", slots, a_turn(slots, 'do "look"', then="sofa 4"))
    (target,) = found.items
    unknown = target.action_ids == slots.other_id
    assert unknown.sum() >= 1
    assert not target.trained[unknown].any()
    assert found.skipped_tokens == int(unknown[-5:].sum())
    assert found.tokens + found.skipped_tokens == 5, "[expect] sofa 4 [;] yes"


@pytest.mark.parametrize("kind", ["prediction", "shuffled", "random_words"])
def test_turns_without_a_command_or_without_facts_are_skipped_and_counted(slots: SlotCodec, kind: str) -> None:
    good = [a_turn(slots, answer("look", place), then=place) for place in PLACES[:3]]
    babble = a_turn(slots, "look look")
    blind = replace(good[0], facts=())
    half = replace(good[0], facts=((LOCATION, "desk 2"),))
    found = made(kind, slots, good[0], babble, good[1], blind, half, good[2])
    assert (len(found.items), found.skipped_turns) == (3, 3)
    empty = made(kind, slots, babble, blind)
    assert (empty.items, empty.tokens, empty.skipped_turns) == ([], 0, 2)
    assert empty.row(0.0, 1)["auxiliary_loss"] is None


def test_shuffled_blocks_are_those_of_the_step_and_no_turn_keeps_its_own(bytewise: PlainCodec) -> None:
    turns = [a_turn(bytewise, 'do "look"', then=f"desk {n}", objects=("yes", "no")[n % 2]) for n in range(9)]
    true = [(f"desk {n}", ("yes", "no")[n % 2]) for n in range(9)]
    orders = []
    for seed, step in ((0, 0), (0, 1), (1, 0)):
        said = blocks(made("shuffled", bytewise, *turns, seed=seed, step=step), bytewise, turns)
        again = blocks(made("shuffled", bytewise, *turns, seed=seed, step=step), bytewise, turns)
        assert said == again
        assert Counter(said) == Counter(true)
        assert all(a != b for a, b in zip(said, true, strict=True))
        orders.append(said)
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_lone_turn_has_nobody_to_change_with(slots: SlotCodec) -> None:
    found = made("shuffled", slots, a_turn(slots, 'do "look"'))
    assert (found.items, found.skipped_turns) == ([], 1)


def test_random_words_are_as_many_and_depend_on_the_place_of_the_turn_alone(bytewise: PlainCodec) -> None:
    turns = [a_turn(bytewise, 'do "look"') for _ in range(40)]
    said = blocks(made("random_words", bytewise, *turns), bytewise, turns)
    assert {(len(place.split()), len(objects.split())) for place, objects in said} == {(2, 1)}
    assert {word for place, objects in said for word in (*place.split(), objects)} <= set(WORDS)
    assert len(set(said)) > 35
    alone = blocks(made("random_words", bytewise, *turns[:1]), bytewise, turns[:1])
    assert alone == said[:1]
    assert blocks(made("random_words", bytewise, *turns, step=1), bytewise, turns) != said
    assert blocks(made("random_words", bytewise, *turns, seed=1), bytewise, turns) != said


def test_random_words_of_a_policy_with_slots_are_words_that_it_has(slots: SlotCodec) -> None:
    turns = [a_turn(slots, 'do "look"') for _ in range(60)]
    found = made("random_words", slots, *turns)
    assert found.skipped_tokens == 0
    drawn = {word for place, objects in blocks(found, slots, turns) for word in (*place.split(), objects)}
    assert drawn == {word for word in slots.closed_words if word.isalnum() and word not in "0123456789"}


def test_a_policy_without_a_word_to_draw_is_one_line() -> None:
    codec = SlotCodec.build(
        [Shown("find", 0, prompt_at(PLACES[0]), 'do "look"')], slot_count=16, closed_share=1.0, context=512,
        dialect=TEXT_GAME,
    )  # fmt: skip
    with pytest.raises(
        ValueError, match=r"random_words: the policy has no closed-class word; lower model\.closed_share"
    ):
        made("random_words", codec, a_turn(codec, 'do "look"'))


def test_what_stands_at_other_tokens_is_never_read() -> None:
    scores: Any = torch.tensor([[-1.0, float("nan"), -0.5], [float("-inf"), -2.0, -9.0]], requires_grad=True)
    marks = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    loss = cross_entropy(scores, marks)
    loss.backward()
    assert loss.item() == 3.5
    assert torch.equal(scores.grad, -marks)
