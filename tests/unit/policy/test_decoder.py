import pytest
import torch
from transformers import AutoModelForCausalLM

from headroom.policy.decoder import Decoder, known, read_decoder
from headroom.policy.files import check_checkpoint
from headroom.policy.score import action_log_probabilities
from headroom.train.batch import make_batch


@pytest.fixture
def folder(any_model, tmp_path):
    """A checkpoint of each supported family, written by the library in float32."""
    any_model.float().save_pretrained(tmp_path)
    return tmp_path


def decoder(folder, dtype=torch.float32):
    return read_decoder(folder, check_checkpoint(folder), dtype)


def library(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def test_every_family_the_checks_let_in_is_known(folder):
    assert known(check_checkpoint(folder))


def test_a_checkpoint_of_the_library_gives_its_scores_and_gradients(folder, examples):
    ours, theirs = decoder(folder), library(folder)
    batch = make_batch(examples)
    scores = []
    for model in (ours, theirs):
        scored = action_log_probabilities(model, batch).log_probabilities
        scored.sum().backward()
        scores.append(scored.detach())
    torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-5)
    gradients = dict(theirs.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == list(gradients)
    for name, parameter in ours.named_parameters():
        close = torch.allclose(parameter.grad, gradients[name].grad, rtol=1e-3, atol=1e-4)
        assert close, name


def test_what_it_writes_the_library_reads_with_the_same_weights(folder, tmp_path):
    ours = decoder(folder)
    out = tmp_path / "out"
    out.mkdir()
    ours.save_pretrained(str(out))
    theirs = dict(library(out).named_parameters())
    assert theirs.keys() == dict(ours.named_parameters()).keys()
    assert all(torch.equal(parameter, theirs[name]) for name, parameter in ours.named_parameters())
    again = tmp_path / "again"
    again.mkdir()
    decoder(out).save_pretrained(str(again))
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in again.iterdir()}


def test_tied_weights_are_one_parameter_before_and_after_a_reload(folder):
    model = decoder(folder)
    tied = model.config["tie_word_embeddings"]
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert ("lm_head.weight" in dict(model.named_parameters())) != tied


def test_loaded_weights_can_be_trained_and_do_not_hang_on_the_file(folder):
    model = decoder(folder)
    assert all(parameter.requires_grad for parameter in model.parameters())
    before = model.model.norm.weight.clone()
    path = folder / "model.safetensors"
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(model.model.norm.weight, before)


def test_the_dtype_is_the_one_asked_for(folder, tmp_path):
    model = decoder(folder, torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    (tmp_path / "half").mkdir()
    model.save_pretrained(str(tmp_path / "half"))
    assert check_checkpoint(tmp_path / "half")["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None},
        {"hidden_act": "gelu"},
        {"attention_dropout": 0.1},
        {"use_sliding_window": True},
        {"model_type": "mistral"},
    ],
)
def test_what_it_does_not_compute_it_does_not_claim(model, change):
    config = model.config.to_dict()
    assert known(config)
    assert not known(config | change)


def test_a_qwen3_without_a_head_width_is_left_to_the_library(model):
    config = model.config.to_dict()
    del config["head_dim"]
    assert not known(config)


def test_unexpected_weights_are_refused(model, tmp_path):
    model.float().save_pretrained(tmp_path)
    config = check_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"k_norm\.weight"):
        read_decoder(tmp_path, config | {"model_type": "llama"}, torch.float32)
    with pytest.raises(ValueError, match=r"layers\.2\."):
        read_decoder(tmp_path, config | {"num_hidden_layers": 2}, torch.float32)


def test_building_one_draws_no_random_number(model):
    before = torch.random.get_rng_state()
    Decoder(model.config.to_dict())
    assert torch.equal(torch.random.get_rng_state(), before)
