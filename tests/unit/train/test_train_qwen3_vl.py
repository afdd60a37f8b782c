"""Training a Qwen3-VL on text moves its language weights and nothing else, in every layout; then grafts and ranks."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_qwen3_vl
import torch
from peft import PeftModel
from toy_grpo import POOL, TASKS, WORDS, FakeButtonsWorld, FakeCodec, imitate, toy_job
from transformers import AutoModelForImageTextToText

from headroom.config.models import Graft, Rank, Sft
from headroom.measure.adapted import open_pair, switched
from headroom.measure.drift import weight_drift
from headroom.measure.graft import overlay
from headroom.measure.graft_build import build, write_graft
from headroom.measure.graft_plan import plan
from headroom.measure.groups import by_component
from headroom.measure.layers import LayerWalk
from headroom.measure.probe_turns import ProbeTurns
from headroom.measure.rank import measure
from headroom.measure.weights import Checkpoint, open_checkpoint
from headroom.policy.decoder import read_decoder
from headroom.policy.files import check_checkpoint
from headroom.policy.load import Policy, load_policy, save_policy
from headroom.policy.vision import PREFIX
from headroom.train import grpo, sft
from headroom.train.batch import Example

LORA = {"rank": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]}
LAYOUTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16 masters, recomputed": {"precision": "bfloat16_masters", "gradient_checkpointing": True},
    "adapter": {"lora": LORA},
}


class Toy(FakeCodec):
    def save(self, folder: Path) -> None:
        tiny_qwen3_vl.make_tokenizer().save_pretrained(folder)


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    return tiny_qwen3_vl.write(tmp_path_factory.mktemp("released") / "checkpoint")


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """One with the toy world's words, which succeeds now and then."""
    folder = tmp_path_factory.mktemp("toy")
    policy = toy_policy(tiny_qwen3_vl.write(folder / "untrained", vocabulary=len(WORDS)))
    imitate(policy.model, steps=40)
    save_policy(policy.model, policy.codec, folder / "checkpoint")
    return folder / "checkpoint"


def toy_policy(folder: Path) -> Policy:
    return Policy(read_decoder(folder, check_checkpoint(folder), torch.float32).eval(), Toy(), folder)


def moved(before: Path, after: Path) -> set[str]:
    """The tensors that are not, byte for byte, what they were."""
    one, other = open_checkpoint(before), open_checkpoint(after)
    assert one.tensors.keys() == other.tensors.keys()
    return {
        name for name, tensor in one.tensors.items()
        if (tensor.dtype, tensor.read()) != (other.tensors[name].dtype, other.tensors[name].read())
    }  # fmt: skip


def adapted(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[-2] in LORA["target_modules"]}


def supervised(folder: Path, output: Path, trainer: dict[str, Any], adapter: Path | None = None) -> None:
    """Two steps on three demonstrations in the policy's own tokens."""
    policy = load_policy(folder, "float32")
    prompt = policy.codec.encode_prompt("goal: Click Ok.\npage:\nbutton x\nhistory:\naction:")
    actions = ("click button x", "wait", 'press "Enter"')
    examples = [Example(prompt.ids, policy.codec.encode_action(action, prompt)) for action in actions]
    recipe = {"steps": 2, "batch": 2, "learning_rate": 1e-2, "warmup_steps": 0, "trainer": trainer}
    sft.train(policy.model, examples, Sft.model_validate(recipe), adapter=adapter)
    save_policy(policy.model, policy.codec, output)


