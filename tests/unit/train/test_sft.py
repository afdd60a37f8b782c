import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from headroom.agent.codec import SlotCodec
from headroom.agent.text_game import TEXT_GAME
from headroom.config.jobs import SftJob, dump_job
from headroom.config.models import PretrainedModel, Sft, TinyModel
from headroom.policy.load import load_policy, save_policy
from headroom.policy.sampler import TorchSampler
from headroom.train import checkpoint, sft
from headroom.train.batch import Example
from headroom.train.trainee import Trainee

MODEL = TinyModel(width=16, layers=2, heads=2, key_value_heads=1, head_width=8, feed_forward=24, slots=8, context=160)
WORDS = ("alpha", "bravo", "cedar", "delta", "echo", "fox")


def demonstrations(episodes=40):
    """A toy page with three buttons; the goal names the one to click."""
    random = np.random.default_rng(0)
    rows = []
    for seed in range(episodes):
        names = random.permutation(WORDS)[:3]
        target = names[random.integers(3)]
        page = "\n".join(f'button "{name}"' for name in names)
        prompt = f"goal: Click {target}.\npage:\n{page}\nhistory:\naction:"
        rows.append(("click-toy", seed, 0, f"Click {target}.", prompt, f'click button "{target}"', "digest"))
    columns = ["task", "seed", "turn", "utterance", "observation", "action", "page_digest"]
    return pd.DataFrame(rows, columns=columns)


def settings(**changes):
    return Sft(**({"steps": 12, "batch": 8, "learning_rate": 1e-2, "warmup_steps": 2, "checkpoint_every": 3} | changes))


def start(seed=0):
    model, codec = sft.initialise(MODEL, demonstrations(), seed)
    return model, sft.encode(demonstrations(), codec)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def test_training_lowers_the_loss_and_reports_every_step():
    model, examples = start()
    run = sft.train(model, examples, settings(steps=40))
    assert run.ending == "finished"
    assert [row["step"] for row in run.steps] == list(range(40))
    assert run.steps[-1]["loss"] < 0.5 * run.steps[0]["loss"]
    assert not model.training


def test_a_trained_policy_does_what_was_demonstrated_to_it():
    table = demonstrations(10)
    model, codec = sft.initialise(MODEL, table, 0)
    examples = sft.encode(table, codec)
    sft.train(model, examples, settings(steps=150, batch=10, checkpoint_every=200))
    made = TorchSampler(model, codec.end_ids).generate(
        [e.prompt_ids for e in examples], temperature=0.0, seeds=[0] * len(examples), max_new_tokens=8
    )
    assert [one.ids.tolist() for one in made] == [example.action_ids.tolist() for example in examples]


