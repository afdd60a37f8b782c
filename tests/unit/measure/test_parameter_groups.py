"""Parameter groups: each tensor in exactly one, by name alone, whatever the wrapper around the decoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.measure.groups import available, block_count, by_component, by_depth, parameter_count, places, select
from headroom.measure.weights import open_checkpoint


def decoder_names(layers: int, prefix: str = "model.", head: bool = False) -> list[str]:
    names = [f"{prefix}embed_tokens.weight", f"{prefix}norm.weight"] + (["lm_head.weight"] if head else [])
    for layer in range(layers):
        at = f"{prefix}layers.{layer}."
        names += [at + f"self_attn.{part}.weight" for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm")]
        names += [at + f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        names += [at + "input_layernorm.weight", at + "post_attention_layernorm.weight"]
    return names


VISION = [
    "model.visual.patch_embed.proj.weight",
    "model.visual.pos_embed.weight",
    "model.visual.blocks.0.attn.qkv.weight",
    "model.visual.blocks.0.mlp.linear_fc1.bias",
    "model.visual.blocks.0.norm1.weight",
    "model.visual.merger.norm.weight",
    "model.visual.deepstack_merger_list.0.linear_fc1.weight",
]


@given(st.integers(1, 12), st.sampled_from(["model.", "model.language_model.", "language_model.model.", ""]))
def test_components_and_depth_bands_are_partitions_under_every_wrapper(layers, prefix):
    names = decoder_names(layers, prefix, head=True)
    for bands in range(1, layers + 1):
        for groups in (by_component(names), by_depth(names, bands)):
            assert sorted(name for members in groups.values() for name in members) == sorted(names)
        assert len(by_depth(names, bands)) == bands + 3  # embedding, last norm and head stay outside the blocks


def test_a_vision_language_model_has_a_tower_and_a_merger_of_their_own():
    groups = by_component(decoder_names(2, "model.language_model.") + VISION)
    assert set(groups) == {"embedding", "attention", "mlp", "norms", "vision_tower", "merger"}
    assert groups["merger"] == (VISION[6], VISION[5])
    assert len(groups["vision_tower"]) == 5
    assert not any("visual" in name for name in groups["attention"] + groups["mlp"] + groups["norms"])


def test_a_real_vision_language_model_is_partitioned_with_every_parameter_counted_once(tmp_path):
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        text_config={
            **{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "head_dim": 8},
            **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
            "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True},
        },
        vision_config={
            **{"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 16},
            **{"patch_size": 4, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        },
        tie_word_embeddings=True,
        **{"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63},
    )
    with torch.random.fork_rng(devices=[]):
        model = Qwen3VLForConditionalGeneration(config)
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    components = by_component(checkpoint.tensors, checkpoint.aliases)
    assert set(components) == {"embedding", "attention", "mlp", "norms", "vision_tower", "merger"}
    for groups in (components, by_depth(checkpoint.tensors, 3, checkpoint.aliases)):
        assert sorted(name for members in groups.values() for name in members) == sorted(checkpoint.tensors)
        counted = sum(parameter_count(checkpoint, members) for members in groups.values())
        assert counted == sum(parameter.numel() for parameter in model.parameters())
    assert block_count(checkpoint) == 3, "the vision tower's blocks are none of the decoder's"
    vision = {name for name in checkpoint.tensors if "visual" in name}
    assert vision == set(components["vision_tower"]) | set(components["merger"])
    assert any("deepstack" in name for name in components["merger"])


def test_a_tied_head_belongs_to_the_embedding_and_an_untied_one_to_itself():
    names = decoder_names(1, head=True)
    tied = by_component(names, {"lm_head.weight": "model.embed_tokens.weight"})
    assert tied["embedding"] == ("lm_head.weight", "model.embed_tokens.weight")
    assert "head" not in tied
    assert by_component(names)["head"] == ("lm_head.weight",)


def test_leftovers_are_an_error_that_lists_them():
    with pytest.raises(ValueError, match=r"2 tensors belong to no parameter group: model.layers.0.adapter.x, odd.bias"):
        places([*decoder_names(1), "odd.bias", "model.layers.0.adapter.x"])


def test_depth_bands_are_of_near_equal_size_and_in_order():
    groups = by_depth(decoder_names(7), 3)
    sizes = [len({name.split(".")[2] for name in groups[band]}) for band in ("early", "middle", "late")]
    assert sizes == [3, 2, 2]
    assert all(".layers.0." in n or ".layers.1." in n or ".layers.2." in n for n in groups["early"])


def test_more_bands_than_blocks_are_refused():
    with pytest.raises(ValueError, match="4 depth bands cannot be cut from 3 blocks"):
        by_depth(decoder_names(3), 4)


def test_the_groups_of_real_models_cover_every_tensor_and_count_tied_parameters_once(make_checkpoint):
    model, folder = make_checkpoint(seed=0, tied=True)
    checkpoint = open_checkpoint(folder)
    groups = by_component(checkpoint.tensors, checkpoint.aliases)
    counted = sum(parameter_count(checkpoint, members) for members in groups.values())
    assert counted == sum(p.numel() for p in model.parameters())


def test_a_stored_tied_head_adds_no_parameters(make_checkpoint, store_tied_head):
    model, folder = make_checkpoint(seed=0, tied=True)
    store_tied_head(folder)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.aliases == {"lm_head.weight": "model.embed_tokens.weight"}
    assert parameter_count(checkpoint, checkpoint.tensors) == sum(p.numel() for p in model.parameters())
    assert "lm_head.weight" in select(checkpoint, ["embedding"])


def test_an_unknown_group_is_refused_with_the_known_ones(make_checkpoint):
    _, folder = make_checkpoint(seed=0)
    checkpoint = open_checkpoint(folder)
    assert list(available(checkpoint, 2)) == ["embedding", "attention", "mlp", "norms", "early", "late"]
    with pytest.raises(ValueError, match="no parameter group 'atention'; it has embedding, attention"):
        select(checkpoint, ["atention"])
