"""Does one GPU do what the study asks of it? ``make gpu-check``: every kind of work once, on a model of full size.

A random model of a released one's shape goes through an SFT step, a rollout, a GRPO step, a graft and the rank of its
hidden states: the stages' own functions with the paper scale's own trainer settings, on real pages where a browser is
found. Then numbers are held to float32 (:mod:`headroom.cluster.gpu_parity`). Written: seconds and peak memory a phase
(``gpu-check.csv``), and the machine, the settings and every check with its limit (``gpu-check.json``).

What differs from a study, and why: the weights are random, so no episode succeeds and the advantages are alternating
signs; a random model has no tokenizer (:mod:`headroom.cluster.gpu_random`); checkpoints are written in bfloat16, half
the disk of the study's float32; the rank is of the last ids of a few turns, without the drift of the weights, since
both are computed on the processor.

    python -m headroom.cluster.gpu_check --shape tiny --device cpu     the same path in seconds, on a processor
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from safetensors.torch import save_file

from headroom.agent.episode import Turn
from headroom.cluster.gpu_parity import Check, device_parity, precision_parity
from headroom.cluster.gpu_phases import Phases
from headroom.cluster.gpu_random import PAGES, TASKS, Codec, MadeUpPages, random_model, shape_config, supervised_turns
from headroom.config.jobs import GrpoJob
from headroom.config.models import Grpo, Lora, MiniWobSettings, Rank, Sft, Trainer
from headroom.config.resolve import scale_content
from headroom.files import write_csv, write_json
from headroom.measure.edit import Swap
from headroom.measure.graft import overlay
from headroom.measure.groups import select
from headroom.measure.probe_turns import ProbeTurns
from headroom.measure.rank import measure
from headroom.measure.weights import Checkpoint, open_checkpoint
from headroom.plan.architecture import TINY_VOCABULARY, count
from headroom.plan.memory import CONTEXT_BYTES, Load, peak, training
from headroom.policy.canary import TOLERANCE
from headroom.policy.decoder import Decoder, read_decoder
from headroom.policy.files import WEIGHTS
from headroom.policy.load import Policy
from headroom.policy.repeatable import repeatable
from headroom.policy.sampler import TorchSampler
from headroom.provenance.environment import machine
from headroom.provenance.project import root
from headroom.train import sft
from headroom.train.grpo import collect
from headroom.train.optimiser import adamw
from headroom.train.reward import scored
from headroom.train.rollout import PhaseSeconds, rollout
from headroom.train.trainee import Trainee
from headroom.train.update import update
from headroom.worlds.base import World

SCALE = "paper"
"""Whose trainer settings are checked; one process instead of its several, because this is one GPU."""
MINUTES = 8.0
LOAD = Load(tokens=5000, actions=1024, cached=5000, rows=8)
"""Of the GRPO step below: one page, eight samples, two turns."""
PROBE_TURNS, PROBE_IDS = 6, 64


def paper_trainer(lora: bool = False) -> Trainer:
    """The trainer settings of the paper scale, for one process; ``lora``: adapters instead of all weights."""
    content: Any = scale_content(root(), SCALE)
    return Trainer(**{**content["grpo"]["trainer"], "processes": 1, "lora": Lora() if lora else None})


def room(shape: str, config: dict[str, Any], trainer: Trainer) -> None:
    """Refuse a GPU that the plan (``headroom.plan.memory``) says is too small, or a full disk, before any work.

    Raises:
        ValueError: the message says by how much.
    """
    sizes = count(shape, config)
    moment, planned = peak(training(sizes, trainer, LOAD, reference=False))
    free, total = torch.cuda.mem_get_info()
    needed = planned - CONTEXT_BYTES  # this process has its context already
    if free < needed:
        raise ValueError(
            f"{torch.cuda.get_device_name()}: {free / 2**30:.0f} of {total / 2**30:.0f} GiB are free, but the widest "
            f"moment of {shape} ({moment}) needs {needed / 2**30:.0f}; take a larger GPU, --lora, or --shape qwen3-1.7b"
        )
    scratch, disk = Path(tempfile.gettempdir()), 2 * 2 * sizes.parameters  # two checkpoints in bfloat16
    if shutil.disk_usage(scratch).free < disk:
        raise ValueError(f"{scratch}: two checkpoints of {shape} need {disk / 1e9:.0f} GB; set TMPDIR to a larger disk")


def walk(config: dict[str, Any], device: str, trainer: Trainer, world: World, phases: Phases) -> list[Check]:
    """Every kind of work once, as the stages do it; the checks of what came out."""
    codec = Codec(config["vocab_size"])
    grpo = Grpo(
        run="gpu-check", seed=0, init="sft", tasks="mastered", steps=1, pages_per_step=1, group_size=8,
        learning_rate=1e-3, max_new_tokens=64, microbatch_tokens=32768, trainer=trainer,
    )  # fmt: skip
    job = GrpoJob(world=MiniWobSettings(tabs=4, horizon=2), grpo=grpo)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        base, donor = Path(folder, "sft"), Path(folder, "grpo")
        with phases("build"):
            model = random_model(config, device)
            examples = supervised_turns(world, codec)
        with phases("sft step"):
            settings = Sft(steps=1, batch=len(examples), learning_rate=1e-5, warmup_steps=0, trainer=trainer)
            supervised = sft.train(model, examples, settings).steps
        with phases("save, load"):
            write(model, base)
            del model
            gc.collect()
            model = read_decoder(base, config, torch.float32).to(device).eval()
        policy = Policy(model, codec, base)
        with phases("rollout"):
            trainee = Trainee(model, adamw(grpo.optimiser, grpo.learning_rate), trainer)
            sampler = TorchSampler(model, codec.end_ids)
            groups = collect(world, policy, sampler, job, list(TASKS[:2]), PAGES, 0, PhaseSeconds())
        turns = [turn for group in groups for episode in group.episodes if scored(episode) for turn in episode.turns]
        with phases("grpo step"):
            advantage = torch.tensor([1.0 - 2.0 * (place % 2) for place in range(len(turns))], dtype=torch.float64)
            row, _ = update(trainee, None, turns, advantage, grpo)
            trainee.finish()
        with phases("save"):
            write(model, donor)
        ours, theirs = open_checkpoint(base), open_checkpoint(donor)
        with phases("graft"):
            overlay(model, Swap(select(ours, ["attention"])), ours, theirs)
            played = rollout(
                world, policy, sampler, [(TASKS[0], PAGES[0], 0)], horizon=2, temperature=0.0, seed=0,
                success_above=0.99, max_new_tokens=grpo.max_new_tokens,
            )  # fmt: skip
            misplaced = _misplaced(model, ours, theirs)
        with phases("rank"):
            torch.set_num_threads(os.cpu_count() or 1)
            ranks, _ = measure(theirs, ours, _probe(turns), Rank(bootstrap_draws=2, bootstrap_up_to=1), 0.95)
            torch.set_num_threads(1)
    late = ranks[ranks["primary"]].iloc[0]
    failed = sum(bool(episode.failure) for group in groups for episode in group.episodes)
    gap = TOLERANCE["bfloat16" if trainer.precision == "bfloat16_masters" else "float32"]
    guess = abs(supervised[0]["loss"] - math.log(config["vocab_size"])) if supervised else math.inf
    return [
        Check("supervised loss, distance from a guess's, nats", guess, 1.5),
        Check("rollout, episodes that failed to be played", float(failed), 0.0),
        Check("sampler and trainer, largest gap of a log-probability, nats", _or_infinite(row["sampler_gap"]), gap),
        Check("grpo, gradient that is not finite", float(not math.isfinite(row["gradient_norm"] or math.nan)), 0.0),
        Check("graft, tensors in the wrong place", float(misplaced), 0.0),
        Check("graft, pages that it did not finish", float(sum(bool(episode.failure) for episode in played)), 0.0),
        Check("rank, distance from the range it must lie in", _outside(late["effective_rank"], late["rows"]), 0.0),
    ]


def _or_infinite(measured: Any) -> float:
    """Nothing measured (no turn was played) is as far off as can be."""
    return math.inf if measured is None else float(measured)


def write(model: Decoder, folder: Path) -> None:
    """A checkpoint in bfloat16."""
    folder.mkdir()
    tensors = {name: value.detach().to("cpu", torch.bfloat16) for name, value in model.named_parameters()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / "config.json", model.config | {"dtype": "bfloat16"})


def _misplaced(model: Decoder, base: Checkpoint, donor: Checkpoint) -> int:
    """Tensors of the first and the last block that are not, to the bit, those of the checkpoint they belong to."""
    wrong, last = 0, model.config["num_hidden_layers"] - 1
    parameters = dict(model.named_parameters())
    for layer in (0, last):
        for part, owner, other in (("self_attn.o_proj", donor, base), ("mlp.up_proj", base, donor)):
            name = f"model.layers.{layer}.{part}.weight"
            here = parameters[name].detach().flatten().double().cpu().numpy()
            expected = owner.tensors[name].values()
            # A GRPO step that moved nothing would make any graft look right.
            moved = not np.array_equal(expected, other.tensors[name].values())
            wrong += not (moved and np.array_equal(here, expected))
    return wrong


def _probe(turns: Sequence[Turn]) -> ProbeTurns:
    """The last ids of the first turns that differ."""
    unique = list({turn.prompt_ids.tobytes() + turn.action_ids.tobytes(): turn for turn in turns}.values())[
        :PROBE_TURNS
    ]
    return ProbeTurns(
        tuple(turn.prompt_ids[-PROBE_IDS:] for turn in unique),
        tuple(turn.action_ids for turn in unique),
        np.arange(len(unique), dtype=np.int64),
        tokenizer="",
        dialect="",
    )


def _outside(rank: float, rows: int) -> float:
    """How far an effective rank is from [1, rows]; what is no number is infinitely far."""
    return max(1.0 - rank, rank - rows, 0.0) if math.isfinite(rank) else math.inf


def report(shape: str, config: dict[str, Any], trainer: Trainer, where: str, on_gpu: bool) -> dict[str, Any]:
    """What was measured on what: the head of ``gpu-check.json``."""
    found = machine()
    planned = training(count(shape, config), trainer, LOAD, reference=False, gpu=on_gpu)
    return {
        "shape": shape,
        "parameters": count(shape, config).parameters,
        "device": torch.cuda.get_device_name() if on_gpu else found.cpu,
        "device_memory_bytes": torch.cuda.mem_get_info()[1] if on_gpu else None,
        "driver": found.driver,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "pages": where,
        "trainer": trainer.model_dump(mode="json"),
        "planned_bytes": {moment: round(sum(parts.values())) for moment, parts in planned.items()},
    }


def main(
    shape: Annotated[str, typer.Option(help="tiny, or a text model of workflow/models.")] = "qwen3-4b",
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    lora: Annotated[bool, typer.Option("--lora", help="Train adapters: a quarter of the memory.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for gpu-check.csv and gpu-check.json.")] = Path("benchmarks"),
) -> None:
    """Take a random model of a full size through every kind of work on one GPU, and hold it to float32."""
    from headroom.worlds.miniwob.chromium import ChromiumNotFound, find_chromium
    from headroom.worlds.miniwob.world import MiniWob

    if device not in ("cuda", "cpu"):
        raise SystemExit(f"gpu-check: --device {device}: say cuda or cpu; CUDA_VISIBLE_DEVICES chooses among GPUs")
    on_gpu = device != "cpu"
    if on_gpu and not torch.cuda.is_available():
        raise SystemExit(
            f"gpu-check: torch {torch.__version__} sees no GPU here; run it where there is one (after TORCH=cuda "
            "./setup.sh if this is a build for processors), or add --shape tiny --device cpu to try the path without"
        )
    try:  # before minutes of work whose numbers would have no place
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise SystemExit(f"gpu-check: --output {output}: cannot be written ({error.strerror})") from error
    repeatable()
    trainer, where = paper_trainer(lora), "made up: no browser was found"
    pages: World = MadeUpPages()
    try:
        config = shape_config(shape)
        if on_gpu:
            room(shape, config, trainer)
    except ValueError as error:
        raise SystemExit(f"gpu-check: {error}") from error
    try:
        find_chromium()
        pages, where = MiniWob(MiniWobSettings(tabs=4, horizon=2)), "MiniWoB++ in Chromium"
    except ChromiumNotFound:
        pass
    phases, began = Phases(on_gpu), time.perf_counter()
    try:
        checks = walk(config, device, trainer, pages, phases)
        with phases("parity"):
            turns = supervised_turns(MadeUpPages(), Codec(config["vocab_size"]))
            checks += precision_parity(config, device, turns)
            checks += device_parity(
                shape_config("tiny"), device, supervised_turns(MadeUpPages(), Codec(TINY_VOCABULARY))
            )
    except torch.cuda.OutOfMemoryError as error:
        first = str(error).splitlines()[0]
        raise SystemExit(f"gpu-check: after {[row['phase'] for row in phases.rows]}: {first}") from error
    finally:
        pages.close()
    seconds = time.perf_counter() - began
    write_csv(output / "gpu-check.csv", pd.DataFrame(phases.rows).round({"seconds": 3}))
    write_json(
        output / "gpu-check.json",
        report(shape, config, trainer, where, on_gpu)
        | {
            "seconds": round(seconds, 1),
            "checks": [{"name": c.name, "value": c.value, "limit": c.limit, "holds": c.holds} for c in checks],
        },
    )
    for check in checks:
        print(f"{'ok' if check.holds else 'FAILS':<6} {check.name}: {check.value:.3g} (limit {check.limit:g})")
    late = f"; that is more than {MINUTES:g} minutes" if seconds > 60 * MINUTES else ""
    print(f"{shape} on {device}, {where}: {seconds:.0f} s{late}; table: {output}/gpu-check.csv")
    if not all(check.holds for check in checks):
        raise SystemExit("gpu-check: a check fails (above); this machine's results would not be those of the study")


if __name__ == "__main__":
    typer.run(main)
