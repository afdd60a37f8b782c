from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from headroom.policy.sampler import TorchSampler, _draw, uniform
from headroom.policy.score import action_log_probabilities
from headroom.seeds import derive
from headroom.train.batch import Example, make_batch

END = 3


@pytest.fixture
def prompts(examples):
    return [example.prompt_ids for example in examples]


@pytest.fixture
def sampler(model):
    return TorchSampler(model, (END,))


def sample(sampler, prompts, *, temperature=1.0, seeds=None, tokens=8):
    chosen = seeds or [derive("test", place) for place in range(len(prompts))]
    return sampler.generate(prompts, temperature=temperature, seeds=chosen, max_new_tokens=tokens)


def ids(generations):
    return [generation.ids.tolist() for generation in generations]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_sampler_and_trainer_score_under_the_same_softmax(any_model, prompts, temperature):
    made = sample(TorchSampler(any_model, (END,)), prompts, temperature=temperature)
    batch = make_batch([Example(prompt, one.ids) for prompt, one in zip(prompts, made, strict=True)])
    scored = action_log_probabilities(any_model, batch, temperature)
    for row, one in enumerate(made):
        np.testing.assert_allclose(
            one.log_probabilities, scored.log_probabilities[row, : len(one.ids)].detach(), rtol=2e-6, atol=2e-6
        )
        np.testing.assert_allclose(one.entropy, scored.entropy[row, : len(one.ids)], rtol=2e-6, atol=2e-6)


def test_a_forgotten_temperature_would_be_noticed(model, sampler, prompts):
    made = sample(sampler, prompts, temperature=0.6)
    batch = make_batch([Example(prompt, one.ids) for prompt, one in zip(prompts, made, strict=True)])
    raw = action_log_probabilities(model, batch, 1.0).log_probabilities.detach()
    assert float((raw - batch.padded([one.log_probabilities for one in made])).abs().max()) > 0.05


def test_a_sample_does_not_depend_on_its_batch_or_order(model, sampler, prompts):
    seeds = [derive("test", place) for place in range(len(prompts))]
    together = ids(sample(sampler, prompts))
    assert [ids(sample(sampler, [p], seeds=[s]))[0] for p, s in zip(prompts, seeds, strict=True)] == together
    assert ids(sample(sampler, prompts[::-1], seeds=seeds[::-1])) == together[::-1]
    assert ids(sample(TorchSampler(model, (END,), batch_tokens=60), prompts)) == together


def test_equal_seeds_repeat_and_different_seeds_do_not_give_one_group(sampler, prompts):
    group = [prompts[2]] * 16
    assert ids(sample(sampler, group)) == ids(sample(sampler, group))
    assert len({tuple(one) for one in ids(sample(sampler, group))}) > 8
    assert len({tuple(one) for one in ids(sample(sampler, group, seeds=[5] * 16))}) == 1


def test_greedy_takes_the_most_probable_token_whatever_the_seed(model, sampler, prompts):
    made = sample(sampler, prompts, temperature=0.0)
    assert ids(made) == ids(sample(sampler, prompts, temperature=0.0, seeds=[0] * len(prompts)))
    for prompt, one in zip(prompts, made, strict=True):
        sequence = torch.tensor(np.concatenate((prompt, one.ids)).astype(np.int64))[None]
        logits = model(input_ids=sequence).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == one.ids.tolist()


def test_a_small_temperature_becomes_greedy(sampler, prompts):
    assert ids(sample(sampler, prompts, temperature=1e-4)) == ids(sample(sampler, prompts, temperature=0.0))


def test_an_action_ends_at_any_end_id_and_keeps_it(model, prompts):
    ends = (3, 8, 21)
    made = sample(TorchSampler(model, ends), prompts * 6)
    lengths = set()
    for one in made:
        assert not set(one.ids[:-1].tolist()) & set(ends)
        assert one.ids[-1] in ends or len(one.ids) == 8
        assert len(one.ids) == len(one.log_probabilities) == len(one.entropy)
        lengths.add(len(one.ids))
    assert len({one.ids[-1] for one in made} & set(ends)) > 1
    assert len(lengths) > 2


