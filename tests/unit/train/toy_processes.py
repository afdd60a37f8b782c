"""Toy runs in as many processes as torchrun starts; the first one writes what came of them.

``python toy_processes.py FOLDER`` reads ``FOLDER/cases.json`` (name -> settings) and leaves a folder a case.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import toy_game
from safetensors.torch import save_file
from toy_grpo import POOL, TASKS, WORDS, FakeButtonsWorld, FakeCodec, toy_job

from headroom.config.models import Sft, TinyModel
from headroom.policy.decoder import Decoder
from headroom.policy.load import Policy
from headroom.policy.repeatable import repeatable
from headroom.policy.tiny import tiny_model
from headroom.train import grpo, sft
from headroom.train.batch import Example
from headroom.train.processes import Processes, start


def deep_policy() -> Policy:
    """Three layers with grouped heads and tied embeddings, far from their small start; untrained."""
    shape = TinyModel(
        width=32, layers=3, heads=4, key_value_heads=2, head_width=8, feed_forward=48, context=96, initial_std=0.2
    )
    model = tiny_model(shape, vocabulary=len(WORDS), pad_id=WORDS.index("<pad>"), end_ids=(1,), seed=3)
    return Policy(model.eval(), FakeCodec(), Path("deep"))


def seeing_policy() -> Policy:
    """The same network under the names of a Qwen3-VL, whose vision tower is nowhere."""
    plain = deep_policy().model
    text = plain.config | {"model_type": "qwen3_vl_text"}
    model = Decoder({"model_type": "qwen3_vl", "tie_word_embeddings": True, "text_config": text})
    model.load_state_dict({seeing(name): value for name, value in plain.state_dict().items()}, assign=True)
    model.tie()
    return Policy(model.eval(), FakeCodec(), Path("deep"))


def seeing(name: str) -> str:
    """A plain decoder's parameter as a Qwen3-VL calls it."""
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def grpo_case(folder: Path, scratch: Path, settings: dict[str, Any], processes: Processes) -> Policy:
    """Four steps; the rows go to ``rows.json``."""
    game = settings.pop("game", False)
    of = toy_game.game_policy if game else seeing_policy if settings.pop("seeing", False) else deep_policy
    trainer = {**settings.get("trainer", {}), "processes": processes.count}
    job = toy_job(**{**settings, "trainer": trainer})
    policy = of()
    reference = None
    if job.grpo.kl_beta > 0:
        reference = policy.model if job.grpo.trainer.lora else of().model.requires_grad_(False)
    world = toy_game.FakeGame(impossible=True) if game else FakeButtonsWorld()
    run = grpo.train(
        policy, reference, world, job, toy_game.TASKS if game else TASKS, POOL,
        scratch=scratch, processes=processes, adapter=folder / "adapter", validation_seeds=POOL,
    )  # fmt: skip
    assert len(set(processes.gather(json.dumps([run.rows, run.validations])))) == 1, (
        "the processes disagree about the rows"
    )
    if processes.first:
        (folder / "rows.json").write_text(json.dumps(run.rows))
        (folder / "validations.json").write_text(json.dumps(run.validations))
    return policy


def sft_case(scratch: Path, settings: dict[str, Any], processes: Processes) -> Policy:
    """Some steps on made-up turns of many lengths."""
    trainer = {**settings.get("trainer", {}), "processes": processes.count}
    policy, random = deep_policy(), np.random.default_rng(0)
    turns = [(random.integers(1, 9), random.integers(1, 5)) for _ in range(11)]
    examples = [Example(*(random.integers(0, 7, n).astype(np.int32) for n in turn)) for turn in turns]
    sft.MICROBATCH_TOKENS = 25  # several microbatches, and not as many in each process
    recipe = {"steps": 4, "batch": 7, "learning_rate": 3e-3, "warmup_steps": 0, "checkpoint_every": 2}
    sft.train(
        policy.model, examples, Sft.model_validate({**recipe, "trainer": trainer}), scratch=scratch, processes=processes
    )
    return policy


def run_case(folder: Path, settings: dict[str, Any], processes: Processes) -> None:
    """One case; a folder ``states`` that is there already is resumed from."""
    settings = dict(settings)
    folder.mkdir(parents=True, exist_ok=True)
    if settings.pop("stage", "grpo") == "sft":
        policy = sft_case(folder / "states", settings, processes)
    else:
        policy = grpo_case(folder, folder / "states", settings, processes)
    if processes.first:
        save_file({name: value.detach() for name, value in policy.model.named_parameters()}, folder / "weights")


if __name__ == "__main__":
    repeatable()
    root = Path(sys.argv[1])
    with start(int(os.environ.get("WORLD_SIZE", "1"))) as these:
        for name, case in json.loads((root / "cases.json").read_text()).items():
            run_case(root / name, case, these)
