"""Play every graft of one run on the same pages: one browser, one memo, one model whose weights are rewritten.

The weights of a graft stream from the two checkpoints into the loaded model, all of them each time, by the very
function that writes grafts to disk: nothing of the graft before can be left behind, and a graft that is played here
equals the one that ``headroom graft`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

from headroom.agent.dialect import check_dialect
from headroom.agent.episode import Episode
from headroom.agent.spoken import spoken
from headroom.config.jobs import GraftJob, load_job
from headroom.config.models import Evaluation, Graft, Statistics, WorldSettings
from headroom.files import write_csv, write_parquet
from headroom.measure import episodes
from headroom.measure.adapted import open_pair
from headroom.measure.edit import Edit, edited
from headroom.measure.graft_build import check_tokenizers
from headroom.measure.graft_plan import Planned, plan
from headroom.measure.graft_tables import graft_table, interaction_table
from headroom.measure.lora import is_adapter
from headroom.measure.task_sets import labels, read_task_sets, tasks_of
from headroom.measure.weights import Checkpoint, decode
from headroom.policy.vision import PREFIX

Play = Callable[[str], list[Episode]]
"""Plays whatever the model holds now on all pages; the argument labels the progress line."""


@torch.no_grad()
def overlay(model: Any, edit: Edit, base: Checkpoint, donor: Checkpoint) -> None:
    """Make a loaded model's weights those of ``base`` with ``edit`` applied; one chunk in memory at a time.

    Raises:
        ValueError: the files and the model do not hold the same parameters.
    """
    state = model.state_dict(keep_vars=True)
    left = {id(parameter): name for name, parameter in model.named_parameters()}
    for name, tensor in base.tensors.items():
        if name.startswith(PREFIX) and name not in state:  # a vision tower stays on disk: no text passes through it
            continue
        if name not in state or tuple(state[name].shape) != tensor.shape:
            raise ValueError(f"{tensor.path}: tensor {name} does not fit the loaded model")
        target = state[name].view(-1)
        for (first, count), chunk in zip(tensor.chunks(), edited(edit, base, donor, name), strict=True):
            target[first : first + count] = torch.from_numpy(decode(chunk, tensor.dtype, name)).to(target)
        left.pop(id(state[name]), None)
    if left:
        raise ValueError(f"{base.folder}: tensor {min(left.values())} of the loaded model is in no file")


def play_grafts(
    model: Any,
    sft: Checkpoint,
    rl: Checkpoint,
    planned: Iterable[Planned],
    play: Play,
    task_sets: dict[str, tuple[str, ...]],
) -> pd.DataFrame:
    """The episode table of all grafts (``policy`` is the graft's name)."""
    tables = []
    for graft in planned:
        overlay(model, graft.edit, *graft.pair(sft, rl))
        tables.append(episodes.table(play(graft.name), policy=graft.name, mode="greedy", task_sets=task_sets))
    return episodes.ordered(pd.concat(tables, ignore_index=True))


def run(
    sft_folder: Path,
    rl_folder: Path,
    *,
    tasks: list[str],
    task_sets: dict[str, tuple[str, ...]],
    seeds: list[int],
    world: WorldSettings,
    evaluation: Evaluation,
    graft: Graft,
    statistics: Statistics,
    notes: dict[str, Any] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Episodes, grafts and interactions of one run; ``notes`` receive what the world counted.

    Raises:
        ValueError: the two checkpoints are not a pair, or not of this world; raised before a browser starts.
    """
    from headroom.measure.play import PolicyPlayer, SilentWhenBroken
    from headroom.policy.load import load_policy
    from headroom.policy.repeatable import repeatable
    from headroom.policy.sampler import TorchSampler
    from headroom.worlds.open import open_world

    repeatable()
    check_dialect(sft_folder, world.kind)
    if not is_adapter(rl_folder) or spoken(rl_folder) is not None:  # an adapter speaks as its base does
        check_dialect(rl_folder, world.kind)
    sft, rl = open_pair(sft_folder, rl_folder)
    check_tokenizers(sft_folder, rl_folder)
    planned = list(plan(sft, rl, graft))
    policy = load_policy(sft_folder)
    end_ids = policy.codec.end_ids
    # As in an evaluation: a graft without finite probabilities fails its pages, and the endpoints play what was scored.
    sampler = SilentWhenBroken(TorchSampler(policy.model, end_ids), end_ids[0])
    with open_world(world, notes) as pages:

        def play(label: str) -> list[Episode]:
            player = PolicyPlayer(
                pages,
                policy,
                sampler,
                world,
                seed=evaluation.seed,
                max_new_tokens=evaluation.max_new_tokens,
                label=label,
            )
            return player.greedy(tasks, seeds)

        frame = play_grafts(policy.model, sft, rl, planned, play, task_sets)
    return (
        frame,
        graft_table(frame, planned, graft, statistics),
        interaction_table(frame, planned, graft, statistics),
    )


def main(
    config: Annotated[Path, typer.Option(help="Resolved GraftJob.")],
    sft: Annotated[Path, typer.Option(help="The supervised checkpoint that the run started from.")],
    rl: Annotated[Path, typer.Option(help="The run's checkpoint, or the LoRA adapter that it trained.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write episodes.parquet, grafts.csv and interactions.csv."""
    from headroom.provenance import record
    from headroom.worlds.seeds import pool

    settings = load_job(config, GraftJob)
    sets = read_task_sets(task_sets)
    with record.job(
        stage="measure.graft",
        output=output,
        inputs={"sft": sft, "rl": rl, "task-sets": task_sets},
        config=config,
        seeds={"sampler": settings.evaluation.seed, "controls": settings.graft.seed},
    ) as job:
        frame, grafts, interactions = run(
            sft,
            rl,
            tasks=tasks_of(sets, settings.graft.task_sets, task_sets),
            task_sets=labels(sets),
            seeds=list(pool("evaluation", settings.graft.seeds)),
            world=settings.world,
            evaluation=settings.evaluation,
            graft=settings.graft,
            statistics=settings.statistics,
            notes=job.notes,
        )
        write_parquet(job.output / "episodes.parquet", frame)
        for name, table in (("grafts", grafts), ("interactions", interactions)):
            table.insert(0, "policy", settings.policy)
            table.insert(1, "regime", settings.regime)
            write_csv(job.output / f"{name}.csv", table)
        job.notes["grafts"] = len(grafts)
        job.notes["pages"] = int(grafts["pages"].iloc[0])
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
