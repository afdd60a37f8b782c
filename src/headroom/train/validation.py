"""Validation during a run: episodes on pages that are used for nothing else, and that change nothing in the run.

Every ``validation.every`` steps, and before the first, the policy plays ``validation.pages`` pages of the pool
``validation``, one episode a page, at ``validation.temperature``. The pages are the same at each validation and for
every run; the sampler's seeds are functions of (run seed, step). The endpoint of a run is the mean of its last few
rows (arXiv 2607.21273 validates 32 episodes every 5 steps at temperature 0.4).

A policy that has no finite probabilities any more cannot play: its row has no episode, and nulls. A run that diverged
ends with a row, too, at whatever step that was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headroom.agent.episode import Episode
from headroom.config.jobs import GrpoJob
from headroom.policy.load import Policy
from headroom.seeds import derive
from headroom.train.diagnostics import Row, said_row
from headroom.train.groups import Page
from headroom.train.processes import ALONE, Processes
from headroom.train.reward import scored
from headroom.train.rollout import Sampler, rollout
from headroom.worlds.base import World

FILE = "validation.parquet"
POOL = "validation"
COLUMNS = {
    "step": "int64",
    "episodes": "int64",
    "success": "float64",
    "invalid_share": "float64",
    "turns": "float64",
    "prediction_score": "float64",
    "anchor_score": "float64",
    "confidence": "float64",
    "excluded": "int64",
}
"""Columns of ``validation.parquet``: ``step`` counts the finished steps; ``episodes`` are those that were scored, and
the means are over them (``success``, ``turns``) or over their turns (``invalid_share``, the three of what is said)."""


def is_due(job: GrpoJob, done: int) -> bool:
    """Whether the policy is validated after ``done`` finished steps."""
    every = job.grpo.validation.every
    return every > 0 and done % every == 0


def pages(tasks: Sequence[str], page_seeds: Sequence[int], count: int) -> list[Page]:
    """The first ``count`` pages of a pool, the tasks in turn.

    Raises:
        ValueError: there are fewer.
    """
    if count > len(tasks) * len(page_seeds):
        raise ValueError(
            f"validation.pages is {count}, but {len(tasks)} tasks x {len(page_seeds)} seeds of the pool {POOL!r} have "
            f"only {len(tasks) * len(page_seeds)}; lower it"
        )
    return [(tasks[place % len(tasks)], page_seeds[place // len(tasks)]) for place in range(count)]


def validate(
    world: World,
    policy: Policy,
    sampler: Sampler,
    job: GrpoJob,
    chosen: Sequence[Page],
    done: int,
    processes: Processes = ALONE,
) -> Row:
    """Play the chosen pages after ``done`` finished steps, each process its share; the row is the same in all."""
    settings = job.grpo

    def play() -> list[Episode]:
        return rollout(
            world,
            policy,
            sampler,
            [(task, seed, 0) for task, seed in processes.mine(chosen)],
            horizon=job.world.horizon,
            temperature=settings.validation.temperature,
            seed=derive("validation", settings.seed, done),
            success_above=job.world.success_above,
            max_new_tokens=settings.max_new_tokens,
            overlap=settings.overlap,
        )

    try:
        played = processes.together(play)
    except FloatingPointError:
        played = []
    return _row(done, played)


def silent(done: int) -> Row:
    """The row of a policy that has no finite probabilities after ``done`` finished steps: it plays nothing."""
    return _row(done, [])


def _row(done: int, played: Sequence[Episode]) -> Row:
    counted = [episode for episode in played if scored(episode)]
    turns = [turn for episode in counted for turn in episode.turns]
    return {
        "step": done,
        "episodes": len(counted),
        "success": _mean([episode.success for episode in counted]),
        "invalid_share": _mean([turn.outcome.invalid for turn in turns]),
        "turns": _mean([len(episode.turns) for episode in counted]),
        **said_row(turns),
        "excluded": len(played) - len(counted),
    }


def validation_table(rows: Sequence[Row]) -> pd.DataFrame:
    """``validation.parquet`` of a run."""
    return pd.DataFrame({name: [row[name] for row in rows] for name in COLUMNS}).astype(COLUMNS)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
