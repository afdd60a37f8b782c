"""A Qwen3-VL checkpoint on the text track: its decoder runs here, its vision tower travels along byte for byte."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_qwen3_vl
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer, Qwen3VLForConditionalGeneration

from headroom.agent.codec import ACTION_ROOM
from headroom.config.models import PretrainedModel
from headroom.policy.decoder import Decoder, known
from headroom.policy.files import check_checkpoint, stored_tensors, weight_files
from headroom.policy.load import load_policy, save_policy
from headroom.policy.sampler import TorchSampler
from headroom.policy.score import action_log_probabilities
from headroom.policy.vision import PREFIX, PROCESSOR_FILES, VISION_FILE, vision_shapes
from headroom.train.batch import Example, make_batch

PROMPT = 'goal: Click Ok.\npage:\nbutton "Ok"\nhistory:\naction:'


@pytest.fixture(scope="module", params=["tied", "untied, split"])
def made(request, tmp_path_factory):
    untied = request.param != "tied"
    return tiny_qwen3_vl.write(tmp_path_factory.mktemp("made") / "released", tied=not untied, shards=untied)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny_qwen3_vl.write(tmp_path_factory.mktemp("whole") / "released")


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "checkpoint"))


def raw(folder, prefix=""):
    """Name -> (dtype, shape, bytes) of the stored tensors."""
    found = {}
    for path in weight_files(folder):
        content = path.read_bytes()
        for name, at in stored_tensors(path).items():
            if name.startswith(prefix):
                found[name] = (at.dtype, at.shape, content[at.begin : at.begin + at.size])
    return found


def edit_config(folder, part=None, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    (config if part is None else config[part]).update(changes)
    path.write_text(json.dumps(config))


def refused(folder):
    with pytest.raises(ValueError) as error:
        load_policy(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def examples(count=7, vocabulary=300):
    draw = torch.Generator().manual_seed(2)
    sizes = [(5, 3), (40, 1), (9, 6), (1, 4), (2, 1), (130, 2), (9, 2)][:count]
    return [
        Example(*(torch.randint(0, vocabulary, (n,), generator=draw).numpy().astype("int32") for n in size))
        for size in sizes
    ]


def test_scores_and_gradients_are_those_of_the_library(made):
    ours = load_policy(made, "float32").model
    theirs = Qwen3VLForConditionalGeneration.from_pretrained(made, dtype=torch.float32).eval()
    assert isinstance(ours, Decoder)
    turns = examples()
    scored = action_log_probabilities(ours, make_batch(turns)).log_probabilities
    scored.sum().backward()
    for row, turn in enumerate(turns):
        ids = torch.tensor([*turn.prompt_ids.tolist(), *turn.action_ids.tolist()])
        logits = theirs(input_ids=ids[None]).logits[0, len(turn.prompt_ids) - 1 : -1]
        wanted = logits.log_softmax(-1).gather(1, ids[len(turn.prompt_ids) :, None])[:, 0]
        torch.testing.assert_close(scored[row, : len(wanted)], wanted, rtol=1e-5, atol=1e-5)
        wanted.sum().backward()
    gradients = dict(theirs.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == [name for name in gradients if PREFIX not in name]
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-3, atol=1e-4)
    assert all(gradients[name].grad is None for name in gradients if name.startswith(PREFIX))


def test_greedy_actions_are_those_of_the_library(made):
    policy = load_policy(made, "float32")
    theirs = Qwen3VLForConditionalGeneration.from_pretrained(made, dtype=torch.float32).eval()
    prompt = policy.codec.encode_prompt(PROMPT)
    sampler = TorchSampler(policy.model, policy.codec.end_ids)
    one = sampler.generate([prompt.ids], temperature=0.0, seeds=[0], max_new_tokens=12)[0]
    asked = torch.tensor(prompt.ids).long()[None]
    told = theirs.generate(
        asked, attention_mask=torch.ones_like(asked), do_sample=False, max_new_tokens=12, pad_token_id=2
    )
    assert one.ids.tolist() == told[0, asked.shape[1] :].tolist()


def test_the_tower_is_neither_loaded_nor_trained(made):
    model = load_policy(made, "float32").model
    assert not any("visual" in name for name in model.state_dict())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_saved_loads_in_the_library_with_the_tower_byte_for_byte(made, tmp_path, dtype):
    policy = load_policy(made, dtype)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.25)
    out = tmp_path / "out"
    save_policy(policy.model, policy.codec, out)
    assert raw(out, PREFIX) == raw(made, PREFIX)
    assert {at[0] for at in raw(out, PREFIX).values()} == {"BF16"}
    theirs, report = AutoModelForImageTextToText.from_pretrained(out, output_loading_info=True)
    assert type(theirs) is Qwen3VLForConditionalGeneration
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    held = dict(theirs.named_parameters())
    for name, parameter in policy.model.named_parameters():
        assert held[name].dtype == parameter.dtype, name
        assert torch.equal(held[name], parameter)
    assert held.keys() - dict(policy.model.named_parameters()).keys() == raw(made, PREFIX).keys()
    again = tmp_path / "again"
    save_policy(load_policy(out, dtype).model, policy.codec, again)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in again.iterdir()}


def test_what_is_saved_still_sees(whole, tmp_path):
    """An image changes the answer of the saved checkpoint exactly as it changes that of the released one."""
    policy = load_policy(whole, "float32")
    save_policy(policy.model, policy.codec, tmp_path / "out")
    grid = torch.tensor([[1, 4, 4]])
    pixels = torch.rand(16, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, 292, 290, 290, 290, 290, 293, 7, 8]])
    asked = {"input_ids": ids, "pixel_values": pixels, "image_grid_thw": grid, "mm_token_type_ids": (ids == 290).int()}
    logits = []
    for folder in (whole, tmp_path / "out"):
        model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            logits.append(model(**asked).logits)
    assert torch.equal(*logits)
    with torch.no_grad():
        assert not torch.allclose(logits[0], model(input_ids=ids).logits)


def test_the_processor_and_the_tokenizer_come_along(whole, tmp_path):
    policy = load_policy(whole, "float32")
    save_policy(policy.model, policy.codec, tmp_path / "out")
    for name in set(PROCESSOR_FILES) & {path.name for path in whole.iterdir()}:
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes()
    assert (tmp_path / "out" / "preprocessor_config.json").is_file()
    assert AutoImageProcessor.from_pretrained(tmp_path / "out").patch_size == 4
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == tiny_qwen3_vl.TEMPLATE
    again = load_policy(tmp_path / "out", "float32").codec
    assert again.encode_prompt(PROMPT).ids.tolist() == policy.codec.encode_prompt(PROMPT).ids.tolist()
    assert again.end_ids == policy.codec.end_ids == (0, 1)


def test_prompts_go_through_the_chat_template_and_are_cut_to_the_decoders_context(whole):
    codec = load_policy(whole, "float32").codec
    text = "goal: x\npage:\n" + 'button "Ok"\n' * 100 + "history:\naction:"
    prompt = codec.encode_prompt(text)
    shown = codec.decode_action(prompt.ids[1:-10], prompt)  # without the marks that end a turn
    assert "<eot>" not in shown
    assert shown.startswith("system\nYou ope")
    assert 800 < len(prompt.ids) <= 1000 - ACTION_ROOM < len(text)
    short = load_policy(PretrainedModel(name_or_path=str(whole), context=700), "float32").codec
    assert 500 < len(short.encode_prompt(text).ids) <= 700 - ACTION_ROOM


def test_a_chat_template_that_only_the_processor_has_is_the_tokenizers_too(whole, folder, tmp_path):
    (folder / "chat_template.jinja").unlink()
    assert AutoTokenizer.from_pretrained(folder).chat_template is None
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": tiny_qwen3_vl.TEMPLATE}))
    policy = load_policy(folder, "float32")
    wanted = load_policy(whole, "float32").codec.encode_prompt(PROMPT).ids
    assert policy.codec.encode_prompt(PROMPT).ids.tolist() == wanted.tolist()
    save_policy(policy.model, policy.codec, tmp_path / "out")
    assert (tmp_path / "out/chat_template.json").read_bytes() == (folder / "chat_template.json").read_bytes()
    assert load_policy(tmp_path / "out", "float32").codec.encode_prompt(PROMPT).ids.tolist() == wanted.tolist()
    (folder / "chat_template.json").write_text("{}")
    assert "chat_template.json: cannot be read" in refused(folder)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": [{"name": "default", "template": "x"}]}))
    assert "chat_template.json: chat_template must be one text, not a list" in refused(folder)


def test_an_older_folder_may_be_the_one_that_the_tower_comes_from(folder):
    before = raw(folder, PREFIX)
    policy = load_policy(folder, "float32")
    save_policy(policy.model, policy.codec, folder)
    save_policy(policy.model, policy.codec, folder)
    assert raw(folder, PREFIX) == before


def test_a_tower_that_is_gone_when_the_policy_is_saved_is_named_and_nothing_is_left(folder, tmp_path):
    policy = load_policy(folder, "float32")
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match="holds no vision tower any more"):
        save_policy(policy.model, policy.codec, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_shapes_of_the_tower_are_the_librarys(whole):
    found = {name: shape for name, (_, shape, _) in raw(whole, PREFIX).items()}
    assert vision_shapes(json.loads((whole / "config.json").read_text())["vision_config"]) == found


@pytest.mark.parametrize("name", ["qwen3-vl-4b", "qwen3-vl-8b"])
def test_the_released_models_are_known_here(name):
    import yaml

    path = Path(__file__).parents[3] / f"workflow/models/{name}.yaml"
    config = yaml.safe_load(path.read_text())["architecture"]
    assert known(config)
    with torch.device("meta"):
        ours = Decoder(config)
    tower = vision_shapes(config["vision_config"])
    count = sum(parameter.numel() for parameter in ours.parameters()) + sum(
        torch.Size(s).numel() for s in tower.values()
    )
    assert count == yaml.safe_load(path.read_text())["parameters"]


def test_older_configurations_say_rope_scaling_and_rope_theta(folder):
    before = load_policy(folder, "float32").model
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope.pop("rope_theta")
    text["rope_scaling"] = rope
    (folder / "config.json").write_text(json.dumps(config))
    after = load_policy(folder, "float32").model
    batch = make_batch(examples())
    with torch.no_grad():
        pair = [action_log_probabilities(model, batch).log_probabilities for model in (before, after)]
    assert torch.equal(*pair)


@pytest.mark.parametrize("lost", ["model.visual.merger.norm.bias", "model.visual.blocks.1.attn.qkv.weight", "all"])
def test_a_tower_that_is_not_all_there_is_one_line(folder, lost):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    kept = {name: t for name, t in tensors.items() if name != lost and not (lost == "all" and name.startswith(PREFIX))}
    save_file(kept, path, metadata={"format": "pt"})
    message = refused(folder)
    assert "vision tower" in message
    assert (lost if lost != "all" else "model.visual.blocks.0") in message
    assert "copy the whole released checkpoint" in message


def test_a_tower_of_another_checkpoint_is_one_line(folder):
    edit_config(folder, "vision_config", intermediate_size=21)
    assert "blocks.0.mlp.linear_fc1.bias has shape (20,), not (21,)" in refused(folder)


def test_a_folder_with_an_image_processor_and_no_tokenizer_is_one_line(folder):
    for path in folder.iterdir():
        if "token" in path.name or path.suffix == ".jinja":
            path.unlink()
    assert "tokenizer" in refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
        {"hidden_act": "gelu"},
        {"attention_dropout": 0.1},
    ],
)
def test_what_the_decoder_does_not_compute_is_refused(folder, change):
    edit_config(folder, "text_config", **change)
    assert "only the released form is supported" in refused(folder)


def test_a_configuration_without_its_text_part_is_refused(folder):
    edit_config(folder, text_config=None)
    assert "text_config" in refused(folder)
    edit_config(folder, vision_config={})
    assert "config.json" in refused(folder)


def test_weights_of_another_vocabulary_or_width_are_refused(folder):
    edit_config(folder, "text_config", intermediate_size=41)
    assert "two different checkpoints" in refused(folder)
    edit_config(folder, "text_config", vocab_size=301)
    assert "vocab_size is 301" in refused(folder)


def test_the_checks_read_headers_and_not_weights(folder):
    config = check_checkpoint(folder)
    assert config["model_type"] == "qwen3_vl"
    with safe_open(folder / "model.safetensors", "pt") as stream:
        assert len(stream.keys()) > 40


def test_loading_one_imports_none_of_the_librarys_models(folder):
    """Nor does any other checkpoint: the import takes longer than a small evaluation."""
    code = (
        "import sys, torch; from pathlib import Path; from headroom.policy.decoder import read_decoder;"
        "from headroom.policy.files import check_checkpoint; folder = Path(sys.argv[1]);"
        "read_decoder(folder, check_checkpoint(folder), torch.float32); import headroom.policy.load;"
        "print([name for name in sys.modules if name.startswith('transformers')])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_vision_file_is_a_plain_safetensors_file(whole, tmp_path):
    policy = load_policy(whole, "float32")
    save_policy(policy.model, policy.codec, tmp_path / "out")
    released = load_file(whole / "model.safetensors")
    found = load_file(tmp_path / "out" / VISION_FILE)
    assert found.keys() == {name for name in released if name.startswith(PREFIX)}
    assert all(torch.equal(tensor, released[name]) for name, tensor in found.items())