def test_twelve_steps_equal_six_and_six_after_a_resume_to_the_bit(tmp_path):
    unbroken, examples = start()
    expected = sft.train(unbroken, examples, settings())
    broken, _ = start()
    sft.train(broken, examples, settings(steps=6, schedule_steps=12), scratch=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-0000000{n}.safetensors" for n in (3, 6)]
    resumed, _ = start()
    run = sft.train(resumed, examples, settings(), scratch=tmp_path)
    assert same(weights(resumed), weights(unbroken))
    assert run.steps == expected.steps
    assert len(run.seconds) == 12


def test_saving_states_changes_nothing(tmp_path):
    one, examples = start()
    two, _ = start()
    assert sft.train(one, examples, settings()).steps == sft.train(two, examples, settings(), scratch=tmp_path).steps
    assert same(weights(one), weights(two))


def test_the_seed_decides_the_weights_and_the_order():
    first, second = start(seed=0)[0], start(seed=1)[0]
    assert not same(weights(first), weights(second))
    assert sft.step_indices(40, 8, seed=0, step=0) != sft.step_indices(40, 8, seed=1, step=0)


def test_the_order_is_a_function_of_the_step_and_sees_every_turn_once_a_pass():
    seen = [i for step in range(15) for i in sft.step_indices(40, 8, seed=0, step=step)]
    passes = [sorted(seen[n : n + 40]) for n in range(0, 120, 40)]
    assert passes == [list(range(40))] * 3
    assert seen[:40] != seen[40:80]
    straddling = [i for step in range(7) for i in sft.step_indices(5, 3, seed=0, step=step)]
    assert [sorted(straddling[n : n + 5]) for n in range(0, 20, 5)] == [list(range(5))] * 4


def test_a_batch_larger_than_the_data_repeats_it():
    assert sorted(sft.step_indices(3, 7, seed=0, step=0)[:6]) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_the_microbatch_split_does_not_change_the_gradient(monkeypatch, budget):
    model, examples = start()
    model.double()

    def gradients(tokens):
        monkeypatch.setattr(sft, "MICROBATCH_TOKENS", tokens)
        model.zero_grad()
        loss, count = sft._backward(Trainee(model, torch.optim.SGD(model.parameters())), examples[:9])
        return loss, count, [parameter.grad.clone() for parameter in model.parameters()]

    loss, count, split = gradients(budget)
    whole_loss, whole_count, whole = gradients(10**9)
    assert count == whole_count == sum(len(e.action_ids) for e in examples[:9])
    assert loss == pytest.approx(whole_loss)
    for one, other in zip(split, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_the_loss_is_that_of_the_library_with_labels_on_the_action_alone(tmp_path):
    model, examples = start()
    loss, tokens = sft._backward(Trainee(model, torch.optim.SGD(model.parameters())), examples[:5])
    model.save_pretrained(str(tmp_path))
    library = AutoModelForCausalLM.from_pretrained(tmp_path)
    total = 0.0
    for example in examples[:5]:
        ids = torch.tensor(np.concatenate((example.prompt_ids, example.action_ids)).astype(np.int64))[None]
        labels = ids.clone()
        labels[0, : len(example.prompt_ids)] = -100  # the library's "not trained"
        total += library(input_ids=ids, labels=labels).loss.item() * len(example.action_ids)
    assert loss == pytest.approx(total / tokens, rel=1e-5)


def test_the_end_token_is_trained_and_the_observation_is_not():
    model, examples = start()
    assert all(example.action_ids[-1] in (1,) for example in examples)
    before = sft._backward(Trainee(model, torch.optim.SGD(model.parameters())), examples[:4])[0]
    cut = [Example(e.prompt_ids, e.action_ids[:-1]) for e in examples[:4]]
    assert sft._backward(Trainee(model, torch.optim.SGD(model.parameters())), cut)[0] != before


@pytest.mark.parametrize("poison", ["weights", "gradient"])
def test_a_step_that_is_not_finite_ends_the_run_as_diverged_with_the_weights_before_it(poison):
    model, examples = start()
    if poison == "weights":
        with torch.no_grad():
            model.model.norm.weight[0] = float("nan")
    else:
        model.model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = weights(model)
    run = sft.train(model, examples, settings())
    assert (run.ending, run.steps) == ("diverged", [])
    assert all(torch.equal(torch.nan_to_num(v), torch.nan_to_num(before[n])) for n, v in weights(model).items())


def test_the_optimiser_settings_are_used():
    still, examples = start()
    before = weights(still)
    sft.train(still, examples, settings(steps=1, learning_rate=1e-30))
    assert all(torch.allclose(value, before[name], rtol=0, atol=1e-20) for name, value in weights(still).items())
    decayed, _ = start()
    heavy = settings(steps=1, warmup_steps=0, learning_rate=0.5).model_copy(
        update={"optimiser": settings().optimiser.model_copy(update={"weight_decay": 1.0})}
    )
    plain, _ = start()
    sft.train(decayed, examples, heavy)
    sft.train(plain, examples, settings(steps=1, warmup_steps=0, learning_rate=0.5))
    name = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(weights(decayed)[name], weights(plain)[name] - 0.5 * before[name], rtol=1e-4, atol=1e-6)


def test_no_demonstration_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one"):
        sft.train(None, [], settings())
    with pytest.raises(ValueError, match=r"demonstrations\.parquet"):
        sft.read_demonstrations(tmp_path)
    demonstrations().head(0).to_parquet(tmp_path / "demonstrations.parquet")
    with pytest.raises(ValueError, match="holds no demonstration"):
        sft.read_demonstrations(tmp_path)


def test_the_table_order_does_not_matter(tmp_path):
    demonstrations().sample(frac=1.0, random_state=0).to_parquet(tmp_path / "demonstrations.parquet")
    table = sft.read_demonstrations(tmp_path)
    assert table["seed"].tolist() == list(range(40))


def write_job(folder, model=MODEL, **changes):
    (folder / "demonstrations").mkdir()
    demonstrations().to_parquet(folder / "demonstrations" / "demonstrations.parquet")
    (folder / "sft.json").write_text(dump_job(SftJob(name="sft", model=model, sft=settings(**changes))))


def command(folder, output):
    options = {"config": folder / "sft.json", "demonstrations": folder / "demonstrations", "output": folder / output}
    return [sys.executable, "-m", "headroom.train.sft", *(f"--{key}={value}" for key, value in options.items())]


def results(folder):
    """Everything reproducible below a result folder."""
    apart = ("run.json", "manifest.json", "timing.parquet")
    files = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {str(path.relative_to(folder)): data for path, data in files.items() if path.name not in apart}


@pytest.mark.slow
def test_a_stage_killed_while_it_trains_ends_like_an_unbroken_one_byte_for_byte(tmp_path):
    write_job(tmp_path, steps=300)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(sft.__file__).parents[2])}
    subprocess.run(command(tmp_path, "unbroken"), check=True, env=environment)
    for least in (3, 60):  # killed twice, the second time after a resume
        process = subprocess.Popen(command(tmp_path, "killed"), env=environment)
        while process.poll() is None and newest_state(tmp_path) < least:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
        assert not (tmp_path / "killed" / "manifest.json").exists()
    found = newest_state(tmp_path)
    again = subprocess.run(command(tmp_path, "killed"), check=True, env=environment, stderr=subprocess.PIPE, text=True)
    assert found >= 60
    assert "sft 300/300" in again.stderr
    assert results(tmp_path / "killed") == results(tmp_path / "unbroken")
    assert len(results(tmp_path / "killed")) > 4
    assert newest_state(tmp_path) == 0  # the resume folder is gone after a good end


