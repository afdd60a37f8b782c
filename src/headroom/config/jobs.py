"""What one job reads: the slice of the study that can change its result, and nothing else.

The resolved file of a job is the JSON of one of these models. A setting that a stage does not read is not in its
file, so editing the plot style cannot retrain a model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from headroom.config.measuring import TaskSet
from headroom.config.models import (
    Demonstrations,
    Evaluation,
    Graft,
    Grpo,
    MiniWobSettings,
    Model,
    Positive,
    Probe,
    Rank,
    Sft,
    Statistics,
    Strict,
    Tasks,
    WorldSettings,
)


class DemonstrationsJob(Strict):
    """Collect oracle episodes on the train seeds."""

    world: WorldSettings
    tasks: tuple[str, ...]
    demonstrations: Demonstrations


class Draw(Strict):
    """What decides which pages a GRPO run plays."""

    tasks: TaskSet
    seed: int
    steps: Positive
    pages_per_step: Positive


class OverlapJob(Strict):
    """Count the held-out pages that also occur among those of the demonstrations and of the GRPO runs."""

    world: WorldSettings
    demonstrations: dict[str, Positive] = Field(description="Task -> pages of the train pool that are demonstrated.")
    runs: tuple[Draw, ...] = Field(description="Each once: runs that differ in anything else play the same pages.")
    held_out: dict[str, Positive] = Field(description="Pool -> pages.")


class SftJob(Strict):
    """Train one initialisation."""

    name: str
    model: Model
    sft: Sft
    dialect: str = Field("web pages", description="Of the world that the demonstrations come from.")
    longest: Positive | None = Field(
        None, description="Most tokens of an answer wherever the policy will play; longer demonstrations are refused."
    )


class SelectJob(Strict):
    """Choose the task sets by SFT success on the selection seeds."""

    world: WorldSettings
    tasks: Tasks
    seed: int = 0
    max_new_tokens: Positive = 24


class ReadingJob(Strict):
    """The headroom reading on the reading seeds, before any training."""

    world: WorldSettings
    evaluation: Evaluation
    statistics: Statistics


class GrpoJob(Strict):
    """One run of the grid."""

    world: WorldSettings
    grpo: Grpo


class EvaluateJob(Strict):
    """Evaluate one policy on the evaluation seeds."""

    policy: str
    world: WorldSettings
    evaluation: Evaluation
    greedy_on: tuple[TaskSet, ...]
    sampled_on: tuple[TaskSet, ...]


class ContrastJob(Strict):
    """Contrast every policy with the supervised one."""

    statistics: Statistics
    learning_rates: dict[str, float] = Field(
        default_factory=dict, description="Level name in runs.tsv -> learning rate, for the table's rows."
    )


class ProbeJob(Strict):
    """Write down the turns on which hidden states are compared."""

    world: WorldSettings
    probe: Probe


class RankJob(Strict):
    """Hidden states, weight movement and agreement of one policy with its reference."""

    policy: str
    rank: Rank
    statistics: Statistics


class GraftJob(Strict):
    """Move parameter groups between the supervised policy and one run, both ways, and play every result."""

    policy: str
    regime: str
    world: WorldSettings
    evaluation: Evaluation
    graft: Graft
    statistics: Statistics


class FailuresJob(Strict):
    """Sort the failures of the supervised policy and of each regime's runs by kind."""

    regimes: dict[str, tuple[str, ...]]
    statistics: Statistics


class FilmstripJob(Strict):
    """Replay one telling episode a regime; the first run of a regime is the one shown."""

    world: MiniWobSettings
    regimes: dict[str, tuple[str, ...]]


class DarkRoomArm(Strict):
    """What of a run its rows in the tables of the dark room say."""

    arm: str
    seed: int
    last: Positive = Field(description="Validations at the end of a run whose mean is its endpoint.")


class DarkRoomJob(Strict):
    """Bring the validation and the training curves of all arms together."""

    arms: dict[str, DarkRoomArm] = Field(description="Run -> its arm.")
    statistics: Statistics


class MechanismJob(Strict):
    """Bring rank, drift, agreement and grafts of all policies together."""

    rank: Rank
    statistics: Statistics


Job = TypeVar("Job", bound=Strict)


def load_job(path: Path, model: type[Job]) -> Job:
    """Read a resolved file.

    Raises:
        SystemExit: the file is missing or does not fit; the message names the file, the key and the remedy.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SystemExit(f"{path}: cannot be read ({error.strerror}); run snakemake, which writes it") from error
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or '(file)'}: {e['msg']}" for e in error.errors()]
        raise SystemExit(f"{path}: not a {model.__name__}:\n" + "\n".join(lines)) from error


def dump_job(job: Strict) -> str:
    """The canonical text of a resolved file: sorted keys, two spaces, one end of line."""
    return json.dumps(job.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
