"""A base with an adapter on it against what PEFT itself computes: weights, updates, hidden states; what is refused."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from headroom.config.models import Graft
from headroom.measure.adapted import AsFloat32, adapted, open_pair, switched
from headroom.measure.drift import weight_drift
from headroom.measure.graft import overlay
from headroom.measure.graft_build import build
from headroom.measure.graft_plan import plan
from headroom.measure.layers import LayerWalk
from headroom.measure.weights import open_checkpoint


@pytest.fixture
def make_adapter(make_checkpoint, tmp_path):
    """make(name, model options, LoRA options) -> (base folder, adapter folder, the wrapped model)."""

    def make(name="adapter", model=None, **options):
        bare, base = make_checkpoint(seed=0, **(model or {}))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            wrapped = get_peft_model(bare, LoraConfig(**{"r": 3, "lora_alpha": 7, **options}))
            with torch.no_grad():
                for key, parameter in wrapped.named_parameters():
                    if parameter.requires_grad:
                        parameter.add_(torch.randn(parameter.shape) * (0.3 if "lora_" in key else 0.1))
        wrapped.save_pretrained(tmp_path / name, save_embedding_layers=False)
        return base, tmp_path / name, wrapped.eval()

    return make


KINDS = {
    "attention and mlp": {"target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"]},
    "ranks and scales by module": {
        "target_modules": ["q_proj", "k_proj", "gate_proj"],
        "rank_pattern": {"gate_proj": 2},
        "alpha_pattern": {"k_proj": 3},
        "use_rslora": True,
    },
    "a norm saved whole": {"target_modules": ["o_proj"], "modules_to_save": ["input_layernorm"]},
    "some layers": {"target_modules": ["down_proj"], "layers_to_transform": [1]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_with_the_adapter_on_equals_the_one_that_peft_merges(make_adapter, kind):
    base, folder, wrapped = make_adapter(**KINDS[kind])
    off, on = open_pair(base, folder)
    merged = wrapped.merge_and_unload().state_dict()
    plain = AutoModelForCausalLM.from_pretrained(base).state_dict()
    changed = {name for name, tensor in on.tensors.items() if not torch.equal(merged[name], plain[name])}
    assert switched(off, on) == changed
    for name, tensor in on.tensors.items():
        np.testing.assert_allclose(tensor.values(), merged[name].double().numpy().ravel(), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(off.tensors[name].values(), plain[name].double().numpy().ravel())
        middle = (3, max(0, tensor.elements - 5))  # a piece that begins and ends inside a row
        np.testing.assert_allclose(tensor.values(*middle), tensor.values()[3 : 3 + middle[1]], rtol=1e-12)


def test_an_untied_embedding_may_be_adapted(make_adapter):
    base, folder, wrapped = make_adapter(model={"tied": False}, target_modules=["embed_tokens"])
    _, on = open_pair(base, folder)
    expected = wrapped.merge_and_unload().state_dict()["model.embed_tokens.weight"].double().numpy().ravel()
    np.testing.assert_allclose(on.tensors["model.embed_tokens.weight"].values(), expected, rtol=1e-5, atol=1e-6)


def test_the_updates_of_a_bfloat16_base_keep_their_rank_and_are_sharp(make_adapter):
    base, folder, wrapped = make_adapter(model={"dtype": "bfloat16", "width": 64}, target_modules=["q_proj", "up_proj"])
    table = weight_drift(*open_pair(base, folder)).set_index("name")
    for name, module in wrapped.get_base_model().named_modules():
        if hasattr(module, "get_delta_weight"):
            full = np.linalg.svd(module.get_delta_weight("default").detach().double().numpy(), compute_uv=False)
            row = table.loc[f"{name}.weight"]
            assert row["delta_norm"] == pytest.approx(np.linalg.norm(full), rel=0.01)  # PEFT multiplied in bfloat16
            assert row["effective_rank"] <= 3 + 1e-9
            assert row["stable_rank"] == pytest.approx((full**2).sum() / (full**2).max(), rel=0.05)
    assert table["sharp"].all()
    assert (table.loc["model.embed_tokens.weight", ["delta_norm", "effective_rank"]] == 0).all()


def test_hidden_states_and_logits_are_read_with_the_adapter_on(make_adapter):
    base, folder, wrapped = make_adapter(**KINDS["a norm saved whole"])
    _, on = open_pair(base, folder)
    ids = np.random.default_rng(0).integers(0, 40, size=11).astype(np.int32)
    walk = LayerWalk(on, [ids])
    states = [found[0].copy() for _, found in walk.states()]
    with torch.inference_mode():
        whole = wrapped(input_ids=torch.from_numpy(ids.astype(np.int64))[None], output_hidden_states=True)
    np.testing.assert_allclose(states[0], whole.hidden_states[0][0].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(states[1], whole.hidden_states[1][0].numpy(), rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(states[-1], whole.hidden_states[-1][0].numpy(), rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(walk.logits([np.arange(11)]), whole.logits[0].numpy(), rtol=1e-4, atol=1e-4)


def test_a_planned_graft_is_the_adapter_with_its_modules_switched_on_or_off(make_adapter, tmp_path):
    base, folder, _ = make_adapter(**KINDS["attention and mlp"])
    off, on = open_pair(base, folder)
    planned = {graft.name: graft for graft in plan(off, on, Graft(bands=2, control_draws=1))}
    names = ("attention", "mlp", "early", "late", "attention+mlp")
    swaps = {f"{way}/{name}" for way in ("sufficiency", "necessity") for name in names}
    assert swaps == {name for name, graft in planned.items() if graft.kind in ("group", "pair")}
    model = AutoModelForCausalLM.from_pretrained(base)
    others = {"attention": "mlp", "mlp": "attention", "early": "late", "late": "early"}
    for number, name in enumerate(names[:4]):
        for direction, kept in (("sufficiency", name), ("necessity", others[name])):
            graft = planned[f"{direction}/{name}"]
            overlay(model, graft.edit, *graft.pair(off, on))
            written = tmp_path / f"{direction}{number}"
            build(base, folder, [kept], written, bands=2)
            loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), written).merge_and_unload()
            for key, tensor in loaded.state_dict().items():
                torch.testing.assert_close(model.state_dict()[key], tensor, rtol=1e-5, atol=1e-6)
    overlay(model, planned["sft"].edit, *planned["sft"].pair(off, on))
    for key, tensor in AutoModelForCausalLM.from_pretrained(base).state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), f"{key} is the base's to the bit"


def test_a_control_of_an_adapter_moves_as_many_of_the_parameters_that_it_can_move(make_adapter):
    base, folder, _ = make_adapter(**KINDS["attention and mlp"])
    off, on = open_pair(base, folder)
    planned = {graft.name: graft for graft in plan(off, on, Graft(bands=2, control_draws=1))}
    model = AutoModelForCausalLM.from_pretrained(base)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    control = planned["sufficiency/mlp/control-0"]
    overlay(model, control.edit, *control.pair(off, on))
    deltas = {key: tensor - before[key] for key, tensor in model.state_dict().items()}
    moved = sum(int((delta != 0).sum()) for delta in deltas.values()) - int((deltas["lm_head.weight"] != 0).sum())
    assert moved == control.parameters == planned["sufficiency/mlp"].parameters
    norm = np.sqrt(sum(float((delta.double() ** 2).sum()) for delta in deltas.values()))
    assert norm == pytest.approx(control.delta_norm, rel=1e-4)
    assert {key for key, delta in deltas.items() if delta.any()} <= switched(off, on)


def test_what_is_declared_of_a_group_that_the_adapter_leaves_alone_is_left_out(make_adapter):
    base, folder, _ = make_adapter(target_modules=["q_proj"])
    off, on = open_pair(base, folder)
    planned = list(plan(off, on, Graft(bands=1, controls_of=(("attention",), ("embedding",)), control_draws=1)))
    assert {"+".join(graft.groups) for graft in planned if graft.kind != "endpoint"} == {"attention", "all"}
    assert {graft.groups for graft in planned if graft.kind == "control"} == {("attention",)}
    with pytest.raises(ValueError, match="no parameter group 'brain'"):
        list(plan(off, on, Graft(controls_of=(("brain",),))))


CONFIGS = {
    "peft_type": ("IA3", "peft_type is IA3, not LORA"),
    "use_dora": (True, "use_dora is set"),
    "alora_invocation_tokens": ([1], "alora_invocation_tokens is set"),
    "init_lora_weights": ("pissa_niter_4", "init_lora_weights pissa_niter_4 rewrites the base"),
}


@pytest.mark.parametrize("key", CONFIGS)
def test_an_adapter_that_is_no_sum_of_the_base_and_a_product_is_refused(make_adapter, key):
    base, folder, _ = make_adapter(target_modules=["q_proj"])
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: CONFIGS[key][0]}))
    with pytest.raises(ValueError, match=f"{folder.name}/adapter_config.json: {CONFIGS[key][1]}"):
        open_pair(base, folder)


def test_an_adapter_of_another_base_is_refused_by_the_name_of_its_tensor(make_adapter, make_checkpoint):
    adapter = open_checkpoint(make_adapter(target_modules=["q_proj", "down_proj"])[1])
    with pytest.raises(ValueError, match=r"lora_B\S+ has an update of shape \S+ \d+\) for model\S+ of shape"):
        adapted(open_checkpoint(make_checkpoint(seed=1, width=32)[1]), adapter)
    with pytest.raises(ValueError, match=r"layers\.1\S+ changes model\.layers\.1\S+, which \S+ does not have"):
        adapted(open_checkpoint(make_checkpoint(seed=1, layers=1)[1]), adapter)


def test_an_embedding_that_the_base_ties_to_its_head_is_refused(make_adapter):
    base, folder, _ = make_adapter(target_modules=["embed_tokens"])
    with pytest.raises(ValueError, match=r"changes model.embed_tokens.weight, which \S+ ties to its head"):
        open_pair(base, folder)


def test_one_folder_twice_is_one_checkpoint_in_which_nothing_differs(make_checkpoint):
    _, folder = make_checkpoint(seed=0)
    ours, theirs = open_pair(folder, folder)
    assert not switched(ours, theirs)
    assert not any(isinstance(tensor, AsFloat32) for tensor in theirs.tensors.values())