def test_two_supervised_steps_change_language_weights_only(released, tmp_path, layout):
    start, trained = tmp_path / "start", tmp_path / "trained"
    plain = load_policy(released, "float32")
    save_policy(plain.model, plain.codec, start)
    supervised(start, trained, LAYOUTS[layout], tmp_path / "adapter")
    language = {name for name in open_checkpoint(start).tensors if not name.startswith(PREFIX)}
    changed = moved(start, trained)
    assert changed == (adapted(language) if layout == "adapter" else language)
    _, report = AutoModelForImageTextToText.from_pretrained(trained, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@pytest.fixture(params=sorted(LAYOUTS))
def layout(request) -> str:
    return request.param


def test_two_updates_by_reinforcement_change_language_weights_only(toy, tmp_path, layout):
    policy = toy_policy(toy)
    trainer = LAYOUTS[layout]
    job = toy_job(2, learning_rate=3e-2, trainer=trainer)
    run = grpo.train(policy, None, FakeButtonsWorld(), job, TASKS, POOL, scratch=tmp_path / "s", adapter=tmp_path / "a")
    assert len(run.rows) == 2
    assert not any(row["skipped"] for row in run.rows)
    save_policy(policy.model, policy.codec, tmp_path / "rl")
    language = {name for name in open_checkpoint(toy).tensors if not name.startswith(PREFIX)}
    changed = moved(toy, tmp_path / "rl")
    assert changed == (adapted(language) if layout == "adapter" else language)


def test_a_run_resumes_from_its_state(toy, tmp_path):
    weights = []
    for stops in ((4,), (2, 4)):
        for steps in stops:
            policy = toy_policy(toy)
            scratch = tmp_path / f"scratch{len(stops)}"
            grpo.train(policy, None, FakeButtonsWorld(), toy_job(steps), TASKS, POOL, scratch=scratch)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()]))
    assert torch.equal(*weights)


def test_an_adapter_is_one_of_the_librarys_model(released, tmp_path):
    """PEFT puts the written adapter on the whole model, tower and all, and computes what was merged here."""
    supervised(released, tmp_path / "merged", LAYOUTS["adapter"], tmp_path / "adapter")
    base = AutoModelForImageTextToText.from_pretrained(released, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    merged = AutoModelForImageTextToText.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
    ids = torch.arange(3, 60)[None]
    with torch.no_grad():
        gap = (theirs(input_ids=ids).logits - merged(input_ids=ids).logits).abs().max()
        assert gap < 1e-4
        with theirs.disable_adapter():
            assert (theirs(input_ids=ids).logits - merged(input_ids=ids).logits).abs().max() > 100 * gap


@pytest.fixture(scope="module")
def pair(released, tmp_path_factory) -> tuple[Path, Path]:
    """A supervised checkpoint and one that was trained further."""
    folder = tmp_path_factory.mktemp("pair")
    supervised(released, folder / "sft", {})
    supervised(folder / "sft", folder / "rl", {})
    return folder / "sft", folder / "rl"


def unmoved(sft: Checkpoint, rl: Checkpoint) -> set[str]:
    return set(sft.tensors) - switched(sft, rl)


def test_the_groups_are_a_partition_with_the_tower_and_its_mergers(pair):
    found = by_component(open_checkpoint(pair[0]).tensors)
    assert set(found) == {"embedding", "attention", "mlp", "norms", "vision_tower", "merger"}


def test_no_graft_and_no_control_is_made_of_a_tower_that_did_not_move(pair):
    sft, rl = open_pair(*pair)
    assert unmoved(sft, rl) == {name for name in sft.tensors if name.startswith(PREFIX)}
    planned = list(plan(sft, rl, Graft(control_draws=1)))
    assert not any({"vision_tower", "merger"} & set(graft.groups) for graft in planned)
    assert {"attention", "mlp", "embedding"} <= {name for graft in planned for name in graft.groups}


def test_every_graft_in_memory_equals_the_one_on_disk(pair, tmp_path):
    sft, rl = open_pair(*pair)
    model = load_policy(pair[0], "float32").model
    for number, graft in enumerate(plan(sft, rl, Graft(control_draws=1))):
        base, donor = graft.pair(sft, rl)
        overlay(model, graft.edit, base, donor)
        write_graft(base, donor, graft.edit, tmp_path / str(number))
        loaded = load_policy(tmp_path / str(number), "float32").model.state_dict()
        assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items()), graft.name
        assert {name for name in moved(pair[0], tmp_path / str(number)) if name.startswith(PREFIX)} == set()


