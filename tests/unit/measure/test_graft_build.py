"""Grafts on disk: to the byte where nothing changes, swapped where it does, and never half written."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from headroom.measure.edit import RandomControl, Swap, delta_norm, edited, random_control
from headroom.measure.graft_build import build, write_graft
from headroom.measure.groups import by_component, parameter_count, select
from headroom.measure.weights import decode, encode, open_checkpoint


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def weights(folder: Path) -> dict:
    return {k: v for path in sorted(folder.glob("*.safetensors")) for k, v in load_file(path).items()}


@pytest.fixture(params=["one file", "shards"])
def pair(request, make_checkpoint):
    shards = request.param == "shards"
    folders = [make_checkpoint(seed=seed, shards=shards)[1] for seed in (0, 10)]
    assert (len(list(folders[0].glob("*.safetensors"))) > 2) == shards
    return folders


def test_grafting_nothing_equals_the_base_to_the_byte(pair, tmp_path):
    base, donor = map(open_checkpoint, pair)
    write_graft(base, donor, Swap(frozenset()), tmp_path / "graft")
    assert contents(tmp_path / "graft") == contents(pair[0])


def test_grafting_every_group_equals_the_donor_to_the_byte(pair, tmp_path):
    build(pair[0], pair[1], list(by_component(open_checkpoint(pair[0]).tensors)), tmp_path / "graft")
    assert contents(tmp_path / "graft") == contents(pair[1])


def test_a_graft_and_its_complement_swap(pair, tmp_path):
    groups = set(by_component(open_checkpoint(pair[0]).tensors))

    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sets(st.sampled_from(sorted(groups)), min_size=1, max_size=len(groups) - 1))
    def check(chosen):
        for name in ("into_base", "into_donor"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        build(pair[0], pair[1], sorted(chosen), tmp_path / "into_base")
        build(pair[1], pair[0], sorted(groups - chosen), tmp_path / "into_donor")
        assert contents(tmp_path / "into_base") == contents(tmp_path / "into_donor")

    check()


def test_a_graft_takes_exactly_its_tensors_and_loads_as_a_model(pair, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    chosen = select(open_checkpoint(pair[0]), ["attention", "late"])
    build(pair[0], pair[1], ["attention", "late"], tmp_path / "graft")
    base, donor, graft = weights(pair[0]), weights(pair[1]), weights(tmp_path / "graft")
    for name in base:
        assert torch.equal(graft[name], (donor if name in chosen else base)[name]), name
        assert not torch.equal(base[name], donor[name]), name
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "graft").state_dict()
    assert all(torch.equal(loaded[name], graft[name]) for name in graft)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_random_control_matches_the_group_in_parameter_count_and_norm(make_checkpoint, tmp_path, dtype):
    folders = [make_checkpoint(seed=seed, dtype=dtype)[1] for seed in (0, 10)]
    made = build(*folders, ["attention"], tmp_path / "control", control_draw=0)
    base, control = weights(folders[0]), weights(tmp_path / "control")
    deltas = {name: (control[name].double() - base[name].double()) for name in base}
    moved = sum(int((delta != 0).sum()) for delta in deltas.values())
    norm = sum(float((delta**2).sum()) for delta in deltas.values()) ** 0.5
    tolerance = {"float32": 1e-6, "float16": 1e-2, "bfloat16": 3e-2}[dtype]  # rounding of the moved parameters
    assert moved == pytest.approx(made["parameters"], rel=0 if dtype == "float32" else 0.03)
    assert norm == pytest.approx(made["delta_norm"], rel=tolerance)
    changed = {name for name in base if (deltas[name] != 0).any()}
    assert {
        "model.embed_tokens.weight",
        "model.layers.1.mlp.up_proj.weight",
    } <= changed  # not the group's tensors alone


def test_a_control_moves_each_tensor_in_proportion_to_its_size_and_along_its_own_delta(make_checkpoint):
    base, donor = (open_checkpoint(make_checkpoint(seed=seed, width=64)[1]) for seed in (0, 10))
    chosen = select(base, ["mlp"])
    control = random_control(
        base, donor, parameters=parameter_count(base, chosen), norm=delta_norm(base, donor, chosen), seed=3
    )
    share = control.parameters / parameter_count(base, base.tensors)
    for name, tensor in base.tensors.items():
        before = tensor.values()
        after = decode(b"".join(edited(control, base, donor, name)), tensor.dtype)
        hit = after != before
        assert abs(hit.sum() - share * tensor.elements) <= 1
        expected = before + control.scale * (donor.tensors[name].values() - before)
        np.testing.assert_allclose(after[hit], expected[hit], rtol=1e-6, atol=1e-7)


def test_draws_of_a_control_differ_and_one_draw_repeats(make_checkpoint, tmp_path):
    folders = [make_checkpoint(seed=seed)[1] for seed in (0, 10)]
    for name, draw in (("a", 0), ("again", 0), ("b", 1)):
        build(*folders, ["mlp"], tmp_path / name, control_draw=draw)
    assert contents(tmp_path / "a") == contents(tmp_path / "again")
    assert contents(tmp_path / "a")["model.safetensors"] != contents(tmp_path / "b")["model.safetensors"]


def test_a_control_of_the_whole_model_is_the_donor(make_checkpoint):
    base, donor = (open_checkpoint(make_checkpoint(seed=seed)[1]) for seed in (0, 10))
    total = parameter_count(base, base.tensors)
    control = random_control(base, donor, parameters=total, norm=delta_norm(base, donor, base.tensors), seed=0)
    assert control.scale == pytest.approx(1.0, abs=1e-12)
    for name, tensor in base.tensors.items():
        after = decode(b"".join(edited(control, base, donor, name)), tensor.dtype)
        np.testing.assert_allclose(after, donor.tensors[name].values(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("edit", [None, RandomControl(parameters=300, scale=2.0, seed=1)])
def test_a_stored_tied_head_always_equals_the_embedding(make_checkpoint, store_tied_head, tmp_path, edit):
    folders = [make_checkpoint(seed=seed)[1] for seed in (0, 10)]
    for folder in folders:
        store_tied_head(folder)
    base, donor = map(open_checkpoint, folders)
    write_graft(base, donor, edit or Swap(select(base, ["embedding"])), tmp_path / "graft")
    made = weights(tmp_path / "graft")
    assert made["lm_head.weight"].equal(made["model.embed_tokens.weight"])
    assert not made["lm_head.weight"].equal(weights(folders[0])["lm_head.weight"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_bf16_is_rounded_as_torch_rounds_it(values):
    import torch

    numbers = np.array(values, dtype=np.float64)
    expected = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16)
    assert encode(numbers, "BF16") == expected.view(torch.uint8).numpy().tobytes()
    np.testing.assert_array_equal(decode(encode(numbers, "BF16"), "BF16"), expected.double().numpy())


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def truncate(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def other_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}))


NORM = "model.layers.1.post_attention_layernorm.weight"
FAULTS = {
    "missing tensor": (lambda f: rewrite(f, lambda t: t.pop(NORM)), rf"tensor {NORM} is missing"),
    "surplus tensor": (lambda f: rewrite(f, lambda t: t.update(extra=t[NORM].clone())), r"tensor extra is not in"),
    "dtype": (lambda f: rewrite(f, lambda t: t.update({NORM: t[NORM].half()})), rf"tensor {NORM} has dtype F16"),
    "shape": (lambda f: rewrite(f, lambda t: t.update({NORM: t[NORM][:4].clone()})), rf"{NORM} has shape \(4,\)"),
    "truncated": (truncate, r"model.safetensors: truncated: tensor \S+v_proj.weight needs \d+ bytes"),
    "empty file": (lambda f: (f / "model.safetensors").write_bytes(b""), r"model.safetensors: truncated or not"),
    "a pickle": (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x02}q" * 99), r"truncated or not safetensors"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"holds none of model.safetensors"),
    "architecture": (other_config, r"another architecture .*num_attention_heads is 4, not 2"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_donor_is_one_error_that_names_the_place_and_nothing_is_written(make_checkpoint, tmp_path, fault):
    base, donor = (make_checkpoint(seed=seed)[1] for seed in (0, 10))
    damage, message = FAULTS[fault]
    damage(donor)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message) as caught:
        build(base, donor, ["attention"], tmp_path / "graft")
    assert str(donor) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_shard_and_a_lying_index_are_named(make_checkpoint, tmp_path):
    _, folder = make_checkpoint(seed=0, shards=True)
    index = folder / "model.safetensors.index.json"
    mapping = json.loads(index.read_text())
    name, file = next(iter(sorted(mapping["weight_map"].items())))
    other = next(value for value in mapping["weight_map"].values() if value != file)
    index.write_text(json.dumps(mapping | {"weight_map": mapping["weight_map"] | {name: other}}))
    with pytest.raises(ValueError, match=rf"index.json: tensor {re.escape(name)} is not where the index says"):
        open_checkpoint(folder)
    index.write_text(json.dumps(mapping))
    (folder / other).unlink()
    with pytest.raises(ValueError, match=rf"{other}: missing, and tensor"):
        open_checkpoint(folder)


def test_a_pair_with_other_vocabularies_is_refused(make_checkpoint, tmp_path):
    base, donor = (make_checkpoint(seed=seed)[1] for seed in (0, 10))
    for folder, word in ((base, "click"), (donor, "press")):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {word: 0}}, "added_tokens": []}))
    with pytest.raises(ValueError, match=r"tokenizer\.json: model differs"):
        build(base, donor, ["attention"], tmp_path / "graft")


def test_a_released_model_is_a_pair_with_any_donor_and_two_worlds_are_none(make_checkpoint, tmp_path):
    base, donor = (make_checkpoint(seed=seed)[1] for seed in (0, 10))
    (donor / "agent.json").write_text('{"dialect": "text game"}')
    with pytest.raises(ValueError, match="not a pair of one run"):
        build(base, donor, ["attention"], tmp_path / "graft")
    (base / "agent.json").unlink()
    build(base, donor, ["attention"], tmp_path / "graft")
    assert not (tmp_path / "graft" / "agent.json").exists()


def test_an_occupied_output_folder_is_left_alone(make_checkpoint, tmp_path):
    base, donor = (make_checkpoint(seed=seed)[1] for seed in (0, 10))
    (tmp_path / "graft").mkdir()
    (tmp_path / "graft" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists already"):
        build(base, donor, ["attention"], tmp_path / "graft")
    assert contents(tmp_path / "graft") == {"thesis.txt": b"mine"}


def test_the_command_writes_a_graft_and_ends_in_one_line_on_bad_input(make_checkpoint, tmp_path):
    base, donor = (str(make_checkpoint(seed=seed)[1]) for seed in (0, 10))
    command = [sys.executable, "-m", "headroom.measure.graft_build", "--base", base, "--donor", donor]
    done = subprocess.run(
        [*command, "--group", "attention", "--group", "mlp", "--output", str(tmp_path / "graft")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["groups"] == ["attention", "mlp"]
    assert (tmp_path / "graft" / "model.safetensors").exists()
    failed = subprocess.run(
        [*command, "--group", "wings", "--output", str(tmp_path / "no")], capture_output=True, text=True
    )
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert "no parameter group 'wings'" in failed.stderr
    assert not (tmp_path / "no").exists()
