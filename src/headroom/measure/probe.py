"""The probe: fixed turns on which the hidden states of every checkpoint are read.

The turns are the supervised policy's own greedy turns on pages of the reading pool (never trained on, never
evaluated on, and not those that chose the tasks), the first few of each episode. Token ids are written down once,
with the tokenizer of that policy, and every checkpoint reads those very ids: a spectrum depends on the tokens and on
their number, so nothing of the probe may differ between two checkpoints that are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from headroom.agent.codec import Codec, load_codec
from headroom.agent.dialect import check_dialect, dialect_of
from headroom.config.jobs import ProbeJob, load_job
from headroom.files import write_json, write_parquet
from headroom.measure import episodes
from headroom.measure.probe_turns import tokenizer_digest
from headroom.measure.task_sets import read_task_sets, tasks_of
from headroom.worlds.base import History, World

COLUMNS = ["task", "seed", "turn", "episode", "prompt", "action", "prompt_ids", "action_ids"]


def probe_turns(world: World, codec: Codec, played: pd.DataFrame, *, turns: int) -> tuple[pd.DataFrame, int]:
    """Replay greedy episodes and write down their first turns.

    Args:
        world: Answers for every prefix of every episode.
        codec: Encodes prompts and actions.
        played: Rows of an episode table, one an episode.
        turns: At most this many turns an episode.

    Returns:
        The table (:data:`COLUMNS`, sorted by task, seed, turn), and how many episodes an infrastructure failure cost.
    """
    rows, lost = [], 0
    for number, (_, episode) in enumerate(played.sort_values(["task", "seed"]).iterrows()):
        texts = [str(text) for text in episode["actions"]][:turns]
        actions = [codec.dialect.parse(text) for text in texts]
        points = [History(episode["task"], int(episode["seed"]), tuple(actions[:n])) for n in range(len(actions))]
        observations = world.observe(points)
        if any(observation.failure for observation in observations):
            lost += 1
            continue
        for turn, text in enumerate(texts):
            prompt = codec.dialect.prompt_text(observations[: turn + 1], actions[:turn])
            encoded = codec.encode_prompt(prompt)
            rows.append(
                {
                    "task": episode["task"],
                    "seed": int(episode["seed"]),
                    "turn": turn,
                    "episode": number,
                    "prompt": prompt,
                    "action": text,
                    "prompt_ids": encoded.ids.tolist(),
                    "action_ids": codec.encode_action(text, encoded).tolist(),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS), lost


def chosen_episodes(played: pd.DataFrame, tasks: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    """The greedy, scored episodes of the reading on these tasks and pages.

    Raises:
        ValueError: there are none, or a page was not played.
    """
    missing = sorted(set(seeds) - set(played["seed"]))
    if missing:
        raise ValueError(
            f"the reading played no page of {len(missing)} of the probe's {len(seeds)} seeds; "
            "mechanism.probe.seeds must not exceed evaluation.seeds"
        )
    counted = episodes.scored(played)
    rows = counted[(counted["mode"] == "greedy") & counted["task"].isin(tasks) & counted["seed"].isin(seeds)]
    rows = rows[rows["turns"] > 0]
    if rows.empty:
        raise ValueError("the reading holds no greedy episode on the probe's tasks and pages; run the reading again")
    return rows


def main(
    config: Annotated[Path, typer.Option(help="Resolved ProbeJob.")],
    checkpoint: Annotated[Path, typer.Option(help="The supervised checkpoint.")],
    reading: Annotated[Path, typer.Option(help="Directory of the headroom reading: its greedy episodes are replayed.")],
    task_sets: Annotated[Path, typer.Option(help="task_sets.json of the selection.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write probe.parquet and probe.json."""
    from headroom.provenance import record
    from headroom.worlds.open import open_world
    from headroom.worlds.seeds import pool

    settings = load_job(config, ProbeJob)
    tasks = tasks_of(read_task_sets(task_sets), settings.probe.task_sets, task_sets)
    with record.job(
        stage="measure.probe",
        output=output,
        inputs={"checkpoint": checkpoint, "reading": reading, "task-sets": task_sets},
        config=config,
    ) as job:
        check_dialect(checkpoint, settings.world.kind)
        played = chosen_episodes(episodes.read(reading), tasks, list(pool("reading", settings.probe.seeds)))
        with open_world(settings.world, job.notes) as world:
            table, lost = probe_turns(world, load_codec(checkpoint), played, turns=settings.probe.turns)
        write_parquet(job.output / "probe.parquet", table)
        summary = {
            "dialect": dialect_of(settings.world.kind).name,
            "tokenizer": tokenizer_digest(checkpoint),
            "episodes": int(table["episode"].nunique()),
            "turns": len(table),
            "tokens": int(
                sum(len(p) + len(a) - 1 for p, a in zip(table["prompt_ids"], table["action_ids"], strict=True))
            ),
            "lost episodes": lost,
            "tasks": tasks,
        }
        write_json(job.output / "probe.json", summary)
        job.notes.update(summary)
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