def test_the_command_grafts_groups_and_controls(pair, tmp_path):
    made = build(*pair, ["attention", "mlp"], tmp_path / "graft")
    changed = moved(pair[0], tmp_path / "graft")
    assert {name.split(".")[4] for name in changed} == {"self_attn", "mlp"}
    control = build(*pair, ["attention", "mlp"], tmp_path / "control", control_draw=0)
    assert control["parameters"] == made["parameters"]
    assert not any(name.startswith(PREFIX) for name in moved(pair[0], tmp_path / "control"))
    _, report = AutoModelForImageTextToText.from_pretrained(tmp_path / "graft", output_loading_info=True)
    assert not report["missing_keys"]


def test_a_tower_that_did_move_is_grafted_like_any_group(pair, tmp_path):
    other = Path(shutil.copytree(pair[1], tmp_path / "rl"))
    tensor = open_checkpoint(other).tensors[f"{PREFIX}merger.norm.bias"]
    content = bytearray(tensor.path.read_bytes())
    content[tensor.begin] ^= 1
    tensor.path.write_bytes(content)
    sft, rl = open_pair(pair[0], other)
    assert unmoved(sft, rl) == set()
    assert "merger" in {name for graft in plan(sft, rl, Graft(control_draws=0)) for name in graft.groups}


def test_ranks_and_drift_are_measured(pair):
    theirs, ours = open_pair(*pair)
    random = np.random.default_rng(0)
    prompts, actions = (
        tuple(random.integers(3, 250, size=n).astype(np.int32) for n in sizes)
        for sizes in ((9, 14, 20, 11), (2, 3, 1, 4))
    )
    probe = ProbeTurns(prompts=prompts, actions=actions, episode=np.array([0, 0, 1, 2]), tokenizer="", dialect="")
    ranks, agreement = measure(ours, theirs, probe, Rank(bootstrap_draws=20), 0.95)
    assert set(ranks["layer"]) == {-1, 0, 1, 2, 3}
    assert np.isfinite(ranks["effective_rank"]).all()
    assert len(agreement) > 5
    assert np.isfinite(agreement["value"]).all()
    drift = weight_drift(theirs, ours).set_index("name")
    assert drift.loc["vision_tower", "delta_norm"] == drift.loc["merger", "delta_norm"] == 0.0
    assert drift.loc["attention", "delta_norm"] > 0
    assert drift.loc["model", "sharp"]


def test_the_walk_through_the_blocks_gives_the_librarys_hidden_states_and_logits(pair):
    ids = np.random.default_rng(0).integers(3, 250, size=17).astype(np.int32)
    walk = LayerWalk(open_checkpoint(pair[1]), [ids])
    found = [states[0] for _, states in walk.states()]
    model = AutoModelForImageTextToText.from_pretrained(pair[1], dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = model(input_ids=torch.from_numpy(ids).long()[None], output_hidden_states=True)
    wanted = [state[0].numpy() for state in theirs.hidden_states]
    assert len(found) == len(wanted) + 1  # the library shows the last block's state after the final norm alone
    for ours, hidden in zip([*found[:-2], found[-1]], wanted, strict=True):
        np.testing.assert_allclose(ours, hidden, rtol=1e-4, atol=1e-4)
    logits = walk.logits([np.array([3, 16])])
    np.testing.assert_allclose(logits, theirs.logits[0, [3, 16]].numpy(), rtol=1e-4, atol=1e-4)


def test_an_adapter_pair_switches_what_it_adapts_and_nothing_else(released, tmp_path):
    supervised(released, tmp_path / "merged", LAYOUTS["adapter"], tmp_path / "adapter")
    base, policy = open_pair(released, tmp_path / "adapter")
    assert switched(base, policy) == adapted({name for name in base.tensors if not name.startswith(PREFIX)})
    assert {graft.groups for graft in plan(base, policy, Graft(control_draws=0)) if graft.kind == "group"} >= {
        ("attention",), ("mlp",),
    }  # fmt: skip


def test_a_saved_index_names_every_tensor_once(pair):
    index = json.loads((pair[1] / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == open_checkpoint(pair[1]).tensors.keys()