@pytest.mark.slow
def test_a_stage_of_two_processes_that_is_told_to_stop_resumes_to_the_bytes_of_an_unbroken_one(tmp_path):
    write_job(tmp_path, steps=30, trainer={"processes": 2})
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(sft.__file__).parents[2])}

    def launch(output):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        options = command(tmp_path, output)[1:]
        return subprocess.Popen([*launcher, *options], env=environment, stderr=subprocess.PIPE, text=True)

    _, text = (unbroken := launch("unbroken")).communicate()
    assert unbroken.returncode == 0, text
    assert text.count("sft 30/30") == 1, "one process speaks"
    stopped = launch("stopped")
    while stopped.poll() is None and newest_state(tmp_path) < 6:
        time.sleep(0.01)
    stopped.send_signal(signal.SIGTERM)  # as a scheduler does before it preempts
    _, text = stopped.communicate()
    assert stopped.returncode != 0, "the run ended before it could be stopped"
    assert "interrupted; the same command resumes it" in text
    assert 6 <= newest_state(tmp_path) < 30
    _, text = (again := launch("stopped")).communicate()
    assert again.returncode == 0, text
    assert results(tmp_path / "stopped") == results(tmp_path / "unbroken")


def newest_state(folder):
    names = [path.stem for path in folder.glob(".scratch/**/step-*.safetensors")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def test_the_stage_leaves_a_checkpoint_tables_and_a_record(tmp_path, monkeypatch):
    write_job(tmp_path, steps=4)
    threads = torch.get_num_threads()
    try:
        sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "out")
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    policy = load_policy(tmp_path / "out" / "checkpoint")
    assert isinstance(policy.codec, SlotCodec)
    assert len(pd.read_parquet(tmp_path / "out" / "steps.parquet")) == 4
    assert (tmp_path / "out" / "run.json").is_file()


