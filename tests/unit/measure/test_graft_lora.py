"""Grafts of adapters: modules switched on and off, checked against what PEFT itself computes."""

import json

import pytest
import torch
from safetensors.torch import load_file

from headroom.measure.graft_build import build
from headroom.measure.lora import modules_of
from headroom.measure.weights import open_checkpoint

TARGETS = ["q_proj", "v_proj", "up_proj", "down_proj"]


@pytest.fixture
def adapter(make_checkpoint, tmp_path):
    from peft import LoraConfig, get_peft_model

    model, base = make_checkpoint(seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        wrapped = get_peft_model(
            model, LoraConfig(r=3, lora_alpha=7, target_modules=TARGETS, rank_pattern={"up_proj": 2})
        )
        with torch.no_grad():
            for name, parameter in wrapped.named_parameters():
                if "lora_B" in name:
                    parameter.normal_()
    wrapped.save_pretrained(tmp_path / "adapter")
    return base, tmp_path / "adapter", wrapped.eval()


def deltas(base, folder):
    """What the adapter adds to each weight of the base, by PEFT's own merge."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    before = {k: v.clone() for k, v in AutoModelForCausalLM.from_pretrained(base).state_dict().items()}
    merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).merge_and_unload()
    return {k: v - before[k] for k, v in merged.state_dict().items() if (v != before[k]).any()}


def test_a_grafted_adapter_changes_exactly_the_modules_of_its_groups(adapter, tmp_path):
    base, folder, _ = adapter
    whole = deltas(base, folder)
    assert len(whole) == 8
    build(base, folder, ["attention"], tmp_path / "attention")
    build(base, folder, ["mlp"], tmp_path / "mlp")
    build(base, folder, ["attention", "mlp"], tmp_path / "both")
    attention, mlp = deltas(base, tmp_path / "attention"), deltas(base, tmp_path / "mlp")
    assert set(attention) == {name for name in whole if "self_attn" in name}
    assert set(attention) | set(mlp) == set(whole)
    assert not set(attention) & set(mlp)
    for name, delta in {**attention, **mlp}.items():
        assert torch.equal(delta, whole[name])
    kept = load_file(tmp_path / "both" / "adapter_model.safetensors")
    original = load_file(folder / "adapter_model.safetensors")
    assert kept.keys() == original.keys()
    assert all(torch.equal(kept[name], original[name]) for name in original)


def test_depth_bands_switch_blocks(adapter, tmp_path):
    base, folder, _ = adapter
    build(base, folder, ["late"], tmp_path / "late", bands=2)
    assert {name.split(".")[2] for name in deltas(base, tmp_path / "late")} == {"1"}


def test_the_base_is_not_touched(adapter, tmp_path):
    base, folder, _ = adapter
    before = (base / "model.safetensors").read_bytes()
    build(base, folder, ["attention"], tmp_path / "graft")
    assert (base / "model.safetensors").read_bytes() == before
    assert not (tmp_path / "graft" / "model.safetensors").exists()


def test_two_adapters_of_one_shape_graft_like_two_models(adapter, tmp_path):
    _, folder, wrapped = adapter
    with torch.no_grad():
        for parameter in wrapped.parameters():
            parameter.mul_(2.0)
    wrapped.save_pretrained(tmp_path / "other")
    build(folder, tmp_path / "other", ["attention"], tmp_path / "graft")
    made = load_file(tmp_path / "graft" / "adapter_model.safetensors")
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        assert torch.equal(made[name], tensor * (2.0 if "self_attn" in name else 1.0))


def test_an_adapter_without_the_group_is_refused_and_nothing_is_written(adapter, tmp_path):
    base, folder, _ = adapter
    with pytest.raises(ValueError, match="no module of group 'embedding'; the adapter has"):
        build(base, folder, ["embedding"], tmp_path / "graft")
    assert not (tmp_path / "graft").exists()
    assert modules_of(open_checkpoint(folder), ["mlp"]) == {
        f"model.layers.{layer}.mlp.{part}_proj" for layer in (0, 1) for part in ("up", "down")
    }
    assert json.loads((folder / "adapter_config.json").read_text())["r"] == 3
