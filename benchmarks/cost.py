"""How does the cost of a GRPO step grow with group size, turns, prompts and model size? Measured, on one core.

    python benchmarks/cost.py [--keep] [RESULTS ...]      writes benchmarks/cost.csv, .json, .pdf and .png

Each point is the sampler's and the update's processor time (the least of three) on a tiny Qwen3 of random weights and
random pages of equal length, so that what is counted is what is computed. ``headroom plan`` fits these rows; the
figure shows the fit, its left-one-out error, and where it leads at paper scale. RESULTS are folders of finished runs
(``results/tiny``): the processor time of whole GRPO jobs, by their run records, beside what the fit says of them.
``--keep`` takes the committed rows and measures nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from headroom.agent.episode import Turn
from headroom.config.models import Grpo, Optimiser, TinyModel
from headroom.files import write_csv, write_json
from headroom.plan import cost, estimate, figure, sweep, work
from headroom.plan.architecture import count
from headroom.policy.sampler import TorchSampler
from headroom.policy.tiny import tiny_config, tiny_model
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee
from headroom.train.update import update
from headroom.worlds.base import Outcome

PROJECT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".csv")
RUNS = TABLE.with_name("cost_runs.csv")
VOCABULARY, REPEATS, PAGES, BUDGET = 512, 3, 4, 16384
CENTRE = {"width": 96, "layers": 2, "group": 8, "turns": 2, "prompt": 80, "action": 10}
AXES = {
    "group": (2, 4, 16, 32),
    "turns": (1, 4, 8),
    "prompt": (20, 160, 320),
    "action": (5, 20),
    "layers": (4, 8),
    "width": (48, 192, 384),
}
EXTRA = [{"width": 256, "layers": 4, "group": 16}, {"width": 192, "turns": 4}, {"group": 16, "turns": 4, "prompt": 40}]
SETTINGS = {"run": "benchmark", "seed": 0, "init": "sft", "tasks": "mastered", "learning_rate": 1e-5}


def points() -> list[dict[str, int]]:
    """The centre, one axis at a time, and a few where two move together."""
    single = [{**CENTRE, axis: value} for axis, values in AXES.items() for value in values]
    return [CENTRE, *single, *({**CENTRE, **extra} for extra in EXTRA)]


def measure(point: dict[str, int], repeats: int = REPEATS) -> list[dict[str, object]]:
    """Processor seconds of both phases at one point, beside what the plan counts for it."""
    heads = max(1, point["width"] // 32)
    tiny = TinyModel(
        width=point["width"], layers=point["layers"], heads=heads, key_value_heads=heads,
        feed_forward=point["width"] * 8 // 3,
    )  # fmt: skip
    config = tiny_config(tiny, vocabulary=VOCABULARY, pad_id=0, end_ids=(1,))
    shape = count("tiny", config)
    model = tiny_model(tiny, vocabulary=VOCABULARY, pad_id=0, end_ids=(1,), seed=0).eval()
    episodes = PAGES * point["group"]
    chance = np.random.default_rng(0)

    def prompts(number: int) -> list[np.ndarray]:
        return [chance.integers(3, VOCABULARY, size=point["prompt"]).astype(np.int32) for _ in range(number)]

    first = [prompt for prompt in prompts(PAGES) for _ in range(point["group"])]
    rounds = [first, *(prompts(episodes) for _ in range(point["turns"] - 1))]
    sampler = TorchSampler(model, (VOCABULARY - 1,))

    def generate() -> list[Turn]:
        turns = []
        for number, these in enumerate(rounds):
            seeds = [number * 1000 + i for i in range(len(these))]
            made = sampler.generate(these, temperature=1.0, seeds=seeds, max_new_tokens=point["action"])
            turns += [Turn(p, g.ids, g.log_probabilities, "", Outcome.OK) for p, g in zip(these, made, strict=True)]
        return turns

    turns = generate()
    tokens = float(np.mean([len(turn.action_ids) for turn in turns]))
    settings = Grpo(**SETTINGS, microbatch_tokens=BUDGET, optimiser=Optimiser())
    trainee = Trainee(model, adamw(settings.optimiser, settings.learning_rate))
    advantage = torch.from_numpy(chance.choice([-1.0, 1.0], size=len(turns)))
    profile = work.Profile(point["turns"], point["prompt"], tokens)
    counted = work.rollout(shape, profile, PAGES, episodes)
    counted += work.update(shape, profile, PAGES, len(turns), budget=BUDGET, recomputed=False, reference=False)
    return [
        {
            "phase": phase, "pages": PAGES, **point, "parameters": shape.parameters,
            "flops": getattr(counted, f"{phase}_flops"), "calls": getattr(counted, f"{phase}_calls"),
            "cpu_seconds": least(run, repeats),
        }
        for phase, run in (
            ("generate", generate), ("update", lambda: update(trainee, None, turns, advantage, settings)),
        )
    ]  # fmt: skip


def least(run: Callable[[], object], repeats: int) -> float:
    """The least processor time of some runs, after one that does not count."""
    run()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return round(min(found), 5)


def whole_jobs(results: Path, fits: dict[str, cost.Fit]) -> list[dict[str, object]]:
    """GRPO runs of the tiny model under a folder of results: processor seconds, and what is counted for them."""
    found: list[dict[str, object]] = []
    page, rates = estimate.world_seconds(PROJECT), cost.processor(fits)
    shape = count("tiny", tiny_config(TinyModel(), vocabulary=VOCABULARY, pad_id=0, end_ids=(1,)))
    for row in cost.recorded(results):
        if row["stage"] != "train.grpo":
            continue
        folder = results / str(row["job"])
        grpo = Grpo(**json.loads((folder / "run.json").read_bytes())["config"]["content"]["grpo"])
        steps = pd.read_parquet(folder / "steps.parquet")
        turns = steps["turns_mean"].mean()
        episodes = grpo.pages_per_step * grpo.group_size
        actions = steps["action_tokens"].mean() / (episodes * turns)
        profile = work.Profile(turns, work.PROFILES["tiny"].prompt_tokens, actions)
        step = work.rollout(shape, profile, grpo.pages_per_step, episodes)
        step += work.update(
            shape, profile, grpo.pages_per_step, episodes * turns, budget=grpo.microbatch_tokens,
            recomputed=False, reference=grpo.kl_beta > 0,
        )  # fmt: skip
        steps_of = step.times(len(steps))
        found.append(
            {
                "run": grpo.run,
                "steps": len(steps),
                "group": grpo.group_size,
                "turns": round(turns, 3),
                "kl": grpo.kl_beta > 0,
                "cpu_seconds": row["cpu_seconds"],
                "model_seconds": round(cost.seconds(steps_of, rates, weight_bytes=0), 2),
                "world_seconds": round(steps_of.world_steps * page, 2),
            }
        )
    return found


def main() -> None:
    """Measure, fit, compare whole jobs, draw."""
    torch.set_num_threads(1)
    arguments = [argument for argument in sys.argv[1:] if argument != "--keep"]
    if "--keep" not in sys.argv[1:]:
        rows = []
        for number, point in enumerate(points(), start=1):
            rows += measure(point)
            print(f"{number} of {len(points())}: {point}", flush=True)
        write_csv(TABLE, pd.DataFrame(rows))
    table = pd.read_csv(TABLE)
    fits = {phase: cost.fit(table, phase) for phase in cost.PHASES}
    if arguments:
        write_csv(RUNS, pd.DataFrame([row for folder in arguments for row in whole_jobs(Path(folder), fits)]))
    runs = pd.read_csv(RUNS)
    found = {
        "cores": 1,
        "fit": {phase: fit.described() for phase, fit in fits.items()},
        "whole_jobs": asdict(cost.whole(runs)),
    }
    write_json(TABLE.with_suffix(".json"), found)
    growth = sweep.growth(PROJECT, "paper")
    write_csv(TABLE.with_name("cost_paper.csv"), growth)
    figure.draw(table, fits, growth, TABLE.with_suffix(".pdf"))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