def test_a_demonstration_that_the_policy_could_not_give_to_its_end_is_refused(tmp_path):
    write_job(tmp_path, steps=1)
    job = SftJob.model_validate_json((tmp_path / "sft.json").read_bytes())
    table = demonstrations()
    _, codec = sft.initialise(MODEL, table, 0)
    longest = max(len(example.action_ids) for example in sft.encode(table, codec))
    (tmp_path / "sft.json").write_text(dump_job(job.model_copy(update={"longest": longest - 1})))
    with pytest.raises(
        SystemExit, match=rf"demonstrations\.parquet: \d+ of 40 answers have more than {longest - 1} tok"
    ):
        sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "out")
    assert not (tmp_path / "out" / "checkpoint").exists()
    (tmp_path / "sft.json").write_text(dump_job(job.model_copy(update={"longest": longest})))
    sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "fits")
    assert (tmp_path / "fits" / "checkpoint").is_dir()


def test_a_policy_that_learned_a_text_game_says_so_wherever_it_started(tmp_path):
    _, codec = sft.initialise(MODEL, demonstrations(), 0, TEXT_GAME)
    assert codec.dialect is TEXT_GAME
    given = tmp_path / "given"
    save_policy(*sft.initialise(MODEL, demonstrations(), 0), given)
    assert json.loads((given / "agent.json").read_text()) == {"dialect": "web pages"}
    write_job(tmp_path, PretrainedModel(name_or_path=str(given), dtype="float32"), steps=1)
    job = SftJob.model_validate_json((tmp_path / "sft.json").read_bytes())
    (tmp_path / "sft.json").write_text(dump_job(job.model_copy(update={"dialect": "text game"})))
    threads = torch.get_num_threads()
    try:
        sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "out")
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    assert (tmp_path / "out" / "checkpoint" / "agent.json").is_file()
    assert load_policy(tmp_path / "out" / "checkpoint").codec.dialect is TEXT_GAME


def test_a_folder_of_weights_is_where_it_starts_and_every_file_of_it_is_in_the_record(tmp_path):
    model, codec = sft.initialise(MODEL, demonstrations(), 0)
    given = tmp_path / "given"
    save_policy(model, codec, given)
    (given / "optimizer.pt").write_bytes(b"never read")
    write_job(tmp_path, PretrainedModel(name_or_path=str(given), dtype="float32"), steps=1, learning_rate=1e-6)
    threads = torch.get_num_threads()
    try:
        sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "out")
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    before, after = weights(model), weights(load_policy(tmp_path / "out" / "checkpoint").model)
    assert not same(before, after)
    assert all(torch.allclose(before[name], after[name], atol=1e-5) for name in before)
    inputs = json.loads((tmp_path / "out" / "run.json").read_bytes())["inputs"]
    read = {Path(item["path"]).name: item["sha256"] for item in inputs if item["name"].startswith("model.")}
    assert read == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in given.iterdir() if path.suffix != ".pt"
    }
    assert {"config.json", "model.safetensors", "slots.json", "tokenizer.json"} <= set(read)


def test_the_stage_refuses_missing_demonstrations_with_one_line(tmp_path):
    write_job(tmp_path)
    (tmp_path / "demonstrations" / "demonstrations.parquet").write_bytes(b"half a file")
    try:
        with pytest.raises(SystemExit, match=r"demonstrations\.parquet"):
            sft.main(tmp_path / "sft.json", tmp_path / "demonstrations", tmp_path / "out")
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_resume_state_of_other_settings_is_not_ours(tmp_path):
    model, examples = start()
    optimiser = torch.optim.AdamW(model.parameters())
    checkpoint.save(tmp_path, 3, model, optimiser, {"steps": [], "seconds": []})
    wider, _ = sft.initialise(MODEL.model_copy(update={"feed_forward": 32}), demonstrations(), 0)
    with pytest.raises(ValueError, match="another model"):
        sft.train(wider, examples, settings(), scratch=tmp_path)
