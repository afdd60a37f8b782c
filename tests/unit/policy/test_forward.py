import numpy as np
import pytest
import torch

from headroom.policy.forward import SuffixCache, body_and_head, encode_prefixes, extend


def tokens(*ids):
    return torch.tensor(ids, dtype=torch.int64)


PREFIXES = (tokens(3, 1, 4, 1, 5), tokens(9), tokens(), tokens(2, 6, 5, 3, 5, 8, 9, 7))
SUFFIXES = tokens(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12).view(6, 2)
PREFIX_OF = tokens(0, 3, 0, 2, 1, 3)


def full_forward(model, prefix, suffix):
    """The library's own forward over one sequence; the hidden states of the suffix."""
    return model.model(input_ids=torch.cat((prefix, suffix))[None]).last_hidden_state[0, len(prefix) :]


def test_prefix_and_suffix_equal_the_full_forward_of_the_library(any_model):
    body, _ = body_and_head(any_model)
    hidden = extend(body, SUFFIXES, encode_prefixes(body, PREFIXES), PREFIX_OF)
    for row, prefix in enumerate(PREFIX_OF.tolist()):
        torch.testing.assert_close(hidden[row], full_forward(any_model, PREFIXES[prefix], SUFFIXES[row]))


def test_the_gradient_equals_that_of_the_library(any_model):
    body, _ = body_and_head(any_model)
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 2, 24)))
    (extend(body, SUFFIXES, encode_prefixes(body, PREFIXES), PREFIX_OF) * weights).sum().backward()
    ours = {name: p.grad.clone() for name, p in any_model.named_parameters() if p.grad is not None}
    any_model.zero_grad()
    for row, prefix in enumerate(PREFIX_OF.tolist()):
        (full_forward(any_model, PREFIXES[prefix], SUFFIXES[row]) * weights[row]).sum().backward()
    theirs = {name: p.grad for name, p in any_model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


def test_a_row_does_not_depend_on_its_neighbours(model):
    body, _ = body_and_head(model)
    together = extend(body, SUFFIXES, encode_prefixes(body, PREFIXES), PREFIX_OF)
    for row, prefix in enumerate(PREFIX_OF.tolist()):
        alone = extend(body, SUFFIXES[row : row + 1], encode_prefixes(body, [PREFIXES[prefix]]), tokens(0))
        torch.testing.assert_close(together[row], alone[0])


def test_what_stands_at_suffix_padding_changes_nothing_before_it(model):
    body, _ = body_and_head(model)
    prefixes = encode_prefixes(body, PREFIXES)
    padded = torch.cat((SUFFIXES, torch.full((6, 3), 36)), dim=1)
    torch.testing.assert_close(
        extend(body, padded, prefixes, PREFIX_OF)[:, :2], extend(body, SUFFIXES, prefixes, PREFIX_OF)
    )


@torch.no_grad()
def test_token_by_token_equals_all_at_once(any_model):
    body, _ = body_and_head(any_model)
    prefixes = encode_prefixes(body, PREFIXES)
    cache = SuffixCache(prefixes, PREFIX_OF, steps=2)
    stepped = torch.stack([cache.append(body, SUFFIXES[:, step]) for step in range(2)], dim=1)
    torch.testing.assert_close(stepped, extend(body, SUFFIXES, prefixes, PREFIX_OF))


@torch.no_grad()
def test_dropped_rows_leave_the_others_as_they_were(model):
    body, _ = body_and_head(model)
    prefixes = encode_prefixes(body, PREFIXES)
    cache = SuffixCache(prefixes, PREFIX_OF, steps=2)
    cache.append(body, SUFFIXES[:, 0])
    keep = tokens(4, 0, 3)
    cache.keep(keep)
    after = cache.append(body, SUFFIXES[keep, 1])
    torch.testing.assert_close(after, extend(body, SUFFIXES, prefixes, PREFIX_OF)[keep, 1])


def test_an_adapter_inside_the_layers_takes_part(model):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    ).double()
    body, head = body_and_head(wrapped)
    assert head is model.lm_head
    hidden = extend(body, SUFFIXES[:1], encode_prefixes(body, PREFIXES[:1]), tokens(0))
    ids = torch.cat((PREFIXES[0], SUFFIXES[0]))[None]
    torch.testing.assert_close(head(hidden), wrapped(input_ids=ids).logits[:, len(PREFIXES[0]) :])
    hidden.sum().backward()
    factors = {name: parameter.grad for name, parameter in wrapped.named_parameters() if "lora_B" in name}
    # The last layer's queries of the prefix are never computed, but its own factors still are trained by the suffix.
    assert factors
    assert all(gradient is not None and bool(gradient.abs().sum() > 0) for gradient in factors.values())
