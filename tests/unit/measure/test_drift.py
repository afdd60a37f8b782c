"""Weight movement: parts add up to the whole, tied parameters count once, ranks are those of the updates."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from headroom.measure.adapted import open_pair
from headroom.measure.drift import weight_drift
from headroom.measure.spectrum import matrix_ranks
from headroom.measure.weights import open_checkpoint


@pytest.fixture
def pair(make_checkpoint):
    return [open_checkpoint(make_checkpoint(seed=seed)[1]) for seed in (0, 10)]


def test_group_movement_adds_up_to_the_models_and_shares_to_one(pair):
    table = weight_drift(*pair)
    model = table[table["scope"] == "model"].iloc[0]
    for scope in ("tensor", "group"):
        rows = table[table["scope"] == scope]
        assert rows["parameters"].sum() == model["parameters"]
        assert (rows["delta_norm"] ** 2).sum() == pytest.approx(model["delta_norm"] ** 2)
        assert rows["share_of_squared_movement"].sum() == pytest.approx(1.0)
    assert set(table.loc[table["scope"] == "group", "name"]) == {"embedding", "attention", "mlp", "norms"}


def test_each_tensors_movement_and_rank_are_those_of_its_difference(pair):
    base, other = (load_file(p.folder / "model.safetensors") for p in pair)
    rows = weight_drift(*pair).set_index("name")
    for name, before in base.items():
        delta = (other[name].double() - before.double()).numpy()
        row = rows.loc[name]
        assert row["delta_norm"] == pytest.approx(np.linalg.norm(delta))
        assert row["relative_movement"] == pytest.approx(np.linalg.norm(delta) / before.double().norm().item())
        if delta.ndim == 2:
            assert row["effective_rank"] == pytest.approx(matrix_ranks(delta).effective_rank)
        else:
            assert np.isnan(row["effective_rank"])
        assert bool(row["sharp"])


def test_a_policy_equal_to_its_reference_has_not_moved(pair):
    table = weight_drift(pair[0], pair[0])
    assert (table["delta_norm"] == 0).all()
    assert (table["relative_movement"] == 0).all()
    assert (table.loc[table["scope"] == "tensor", "effective_rank"].dropna() == 0).all()


def test_a_stored_tied_head_is_not_counted_twice(make_checkpoint, store_tied_head):
    folders = [make_checkpoint(seed=seed)[1] for seed in (0, 10)]
    before = weight_drift(*map(open_checkpoint, folders))
    for folder in folders:
        store_tied_head(folder)
    after = weight_drift(*map(open_checkpoint, folders))
    assert before.equals(after)


def test_a_bf16_difference_is_marked_as_rounding(make_checkpoint):
    folders = [make_checkpoint(seed=seed, dtype="bfloat16")[1] for seed in (0, 10)]
    assert not weight_drift(*map(open_checkpoint, folders))["sharp"].any()


def test_a_low_rank_update_is_seen_in_fp32_and_lost_in_bf16(make_checkpoint):
    generator = torch.Generator().manual_seed(0)
    found = {}
    for dtype in ("float32", "bfloat16"):
        _, base = make_checkpoint(seed=0, dtype=dtype, width=64)
        _, moved = make_checkpoint(seed=1, dtype=dtype, width=64)
        tensors = load_file(base / "model.safetensors")
        name = "model.layers.0.mlp.up_proj.weight"
        low = torch.randn(24, 2, generator=generator) @ torch.randn(2, 64, generator=generator)
        weight = tensors[name].float()
        tensors[name] = (weight + 1e-3 * weight.norm() / low.norm() * low).to(tensors[name].dtype)
        save_file(tensors, moved / "model.safetensors", metadata={"format": "pt"})
        table = weight_drift(open_checkpoint(base), open_checkpoint(moved)).set_index("name")
        found[dtype] = table.loc[name, "effective_rank"]
    assert found["float32"] == pytest.approx(2, abs=0.3)
    assert found["bfloat16"] > 5


def test_an_adapters_drift_equals_the_drift_of_its_merged_copy(make_checkpoint, tmp_path):
    from peft import LoraConfig, get_peft_model

    model, base = make_checkpoint(seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        wrapped = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
        with torch.no_grad():
            for name, parameter in wrapped.named_parameters():
                if "lora_B" in name:
                    parameter.normal_()
    wrapped.save_pretrained(tmp_path / "adapter")
    wrapped.merge_and_unload().save_pretrained(tmp_path / "merged")
    factors = weight_drift(*open_pair(base, tmp_path / "adapter")).set_index("name")
    merged = weight_drift(open_checkpoint(base), open_checkpoint(tmp_path / "merged")).set_index("name")
    for column in ("delta_norm", "relative_movement", "stable_rank", "participation_ratio"):
        np.testing.assert_allclose(factors[column], merged[column], rtol=1e-3, atol=1e-6)
    changed = factors.index[(factors["scope"] == "tensor") & (factors["delta_norm"] > 0)]
    assert len(changed) == 4
    assert (factors.loc[changed, "effective_rank"] <= 2 + 1e-9).all()


def test_a_pair_of_two_architectures_is_refused(make_checkpoint):
    pair = [open_checkpoint(make_checkpoint(seed=0, layers=layers)[1]) for layers in (2, 3)]
    with pytest.raises(ValueError, match="num_hidden_layers is 3, not 2"):
        weight_drift(*pair)
