"""Supervised fine-tuning: the stage that makes an initialisation from demonstrations.

The loss is the mean negative log-likelihood of the step's action tokens, the end token included; observations are
never trained on. One demonstrated turn is one sample, batches are cut from a permutation a pass, and which turns a
step sees is a function of (seed, step): a resumed run is the unbroken run. AdamW (arXiv 1711.05101) in float32.
Deviation from common practice: equal prompts in a batch are computed once (``headroom.train.batch``), which changes
no number beyond rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from headroom.agent import tokenizer
from headroom.agent.codec import Codec, SlotCodec
from headroom.agent.dialect import WEB_PAGES, Dialect, dialect_named
from headroom.config.jobs import SftJob, load_job
from headroom.config.models import PretrainedModel, Sft, TinyModel, model_files
from headroom.files import write_parquet
from headroom.policy.load import Policy, load_policy, save_policy
from headroom.policy.repeatable import repeatable
from headroom.policy.tiny import tiny_model
from headroom.progress import Progress
from headroom.seeds import generator
from headroom.train.batch import Example, microbatches
from headroom.train.optimiser import adamw
from headroom.train.processes import ALONE, Processes
from headroom.train.processes import job as record_job
from headroom.train.processes import start as start_processes
from headroom.train.schedule import learning_rate
from headroom.train.trainee import Trainee

MICROBATCH_TOKENS = 2048
"""Computed tokens a forward pass: bounds the memory and, when prompts are long, keeps a tiny model in the processor's
cache (a third faster than all at once at 100 tokens a prompt). It never changes the gradient."""

DEMONSTRATIONS = "demonstrations.parquet"
COLUMNS = ("task", "seed", "turn", "observation", "action")


@dataclass(slots=True)
class Training:
    """What a run leaves: one row a step (reproducible), its seconds (not), and how it ended."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ending: str = "finished"


def read_demonstrations(folder: Path) -> pd.DataFrame:
    """The table of demonstrated turns, sorted by (task, seed, turn).

    Raises:
        ValueError: the file is missing, damaged or empty, or a column is missing; the message names the file.
    """
    path = folder / DEMONSTRATIONS
    try:
        table = pd.read_parquet(path, columns=list(COLUMNS))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); make it again with the demonstrations stage") from error
    if table.empty:
        raise ValueError(f"{path}: holds no demonstration; check the oracles and the task list")
    return table.sort_values(["task", "seed", "turn"], ignore_index=True)


def initialise(
    model: TinyModel | PretrainedModel, table: pd.DataFrame, seed: int, dialect: Dialect = WEB_PAGES
) -> tuple[Any, Codec]:
    """The untrained model and its codec; a tiny model's vocabulary comes from the demonstrations alone.

    The codec speaks ``dialect``, whatever a released model spoke before.
    """
    if isinstance(model, PretrainedModel):
        policy: Policy = load_policy(model, dtype="float32", dialect=dialect)
        return policy.model, policy.codec
    columns = (table[name].tolist() for name in ("task", "seed", "observation", "action"))
    turns = [tokenizer.Turn(*row) for row in zip(*columns, strict=True)]
    codec = SlotCodec.build(
        turns, slot_count=model.slots, closed_share=model.closed_share, context=model.context, dialect=dialect
    )
    fresh = tiny_model(model, vocabulary=codec.size, pad_id=codec.pad_id, end_ids=codec.end_ids, seed=seed)
    return fresh, codec


def encode(table: pd.DataFrame, codec: Codec) -> list[Example]:
    """One example a demonstrated turn, in the table's order."""
    examples = []
    for text, action in zip(table["observation"], table["action"], strict=True):
        prompt = codec.encode_prompt(text)
        examples.append(Example(prompt.ids, codec.encode_action(action, prompt)))
    return examples


def _check_lengths(examples: Sequence[Example], longest: int | None, folder: Path) -> None:
    """Refuse demonstrations that the policy could not give itself, because its answers are cut before their end.

    Raises:
        ValueError: there is one of more than ``longest`` tokens.
    """
    lengths = [len(example.action_ids) for example in examples]
    if longest is not None and max(lengths, default=0) > longest:
        raise ValueError(
            f"{folder / DEMONSTRATIONS}: {sum(length > longest for length in lengths)} of {len(lengths)} answers have "
            f"more than {longest} tokens (up to {max(lengths)}) and would be cut where the policy plays; raise "
            "grpo.max_new_tokens and evaluation.max_new_tokens"
        )


def step_indices(examples: int, batch: int, *, seed: int, step: int) -> list[int]:
    """The samples of one step, int in [0, examples): ``batch`` consecutive places in an endless row of permutations.

    A pure function of its arguments. Every sample is seen once a pass; a batch may span two passes.
    """
    indices: list[int] = []
    place = step * batch
    while len(indices) < batch:
        epoch, offset = divmod(place + len(indices), examples)
        order = generator("sft order", seed, epoch).permutation(examples)
        indices.extend(order[offset : offset + batch - len(indices)].tolist())
    return indices


