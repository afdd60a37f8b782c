import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from headroom.config.models import TinyModel
from headroom.policy.forward import body_and_head, encode_prefixes, extend
from headroom.policy.tiny import tiny_config, tiny_model

SMALL = TinyModel(width=16, layers=2, heads=2, key_value_heads=1, head_width=8, feed_forward=24)


def make(seed=0, model=SMALL):
    return tiny_model(model, vocabulary=20, pad_id=0, end_ids=(1,), seed=seed)


def test_equal_seeds_give_equal_weights_and_other_seeds_others():
    one, same, other = (make(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_the_global_random_state_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = make().state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert all(torch.equal(first[name], value) for name, value in make().state_dict().items())


def test_the_settings_reach_the_configuration():
    config = tiny_config(SMALL, vocabulary=20, pad_id=0, end_ids=(1, 4))
    names = ("hidden_size", "num_hidden_layers", "head_dim", "vocab_size", "tie_word_embeddings")
    assert [config[name] for name in names] == [16, 2, 8, 20, True]
    assert config["rope_parameters"]["rope_theta"] == 1000.0
    assert config["eos_token_id"] == [1, 4]


def test_the_start_is_the_one_of_the_library():
    """Matrices normal with its deviation, the embedding's padding row included; norms 1."""
    for name, parameter in make(model=SMALL.model_copy(update={"width": 128})).named_parameters():
        if parameter.ndim > 1:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.15), name
            assert abs(float(parameter.detach().mean())) < 0.002
        else:
            assert torch.equal(parameter, torch.ones_like(parameter))


def test_the_configuration_says_to_the_library_what_it_says_to_us(tmp_path):
    model = make()
    model.save_pretrained(str(tmp_path))
    config = AutoConfig.from_pretrained(tmp_path).to_dict()
    for key, value in model.config.items():
        assert config[key] == value, key


def test_tied_embeddings_are_one_parameter():
    names = [name for name, _ in make().named_parameters()]
    assert "lm_head.weight" not in names
    untied = [name for name, _ in make(model=SMALL.model_copy(update={"tied_embeddings": False})).named_parameters()]
    assert "lm_head.weight" in untied


def test_the_saved_folder_loads_in_the_plain_library_with_the_same_logits(tmp_path):
    model = make()
    model.save_pretrained(str(tmp_path))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(loaded).__name__ == "Qwen3ForCausalLM"
    ids = torch.arange(2, 14)
    with torch.no_grad():
        body, head = body_and_head(model)
        hidden = extend(body, ids[None, 5:], encode_prefixes(body, [ids[:5]]), torch.tensor([0]))
        torch.testing.assert_close(head(hidden), loaded(input_ids=ids[None]).logits[:, 5:])


@pytest.mark.parametrize("ids", [{"pad_id": 20}, {"pad_id": -1}, {"end_ids": (1, 20)}, {"end_ids": ()}])
def test_special_ids_outside_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match="vocabulary of 20"):
        tiny_config(SMALL, **({"vocabulary": 20, "pad_id": 0, "end_ids": (1,)} | ids))


def test_heads_that_cannot_be_grouped_are_refused():
    with pytest.raises(ValueError, match="key_value_heads"):
        tiny_config(SMALL.model_copy(update={"heads": 3, "key_value_heads": 2}), vocabulary=9, pad_id=0, end_ids=(1,))
