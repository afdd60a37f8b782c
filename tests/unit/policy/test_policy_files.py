import json

import pytest
import torch
from safetensors.torch import save_file

from headroom.policy.files import ARCHITECTURES, check_checkpoint, tensor_shapes

TENSORS = {"model.embed_tokens.weight": torch.zeros(5, 3), "model.norm.weight": torch.ones(3)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 5}))
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder):
    with pytest.raises(ValueError) as error:
        check_checkpoint(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def split(folder):
    """The same weights in two files with an index."""
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{number}-of-2.safetensors" for number, name in enumerate(TENSORS, 1)}
    for name, file in names.items():
        save_file({name: TENSORS[name]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def test_a_whole_checkpoint_gives_its_configuration(folder):
    assert check_checkpoint(folder)["vocab_size"] == 5
    split(folder)
    assert check_checkpoint(folder)["vocab_size"] == 5


def test_the_shapes_are_read_from_the_header_alone(folder):
    assert tensor_shapes(folder / "model.safetensors") == {n: tuple(t.shape) for n, t in TENSORS.items()}


def test_every_cut_of_a_weights_file_is_noticed(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert str(path) in refused(folder)
    path.write_bytes(whole + b"x")
    assert "truncated" in refused(folder)


def test_a_missing_folder_is_named(tmp_path):
    assert "no such checkpoint folder" in refused(tmp_path / "nowhere")


def test_a_folder_without_a_configuration_is_refused(folder):
    (folder / "config.json").unlink()
    assert "config.json: missing" in refused(folder)


def test_a_damaged_configuration_is_refused(folder):
    (folder / "config.json").write_text("{")
    assert "config.json: cannot be read" in refused(folder)


@pytest.mark.parametrize("text", ["[]", "null", '"qwen3"'])
def test_a_configuration_that_is_no_object_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    assert "config.json" in refused(folder)


def test_an_adapter_alone_says_how_to_go_on(folder):
    (folder / "adapter_config.json").write_text("{}")
    assert "merge it" in refused(folder)


def test_an_unknown_architecture_names_the_known_ones(folder):
    configure(folder, model_type="mamba")
    assert all(name in refused(folder) for name in ("mamba", *ARCHITECTURES))


@pytest.mark.parametrize(
    "setting",
    [{"auto_map": {"AutoModel": "x.Y"}}, {"use_sliding_window": True}, {"quantization_config": {"bits": 4}}],
)
def test_what_the_forward_pass_does_not_know_is_refused(folder, setting):
    configure(folder, **setting)
    assert next(iter(setting)).split("_")[0][:5] in refused(folder)


def test_pickled_weights_are_never_read(folder):
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    check_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    assert "pickled" in refused(folder)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "no weights" in refused(folder)


def test_a_missing_part_of_split_weights_is_named(folder):
    split(folder)
    (folder / "model-2-of-2.safetensors").unlink()
    assert "model-2-of-2.safetensors: missing" in refused(folder)


def test_an_index_cannot_point_outside_the_folder(folder):
    split(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    assert "missing" in refused(folder)


def test_weights_of_another_vocabulary_are_refused(folder):
    configure(folder, vocab_size=6)
    assert "vocab_size is 6" in refused(folder)


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [5, 4]}, {"shape": [-5, 3]}, {"shape": ["5", 3]}, {"shape": [5.0, 3]}, {"dtype": "F99"},
        {"data_offsets": [-4, 56]}, {"data_offsets": [0, 4]},
    ],
)  # fmt: skip
def test_a_header_that_contradicts_itself_is_refused(folder, entry):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["model.embed_tokens.weight"] |= entry
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    assert "model.safetensors: " in refused(folder)
