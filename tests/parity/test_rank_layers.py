"""The block-by-block walk against the forward pass of transformers, on every architecture the project meets."""

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from headroom.measure.layers import LayerWalk
from headroom.measure.weights import open_checkpoint

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 32,
    "deepstack_visual_indexes": [0],
    "num_position_embeddings": 16,
}


def qwen3(**more):
    return Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=8, **more))


MODELS = {
    "qwen3 tied": lambda: qwen3(tie_word_embeddings=True),
    "qwen3 with a sliding window": lambda: qwen3(
        tie_word_embeddings=False, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "qwen3-vl": lambda: Qwen3VLForConditionalGeneration(
        Qwen3VLConfig(
            text_config=SMALL
            | {
                "head_dim": 8,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]},
            },
            vision_config=VISION,
            tie_word_embeddings=True,
        )
    ),
}


@pytest.fixture(params=MODELS)
def model(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = MODELS[request.param]().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("shards", [False, True])
def test_states_and_logits_equal_the_forward_pass_of_transformers(model, tmp_path, shards):
    model.save_pretrained(tmp_path, max_shard_size="10KB" if shards else "1GB")
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 50, size=n).astype(np.int32) for n in (9, 1, 14, 5, 9)]
    walk = LayerWalk(open_checkpoint(tmp_path), sequences, batch_tokens=20)
    found = [(site, [state.copy() for state in states]) for site, states in walk.states()]
    assert [(site.name, site.layer) for site, _ in found] == [
        ("embedding", -1),
        ("block", 0),
        ("block", 1),
        ("block", 2),
        ("final_norm", 3),
    ]
    last = [np.array([len(ids) - 1, 0]) for ids in sequences]
    logits = walk.logits(last)
    for i, ids in enumerate(sequences):
        with torch.inference_mode():
            whole = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], output_hidden_states=True)
        expected = [state[0].numpy() for state in whole.hidden_states]
        # transformers reports the last block after the final norm only
        for (site, states), reference in zip([f for f in found if f[0] != found[-2][0]], expected, strict=True):
            np.testing.assert_allclose(states[i], reference, rtol=1e-4, atol=2e-5, err_msg=str(site))
        np.testing.assert_allclose(logits[2 * i : 2 * i + 2], whole.logits[0, last[i]].numpy(), rtol=1e-4, atol=1e-4)


def test_the_walk_holds_one_block_at_a_time(tmp_path):
    qwen3(tie_word_embeddings=True).save_pretrained(tmp_path)
    walk = LayerWalk(open_checkpoint(tmp_path), [np.arange(5, dtype=np.int32)])
    for site, _ in walk.states():
        held = {name.split(".")[1] for name, p in walk.body.named_parameters() if "layers" in name and not p.is_meta}
        assert len(held) <= 1, site
        assert walk.body.embed_tokens.weight.is_meta


def test_an_id_beyond_the_embedding_is_refused(tmp_path):
    qwen3().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the probe has id 50, the embedding 50 rows"):
        LayerWalk(open_checkpoint(tmp_path), [np.array([50], dtype=np.int32)])


@pytest.mark.parametrize(("name", "own"), [(name, "sliding" not in name) for name in MODELS])
def test_the_library_builds_only_the_decoders_that_the_project_does_not_know(name, own, tmp_path, monkeypatch):
    MODELS[name]().save_pretrained(tmp_path)

    def refuse(folder):
        raise AssertionError(f"{folder}: built by the library")

    monkeypatch.setattr("headroom.measure.layers._empty_decoder", refuse)
    if own:
        LayerWalk(open_checkpoint(tmp_path), [np.arange(5, dtype=np.int32)])
    else:
        with pytest.raises(AssertionError, match="built by the library"):
            LayerWalk(open_checkpoint(tmp_path), [np.arange(5, dtype=np.int32)])