def test_more_end_ids_only_cut_the_same_stream_earlier(model, prompts):
    long = ids(sample(TorchSampler(model, (END,)), prompts, tokens=12))
    short = ids(sample(TorchSampler(model, (END, 8, 21)), prompts, tokens=12))
    assert all(whole[: len(part)] == part for whole, part in zip(long, short, strict=True))


def test_what_is_sampled_follows_the_distribution_that_is_reported(model, sampler, prompts):
    made = sample(sampler, [prompts[2]] * 4000, tokens=1)
    counts = Counter(int(one.ids[0]) for one in made)
    probability = {int(one.ids[0]): float(np.exp(one.log_probabilities[0])) for one in made}
    common = [token for token, p in probability.items() if p * 4000 >= 5]
    observed = [counts[token] for token in common] + [4000 - sum(counts[token] for token in common)]
    expected = [4000 * probability[token] for token in common]
    expected.append(4000 - sum(expected))
    assert len(common) > 5
    assert stats.chisquare(observed, expected).pvalue > 0.01


def test_the_dtypes_are_those_that_a_turn_stores(sampler, prompts):
    one = sample(sampler, prompts)[0]
    assert (one.ids.dtype, one.log_probabilities.dtype, one.entropy.dtype) == (np.int32, np.float32, np.float32)
    assert one.ids.flags.owndata  # no view that keeps the whole batch in memory


def test_sampling_sees_a_weight_update_at_once(model, sampler, prompts):
    before = ids(sample(sampler, prompts))
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1.0)
    assert ids(sample(sampler, prompts)) != before


@pytest.mark.parametrize(
    "wrong",
    [{"seeds": [1]}, {"temperature": -0.1}, {"max_new_tokens": 0}, {"prompts": [np.array([], np.int32)] * 9}],
)
def test_impossible_arguments_are_refused(sampler, prompts, wrong):
    call = {"prompts": prompts, "temperature": 1.0, "seeds": [0] * len(prompts), "max_new_tokens": 4} | wrong
    with pytest.raises(ValueError, match="generate needs"):
        sampler.generate(call.pop("prompts"), **call)


def test_no_prompt_gives_no_action_and_no_end_id_is_refused(model, sampler):
    assert sample(sampler, []) == []
    with pytest.raises(ValueError, match="end id"):
        TorchSampler(model, ())


@given(st.integers(0, 2**64 - 1), st.integers(0, 10_000))
def test_a_stream_is_a_function_of_seed_and_step(seed, step):
    number = uniform(np.array([seed], np.uint64), step)
    assert 0.0 <= number[0] < 1.0
    assert number == uniform(np.array([1, seed], np.uint64), step)[1:]


def test_the_streams_are_uniform_across_seeds_and_across_steps():
    across_seeds = uniform(np.array([derive(i) for i in range(4000)], np.uint64), 0)
    across_steps = np.array([uniform(np.array([derive("one")], np.uint64), step)[0] for step in range(4000)])
    for numbers in (across_seeds, across_steps):
        assert stats.kstest(numbers, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(across_steps[:-1], across_steps[1:])[0, 1]) < 0.05


def test_splitmix64_gives_its_published_numbers():
    """The reference implementation (Vigna, splitmix64.c) seeded with 1234567 begins with these outputs."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    ours = [uniform(np.array([1234567], np.uint64), step)[0] for step in range(3)]
    assert ours == [(number >> 11) * 2.0**-53 for number in published]


def test_a_token_of_probability_zero_is_never_drawn():
    log_p = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]]).log().expand(5, 5)
    edges = np.array([0.0, np.nextafter(0.3, 0), 0.30001, 0.999, 1 - 2.0**-53])
    assert _draw(log_p, edges).tolist() == [1, 1, 3, 3, 3]
