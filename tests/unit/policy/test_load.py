import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headroom.agent.codec import SlotCodec
from headroom.agent.tokenizer import Turn
from headroom.config.models import PretrainedModel, TinyModel
from headroom.policy.load import load_policy, save_policy
from headroom.policy.sampler import TorchSampler
from headroom.policy.tiny import tiny_model

PROMPT = 'goal: Click Ok.\npage:\nbutton "Ok"\nhistory:\naction:'


@pytest.fixture(scope="module")
def made():
    turns = [Turn("click-toy", seed, PROMPT, 'click button "Ok"') for seed in range(4)]
    codec = SlotCodec.build(turns, slot_count=4, closed_share=0.15, context=128)
    sizes = TinyModel(width=16, layers=2, heads=2, key_value_heads=1, head_width=8, feed_forward=24)
    return tiny_model(sizes, vocabulary=codec.size, pad_id=codec.pad_id, end_ids=codec.end_ids, seed=0), codec


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "checkpoint"
    save_policy(*made, folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(saved, tmp_path / "checkpoint"))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder):
    """The one line that the user sees."""
    with pytest.raises(ValueError) as error:
        load_policy(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_what_is_saved_is_what_is_loaded(made, saved):
    model, codec = made
    policy = load_policy(saved)
    assert not policy.model.training
    assert policy.path == saved
    for name, value in policy.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    prompt = policy.codec.encode_prompt(PROMPT)
    assert prompt.ids.tolist() == codec.encode_prompt(PROMPT).ids.tolist()
    assert policy.codec.end_ids == codec.end_ids


def test_equal_weights_give_equal_bytes_under_any_name(made, saved, tmp_path):
    save_policy(*made, tmp_path / "elsewhere" / "other name")
    assert contents(tmp_path / "elsewhere" / "other name") == contents(saved)
    save_policy(load_policy(saved).model, made[1], tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)


def test_a_folder_is_replaced_whole_and_nothing_is_left_beside_it(made, saved, tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "stale").write_text("old")
    save_policy(*made, tmp_path / "checkpoint")
    assert contents(tmp_path / "checkpoint") == contents(saved)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_save_that_fails_leaves_the_old_folder_as_it_was(made, folder):
    before = contents(folder)

    class Broken:
        def save(self, folder):
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_policy(made[0], Broken(), folder)
    assert contents(folder) == before
    assert len(list(folder.parent.iterdir())) == 1


def test_the_dtype_is_the_one_asked_for(saved):
    assert load_policy(saved, "bfloat16").model.dtype == torch.bfloat16
    assert load_policy(saved).model.dtype == torch.float32


def test_a_released_model_in_a_folder_brings_its_own_dtype(saved):
    policy = load_policy(PretrainedModel(name_or_path=str(saved), context=65))
    assert policy.model.dtype == torch.bfloat16
    assert load_policy(PretrainedModel(name_or_path=str(saved)), "float32").model.dtype == torch.float32


def test_a_hub_name_without_a_commit_is_refused_before_any_network():
    with pytest.raises(ValueError, match="revision"):
        load_policy(PretrainedModel(name_or_path="someone/some-model"))
    with pytest.raises(ValueError, match="40-digit"):
        load_policy(PretrainedModel(name_or_path="someone/some-model", revision="main"))


@pytest.mark.parametrize("cut", [1, 1000, -5])
def test_truncated_weights_are_one_line_that_names_the_file(folder, cut):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    assert "model.safetensors: " in refused(folder)
    assert "truncated" in refused(folder)


def test_weights_that_lack_a_tensor_are_not_filled_with_random_numbers(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    assert "model.layers.1.mlp.up_proj.weight" in refused(folder)


def test_weights_of_another_width_are_refused(folder):
    edit_config(folder, intermediate_size=25)
    assert "config.json" in refused(folder)


def test_a_tokenizer_of_another_checkpoint_is_refused(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"]["later"] = 500
    path.write_text(json.dumps(tokenizer))
    assert "two different checkpoints" in refused(folder)


def test_a_checkpoint_without_its_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json" in refused(folder)


YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 2.0, "original_max_position_embeddings": 64}


def test_scaled_positions_are_left_to_the_library_and_still_sample(saved, folder):
    plain = load_policy(saved)
    edit_config(folder, rope_parameters=YARN)
    scaled = load_policy(folder)
    assert type(plain.model).__name__ == "Decoder"
    assert type(scaled.model).__name__ == "Qwen3ForCausalLM"
    ids = scaled.codec.encode_prompt(PROMPT).ids
    one = TorchSampler(scaled.model, scaled.codec.end_ids).generate(
        [ids], temperature=0.0, seeds=[0], max_new_tokens=4
    )[0]
    sequence = torch.tensor([*ids.tolist(), *one.ids.tolist()])[None]
    logits = scaled.model(input_ids=sequence).logits[0, len(ids) - 1 : -1]
    assert logits.argmax(-1).tolist() == one.ids.tolist()


@pytest.mark.parametrize("changes", [{"intermediate_size": 25}, {"num_hidden_layers": 3}])
def test_the_library_does_not_fill_what_is_missing_either(folder, changes):
    edit_config(folder, rope_parameters=YARN, **changes)
    assert "two different checkpoints" in refused(folder)


WRONG = (None, "4", -1, 0, 10**9, 1.5, "x", [], {}, True)


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
        "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters", "hidden_act",
        "attention_bias", "attention_dropout", "tie_word_embeddings", "use_sliding_window", "model_type",
    ],
)  # fmt: skip
def test_any_setting_of_any_kind_loads_or_is_one_line(folder, key):
    """What loads must also run: a setting that is only found out by the first forward pass is found out too late."""
    for value in WRONG:
        edit_config(folder, **{key: value})
        refusal = ""
        try:
            policy = load_policy(folder)
        except ValueError as error:
            refusal = str(error)
        else:
            ids = policy.codec.encode_prompt(PROMPT).ids
            TorchSampler(policy.model, policy.codec.end_ids).generate(
                [ids], temperature=0.0, seeds=[0], max_new_tokens=1
            )
        assert not refusal or (str(folder) in refusal and "\n" not in refusal), (key, value)


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"eos_token_id": "x"}', '{"eos_token_id": [1, 2.5]}'])
def test_a_damaged_generation_config_is_one_line(folder, content):
    (folder / "generation_config.json").write_text(content)
    assert "generation_config.json: " in refused(folder)
