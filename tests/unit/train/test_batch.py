import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headroom.train.batch import Example, make_batch, microbatches

IDS = st.integers(0, 5)
EXAMPLES = st.lists(
    st.tuples(st.lists(IDS, min_size=1, max_size=6), st.lists(IDS, min_size=1, max_size=4)), min_size=1, max_size=12
).map(lambda turns: [example(*turn) for turn in turns])


def example(prompt, action):
    return Example(np.array(prompt, np.int32), np.array(action, np.int32))


def rebuilt(batch):
    """The turns that a batch encodes, read back from its tensors alone."""
    turns = []
    for row in batch.row_of.tolist():
        length = int(batch.target_mask[row].sum())
        prefix = batch.prefixes[int(batch.prefix_of[row])].tolist()
        suffix, action = batch.suffixes[row, :length].tolist(), batch.targets[row, :length].tolist()
        assert suffix[1:] == action[:-1]
        turns.append(([*prefix, suffix[0]], action))
    return turns


@given(EXAMPLES)
def test_a_batch_holds_exactly_its_turns_in_their_order(examples):
    batch = make_batch(examples)
    assert rebuilt(batch) == [(e.prompt_ids.tolist(), e.action_ids.tolist()) for e in examples]
    for row, one in enumerate(examples):
        length = len(one.action_ids)
        assert batch.action_ids[row, :length].tolist() == one.action_ids.tolist()
        assert batch.action_mask[row].tolist() == [column < length for column in range(batch.action_mask.shape[1])]


@given(EXAMPLES)
def test_equal_prompts_and_equal_turns_are_stored_once(examples):
    batch = make_batch(examples)
    assert len(batch.prefixes) == len({tuple(e.prompt_ids[:-1]) for e in examples})
    assert len(batch.suffixes) == len({(tuple(e.prompt_ids), tuple(e.action_ids)) for e in examples})


@given(EXAMPLES, st.integers(1, 40))
def test_microbatches_hold_every_turn_once_within_the_budget(examples, budget):
    batches = microbatches(examples, budget)
    assert sorted(place for batch in batches for place in batch.index) == list(range(len(examples)))
    for batch in batches:
        assert batch.tokens <= budget or len(batch.suffixes) == 1
        expected = [(examples[i].prompt_ids.tolist(), examples[i].action_ids.tolist()) for i in batch.index]
        assert rebuilt(batch) == expected


@given(EXAMPLES, st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_cut_depends_on_the_turns_and_not_on_their_order(examples, budget, shuffle):
    def cut(turns):
        return [rebuilt(batch) for batch in microbatches(turns, budget)]

    shuffled = examples.copy()
    shuffle.shuffle(shuffled)
    assert cut(shuffled) == cut(examples)


def test_turns_with_one_prompt_meet_in_one_microbatch():
    turns = [example([group] * 9, [1, sample]) for sample in range(4) for group in range(8)]
    random.Random(0).shuffle(turns)
    batches = microbatches(turns, 50)
    assert sum(len(batch.prefixes) for batch in batches) == 8


def test_numbers_of_the_turns_follow_them_into_the_batch():
    turns = [example([1, 2, 3], [4]), example([1], [5, 6])]
    batch = make_batch(turns, [1, 0])
    padded = batch.padded([np.array([0.25], np.float32), np.array([-1.0, -2.0], np.float32)])
    assert torch.equal(padded, torch.tensor([[-1.0, -2.0], [0.25, 0.0]]))
    assert batch.index == (1, 0)


def test_the_padding_id_may_be_any_token_because_masks_go_by_position():
    batch = make_batch([example([1], [0, 0, 0]), example([1], [0])])
    assert batch.action_mask.tolist() == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize(
    ("turns", "words"), [([], "at least one"), ([([], [1])], "empty prompt"), ([([1], [])], "empty action")]
)
def test_nothing_to_score_is_refused(turns, words):
    with pytest.raises(ValueError, match=words):
        make_batch([example(*turn) for turn in turns])


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="budget"):
        microbatches([example([1], [1])], 0)


def test_no_turns_make_no_microbatch():
    assert microbatches([], 10) == []