def train(
    model: Any,
    examples: Sequence[Example],
    sft: Sft,
    *,
    scratch: Path | None = None,
    processes: Processes = ALONE,
    adapter: Path | None = None,
) -> Training:
    """Train ``model`` in place, resuming from ``scratch`` where that holds a state.

    All ``processes`` of a job end with the same model; an adapter is merged into it and written to ``adapter``.

    A loss or a gradient that is not finite ends the run as ``diverged`` before the optimiser is called: the weights
    are those of the step before.

    Raises:
        ValueError: there is no example, or ``scratch`` holds the state of another model.
    """
    if not examples:
        msg = "sft needs at least one demonstration"
        raise ValueError(msg)
    settings = sft.optimiser
    trainee = Trainee(model, adamw(settings, 0.0), sft.trainer, processes, seed=sft.seed)
    run, first = Training(), 0
    resumed = trainee.resume(scratch) if scratch is not None else None
    if resumed is not None:
        first, extra = resumed
        run.steps, run.seconds = extra["steps"], extra["seconds"]
    model.train()
    with Progress("sft", sft.steps, start=first) as progress:
        for step in range(first, sft.steps):
            began = time.perf_counter()
            rate = learning_rate(
                step,
                peak=sft.learning_rate,
                schedule=sft.schedule,
                warmup_steps=sft.warmup_steps,
                total_steps=sft.schedule_steps or sft.steps,
            )
            chosen = [examples[i] for i in step_indices(len(examples), sft.batch, seed=sft.seed, step=step)]
            trainee.zero_grad()
            loss, tokens = _backward(trainee, chosen)
            norm = trainee.clip(settings.gradient_clip)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                run.ending = "diverged"
                break
            for group in trainee.optimiser.param_groups:
                group["lr"] = rate
            trainee.step()
            run.steps.append(
                {"step": step, "learning_rate": rate, "loss": loss, "gradient_norm": norm, "action_tokens": tokens}
            )
            run.seconds.append(time.perf_counter() - began)
            if processes.first:
                progress.update(step + 1, f"loss {loss:.4f}")
            if scratch is not None and (step + 1) % sft.checkpoint_every == 0:
                trainee.save(scratch, step + 1, {"steps": run.steps, "seconds": run.seconds})
    trainee.finish(adapter)
    model.eval()
    return run


def _backward(trainee: Trainee, chosen: Sequence[Example]) -> tuple[float, int]:
    """Add the gradient of the token-mean loss; return that loss (nats a token) and the number of action tokens."""
    tokens = sum(len(example.action_ids) for example in chosen)  # the step's denominator, before the microbatches
    total = 0.0
    for batch, counts in trainee.processes.deal(microbatches(chosen, MICROBATCH_TOKENS)):
        loss = -trainee.score(batch).log_probabilities.sum() / tokens
        trainee.backward(loss, counts)
        total += float(loss.detach()) * counts
    return sum(trainee.processes.gather(total)), tokens


def main(
    config: Annotated[Path, typer.Option(help="Resolved settings of this job (SftJob).")],
    demonstrations: Annotated[Path, typer.Option(help="Result folder of the demonstrations stage.")],
    output: Annotated[Path, typer.Option(help="Folder for checkpoint/, steps.parquet and timing.parquet.")],
) -> None:
    """Train one initialisation on the demonstrations."""
    repeatable()
    settings = load_job(config, SftJob)
    inputs = {"demonstrations": demonstrations, "model": model_files(settings.model)}
    framing: dict[str, Any] = {"inputs": inputs, "config": config, "seeds": {"sft": settings.sft.seed}}
    with (
        start_processes(settings.sft.trainer.processes) as processes,
        record_job(processes, "train.sft", output, "sft", **framing) as job,
    ):
        try:
            table, dialect = read_demonstrations(demonstrations), dialect_named(settings.dialect)
            model, codec = initialise(settings.model, table, settings.sft.seed, dialect)
            examples = encode(table, codec)
            _check_lengths(examples, settings.longest, demonstrations)
            run = train(
                model, examples, settings.sft, scratch=job.scratch("sft"), processes=processes,
                adapter=job.output / "adapter",
            )  # fmt: skip
            if processes.first:
                save_policy(model, codec, job.output / "checkpoint")
        except ValueError as error:
            raise SystemExit(str(error)) from error
        if not processes.first:
            return
        columns = ["step", "learning_rate", "loss", "gradient_norm", "action_tokens"]
        write_parquet(job.output / "steps.parquet", pd.DataFrame(run.steps, columns=columns))
        timing = pd.DataFrame({"step": range(len(run.seconds)), "seconds": np.array(run.seconds, dtype=np.float64)})
        write_parquet(job.output / "timing.parquet", timing)
        job.ending = run.ending
        job.notes |= {
            "name": settings.name,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "vocabulary": codec.size,
            "turns": len(examples),
            "prompt_tokens_mean": round(float(np.mean([len(example.prompt_ids) for example in examples])), 2),
            "action_tokens_mean": round(float(np.mean([len(example.action_ids) for example in examples])), 2),
            "steps": len(run.steps),
            "last_loss": run.steps[-1]["loss"] if run.steps else None,
        }


if __name__ == "__main__":
    typer.run(main)
