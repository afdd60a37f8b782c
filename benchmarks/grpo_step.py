"""What a GRPO step costs: our update beside TRL's on the same batch and model, and our whole step by phase.

The update is everything after the rollout: forward, loss, backward, clipping, AdamW. TRL's is its own
``GRPOTrainer._compute_loss`` on its own layout (left-padded prompts, the whole batch at once), then the same backward,
clipping and AdamW, without the data loader and accelerator around it, which would only cost it more. Both run in one
process on one thread, in turns, and are compared by CPU time. Writes ``grpo_step.json`` beside this file.

    python benchmarks/grpo_step.py [CHECKPOINT TASK_SETS]

With a checkpoint, the phases are those of steps on its mastered tasks in the browser.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headroom.agent.episode import Turn
from headroom.config.models import Grpo, Optimiser, TinyModel
from headroom.files import write_json
from headroom.policy.tiny import tiny_model
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee
from headroom.train.update import update
from headroom.worlds.base import Outcome

VOCABULARY, LONGEST, REPEATS = 512, 12, 9
CHECKPOINT = Path("results/tiny/sft/sft/checkpoint")
TASK_SETS = Path("results/tiny/select/task_sets.json")
SETTINGS: dict[str, Any] = {
    "run": "benchmark", "seed": 0, "init": "sft", "tasks": "mastered", "learning_rate": 1e-4, "max_new_tokens": LONGEST,
}  # fmt: skip


def some_turns(groups: int, size: int, *, shared: bool) -> list[Turn]:
    """Two turns an episode: prompts of 60 to 180 tokens, actions of 4 to 12; ``shared`` prompts at the first turn."""
    chance = np.random.default_rng(0)

    def ids(low: int, high: int) -> np.ndarray:
        return chance.integers(3, VOCABULARY, size=chance.integers(low, high)).astype(np.int32)

    turns = []
    for _ in range(groups):
        first = ids(60, 180)
        for _ in range(size):
            for prompt in (first if shared else ids(60, 180), ids(60, 180)):
                action = ids(4, LONGEST + 1)
                turns.append(Turn(prompt, action, np.zeros(len(action), dtype=np.float32), "", Outcome.OK))
    return turns


def fresh_model() -> Any:
    """The model of the ``tiny`` scale."""
    return tiny_model(TinyModel(), vocabulary=VOCABULARY, pad_id=0, end_ids=(1,), seed=0).eval()


def our_update(turns: list[Turn], advantage: torch.Tensor) -> Callable[[], None]:
    """One update of ours, to be called again and again."""
    model, settings = fresh_model(), Grpo(**SETTINGS, optimiser=Optimiser())
    trainee = Trainee(model, adamw(settings.optimiser, settings.learning_rate))
    return lambda: void(update(trainee, None, turns, advantage, settings))


def trl_update(turns: list[Turn], advantage: torch.Tensor, folder: Path) -> Callable[[], None]:
    """One update of TRL's ``dapo`` loss, which is our token mean."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fresh_model().save_pretrained(str(folder / "start"))
    model = AutoModelForCausalLM.from_pretrained(folder / "start").eval()
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(folder), report_to=[], bf16=False, use_cpu=True, per_device_train_batch_size=len(turns),
            num_generations=2, max_completion_length=LONGEST, epsilon=0.2, epsilon_high=0.28, loss_type="dapo",
        ),
        train_dataset=Dataset.from_dict({"prompt": ["w3"] * len(turns)}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1"),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    longest = max(len(turn.prompt_ids) for turn in turns)
    prompts, prompt_mask = torch.zeros(2, len(turns), longest, dtype=torch.int64)
    actions, action_mask = torch.zeros(2, len(turns), LONGEST, dtype=torch.int64)
    for row, turn in enumerate(turns):
        prompts[row, longest - len(turn.prompt_ids) :] = torch.from_numpy(turn.prompt_ids.astype(np.int64))
        prompt_mask[row, longest - len(turn.prompt_ids) :] = 1
        actions[row, : len(turn.action_ids)] = torch.from_numpy(turn.action_ids.astype(np.int64))
        action_mask[row, : len(turn.action_ids)] = 1
    inputs = {
        "prompt_ids": prompts, "prompt_mask": prompt_mask, "completion_ids": actions, "completion_mask": action_mask,
        "advantages": advantage.float(), "num_items_in_batch": action_mask.sum(),
    }  # fmt: skip
    settings = Grpo(**SETTINGS)
    optimiser = adamw(settings.optimiser, settings.learning_rate)(list(model.parameters()))

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        trainer._compute_loss(trainer.model, inputs).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def void(_: object) -> None:
    """Drop a result."""


def seconds_in_turns(candidates: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median CPU seconds of each, called in turns so that all see the same machine; one call each to warm up."""
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(REPEATS + 1):
        for name, call in candidates.items():
            began = time.process_time()
            call()
            if round_number:
                measured[name].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in measured.items()}


def compare(groups: int = 8, size: int = 8) -> list[dict[str, Any]]:
    """Our update and TRL's, on prompts that a group shares at its first turn and on prompts that all differ."""
    rows = []
    for shared in (True, False):
        turns = some_turns(groups, size, shared=shared)
        advantage = torch.linspace(-1, 1, len(turns), dtype=torch.float64)
        with tempfile.TemporaryDirectory() as folder:
            candidates = {"ours": our_update(turns, advantage), "trl": trl_update(turns, advantage, Path(folder))}
            seconds = seconds_in_turns(candidates)
        rows.append(
            {
                "prompts": "shared by the group at its first turn" if shared else "all different",
                "turns": len(turns),
                "ours_cpu_seconds": round(seconds["ours"], 4),
                "trl_cpu_seconds": round(seconds["trl"], 4),
                "trl_over_ours": round(seconds["trl"] / seconds["ours"], 2),
            }
        )
    return rows


def phases(checkpoint: Path, task_sets: Path, steps: int = 12) -> dict[str, Any]:
    """Median wall seconds of whole steps by phase, in the browser; the first two steps warm up."""
    from headroom.config.jobs import GrpoJob
    from headroom.config.models import MiniWobSettings
    from headroom.policy.load import load_policy
    from headroom.train.diagnostics import TIMES
    from headroom.train.groups import task_set
    from headroom.train.grpo import train
    from headroom.worlds.miniwob.world import MiniWob
    from headroom.worlds.seeds import pool

    job = GrpoJob(world=MiniWobSettings(), grpo=Grpo(**SETTINGS | {"max_new_tokens": 24}, steps=steps))
    with MiniWob(job.world) as world, tempfile.TemporaryDirectory() as folder:
        tasks = task_set(task_sets, "mastered")
        run = train(load_policy(checkpoint), None, world, job, tasks, pool("train", 2000), scratch=Path(folder))
    medians = {name: statistics.median(row[name] for row in run.times[2:]) for name in TIMES}
    return {"steps": steps, "tasks": len(tasks), **{name: round(value, 4) for name, value in medians.items()}}


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    checkpoint, task_sets = map(Path, sys.argv[1:3]) if len(sys.argv) > 2 else (CHECKPOINT, TASK_SETS)
    result: dict[str, Any] = {"machine": platform.machine(), "torch": torch.__version__, "update": compare()}
    if checkpoint.is_dir() and task_sets.is_file():
        result["step"] = phases(checkpoint, task_sets)
    else:
        result["step"] = None
        print(f"{checkpoint}: not there, so the whole step is not measured; run make reproduce first", file=sys.stderr)
    print(json.dumps(result, indent=2))
    write_json(Path(__file__).with_suffix(".json"), result)


if __name__ == "__main__":
    main()
