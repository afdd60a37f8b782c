"""Our sampler and scorer against the library's own ``generate``, on the model that the tiny scale trains.

The library pads on the left and keeps its own cache; ours pads on the right and shares prompts: equal numbers show
that positions and masks are right in both.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from headroom.config.models import TinyModel
from headroom.policy.decoder import read_decoder
from headroom.policy.files import check_checkpoint
from headroom.policy.sampler import TorchSampler
from headroom.policy.score import action_log_probabilities
from headroom.policy.tiny import tiny_model
from headroom.train.batch import Example, make_batch

PAD, ENDS, VOCABULARY, NEW = 0, (1, 2, 5), 60, 12


def tiny():
    return tiny_model(TinyModel(), vocabulary=VOCABULARY, pad_id=PAD, end_ids=ENDS, seed=0)


def llama():
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=PAD,
        eos_token_id=list(ENDS),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


@pytest.fixture(params=[tiny, llama], ids=["tiny", "llama"])
def pair(request, tmp_path):
    """One checkpoint as our decoder and as the library's class.

    With weights ten times their start, so that the next tokens are far from equally likely.
    """
    built = request.param()
    with torch.no_grad():
        for parameter in built.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    built.save_pretrained(str(tmp_path))
    ours = read_decoder(tmp_path, check_checkpoint(tmp_path), torch.float32).eval()
    return ours, AutoModelForCausalLM.from_pretrained(tmp_path).eval()


@pytest.fixture
def ours(pair):
    return pair[0]


@pytest.fixture
def library(pair):
    return pair[1]


@pytest.fixture
def prompts():
    random = np.random.default_rng(0)
    return [random.integers(6, VOCABULARY, size=n).astype(np.int32) for n in (2, 31, 7, 7, 90, 15, 3, 44) * 2]


def library_generate(model, prompts, **settings):
    """Left-padded ``generate``: new ids up to and with the end token, and the processed log-probability of each."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), PAD)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt.astype(np.int64))
        mask[row, longest - len(prompt) :] = 1
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=NEW,
        eos_token_id=list(ENDS),
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_logits=True,
        **settings,
    )
    made = []
    for row in range(len(prompts)):
        new = out.sequences[row, longest:].tolist()
        ends = [place for place, token in enumerate(new) if token in ENDS]
        new = new[: ends[0] + 1] if ends else new
        scores = [out.logits[step][row].float().log_softmax(-1)[token].item() for step, token in enumerate(new)]
        made.append((new, scores))
    return made


def test_greedy_actions_and_their_log_probabilities_equal_those_of_generate(ours, library, prompts):
    made = TorchSampler(ours, ENDS).generate(prompts, temperature=0.0, seeds=[0] * len(prompts), max_new_tokens=NEW)
    theirs = library_generate(library, prompts, do_sample=False)
    assert len({len(ids) for ids, _ in theirs}) > 1
    for one, (ids, scores) in zip(made, theirs, strict=True):
        assert one.ids.tolist() == ids
        np.testing.assert_allclose(one.log_probabilities, scores, atol=2e-5)


def test_what_the_library_samples_is_scored_as_the_library_scores_it(ours, library, prompts):
    torch.manual_seed(1)
    sampled = library_generate(library, prompts, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    batch = make_batch([Example(p, np.array(ids, np.int32)) for p, (ids, _) in zip(prompts, sampled, strict=True)])
    scored = action_log_probabilities(ours, batch).log_probabilities.detach()
    theirs = batch.padded([np.array(scores, np.float32) for _, scores in sampled])
    torch.testing.assert_close(scored, theirs, atol=2e-5, rtol=0)


def test_many_samples_of_one_prompt_spread_as_the_library_says(ours, library, prompts):
    """First tokens of 3000 seeds against the library's distribution, by total variation."""
    made = TorchSampler(ours, ENDS).generate(
        [prompts[1]] * 3000, temperature=0.8, seeds=list(range(3000)), max_new_tokens=1
    )
    observed = np.bincount([one.ids[0] for one in made], minlength=VOCABULARY) / 3000
    ids = torch.from_numpy(prompts[1].astype(np.int64))[None]
    with torch.no_grad():
        expected = (library(input_ids=ids).logits[0, -1] / 0.8).softmax(-1).numpy()
    assert 0.5 * np.abs(observed - expected).sum() < 0.5 * np.sqrt(2 / (np.pi * 3000)) * np.sqrt(expected).sum() * 1.5
