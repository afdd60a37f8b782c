import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.policy.score import action_log_probabilities, entropy_of, log_softmax
from headroom.train.batch import Example, make_batch


def naive(model, example, temperature):
    """One sequence through the library, in the textbook way: log-probabilities and entropies of the action."""
    prompt, action = (torch.tensor(ids.astype(np.int64)) for ids in (example.prompt_ids, example.action_ids))
    logits = model(input_ids=torch.cat((prompt, action))[None]).logits[0, len(prompt) - 1 : -1] / temperature
    distribution = torch.distributions.Categorical(logits=logits)
    return distribution.log_prob(action), distribution.entropy()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.3])
def test_scores_equal_a_naive_full_forward(any_model, examples, temperature):
    batch = make_batch(examples)
    scored = action_log_probabilities(any_model, batch, temperature)
    for row, example in enumerate(examples):
        length = len(example.action_ids)
        log_probability, entropy = naive(any_model, example, temperature)
        torch.testing.assert_close(scored.log_probabilities[row, :length], log_probability)
        torch.testing.assert_close(scored.entropy[row, :length], entropy)
        assert not scored.log_probabilities[row, length:].any()
        assert not scored.entropy[row, length:].any()


@pytest.mark.parametrize("logits_at_once", [10**9, 80, 1])
def test_the_gradient_equals_that_of_a_naive_full_forward_in_any_chunks(any_model, examples, logits_at_once):
    batch = make_batch(examples)
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=tuple(batch.action_mask.shape)))
    scored = action_log_probabilities(any_model, batch, 0.7, logits_at_once=logits_at_once)
    (scored.log_probabilities * weights).sum().backward()
    ours = {name: parameter.grad.clone() for name, parameter in any_model.named_parameters()}
    any_model.zero_grad()
    for row, example in enumerate(examples):
        (naive(any_model, example, 0.7)[0] * weights[row, : len(example.action_ids)]).sum().backward()
    for name, parameter in any_model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, msg=lambda text, name=name: f"{name}: {text}")


def test_the_output_layer_sees_action_positions_only_and_equal_turns_once(model, examples):
    seen = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[0]))
    action_log_probabilities(model, make_batch(examples))
    unique = {(e.prompt_ids.tobytes(), e.action_ids.tobytes()): len(e.action_ids) for e in examples}
    assert len(unique) < len(examples)
    assert seen == [sum(unique.values())]


def test_equal_turns_add_their_gradients(model, examples):
    def gradient(turns):
        model.zero_grad()
        action_log_probabilities(model, make_batch(turns)).log_probabilities.sum().backward()
        return model.model.layers[0].mlp.up_proj.weight.grad.clone()

    torch.testing.assert_close(gradient(examples[:2] * 3), 3 * gradient(examples[:2]))


def test_an_end_token_that_is_also_the_padding_is_scored_by_position(model):
    prompt = np.array([4, 5, 6], np.int32)
    short, long = Example(prompt, np.array([7, 0], np.int32)), Example(prompt, np.array([7, 8, 9, 0], np.int32))
    scored = action_log_probabilities(model, make_batch([short, long])).log_probabilities
    torch.testing.assert_close(scored[0, :2], naive(model, short, 1.0)[0])
    assert scored[0, 1] < 0
    assert not scored[0, 2:].any()


def test_a_half_precision_model_is_scored_in_float32(model, examples):
    scored = action_log_probabilities(model.bfloat16(), make_batch(examples))
    assert scored.log_probabilities.dtype == scored.entropy.dtype == torch.float32


def test_the_entropy_carries_no_gradient(model, examples):
    scored = action_log_probabilities(model, make_batch(examples))
    assert scored.log_probabilities.requires_grad
    assert not scored.entropy.requires_grad


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_score_at_no_temperature_is_refused(model, examples, temperature):
    with pytest.raises(ValueError, match="temperature"):
        action_log_probabilities(model, make_batch(examples), temperature)


@settings(deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=9),
    st.floats(0.1, 5),
    st.floats(-20, 20),
)
def test_the_softmax_ignores_a_shift_and_never_sees_more_entropy_than_uniform(logits, temperature, shift):
    wide = torch.tensor([logits], dtype=torch.float64)
    log_p = log_softmax(wide, temperature)
    torch.testing.assert_close(log_softmax(wide + shift, temperature), log_p, rtol=1e-9, atol=1e-9)
    assert 0.0 <= float(entropy_of(log_p)) <= math.log(len(logits)) + 1e-9


def test_an_impossible_token_adds_no_entropy():
    log_p = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64).log()
    assert float(entropy_of(log_p)) == pytest.approx(math.log(2))
