"""Every setting of the study, one frozen model a stage. Unknown keys fail; nothing has a second home.

Here: the study as a whole and its tasks. Of a row of a run table: ``headroom.config.runs``; of a policy and its
training: ``headroom.config.training``; of what is measured: ``headroom.config.measuring``; of a world:
``headroom.config.worlds``. All are imported from here.

``config.yaml`` names a scale; ``workflow/scales/<scale>.yaml`` holds that scale's numbers as a :class:`Study`;
a run table (``workflow/data/runs.tsv``) holds the runs. Resolution (``headroom.config.resolve``) turns the three into
one JSON file a job, and the bytes of that file decide what reruns.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headroom.config.base import NonNegative, Positive, Probability, Rate, Strict
from headroom.config.measuring import Evaluation, EvaluationPlan, Graft, Mechanism, Probe, Rank, Statistics
from headroom.config.runs import Arm, Family, Row, Run
from headroom.config.training import (
    Auxiliary,
    Grpo,
    Lora,
    Model,
    Optimiser,
    PretrainedModel,
    Sft,
    Signal,
    TinyModel,
    Trainer,
    Validation,
    Vllm,
    model_files,
)
from headroom.config.worlds import AlfWorldSettings, HiddenRuleSettings, MiniWobSettings, WorldSettings

__all__ = [
    "AlfWorldSettings",
    "Arm",
    "Auxiliary",
    "Demonstrations",
    "Evaluation",
    "EvaluationPlan",
    "Family",
    "Graft",
    "Grpo",
    "HiddenRuleSettings",
    "Lora",
    "Mechanism",
    "MiniWobSettings",
    "Model",
    "NonNegative",
    "Optimiser",
    "Positive",
    "PretrainedModel",
    "Probability",
    "Probe",
    "Rank",
    "Rate",
    "Resources",
    "Row",
    "Run",
    "Settings",
    "Sft",
    "Signal",
    "Statistics",
    "Strict",
    "Study",
    "Tasks",
    "TinyModel",
    "Trainer",
    "Validation",
    "Vllm",
    "WorldSettings",
    "model_files",
]


class Tasks(Strict):
    """Candidate tasks, and the rule that picks the mastered and the headroom set from selection episodes."""

    candidates: tuple[str, ...]
    mastered: NonNegative = Field(11, description="Size of the mastered set; with both 0, nothing is played to choose.")
    headroom: NonNegative = Field(10, description="Size of the headroom set.")
    mastered_at_least: Probability = Field(0.7, description="Greedy success on the selection pool.")
    mastered_mean: Probability = Field(0.91, description="Mean greedy success that the mastered set is picked for.")
    headroom_at_most: Probability = Field(0.7, description="Greedy success on the selection pool.")
    selection_seeds: Positive = 20
    samples: Positive = Field(8, description="Samples a page at T=1 in the selection pool.")

    @model_validator(mode="after")
    def _unique(self) -> Tasks:
        if len(set(self.candidates)) != len(self.candidates):
            raise ValueError("tasks.candidates names a task twice")
        if not self.candidates:
            raise ValueError("tasks.candidates names no task")
        if len(self.candidates) < self.mastered + self.headroom:
            raise ValueError("tasks.candidates has fewer tasks than mastered + headroom together")
        return self


class Demonstrations(Strict):
    """Oracle episodes on the train seeds."""

    episodes_per_task: Positive = 100
    episodes_override: dict[str, int] = Field(default_factory=dict, description="task -> number of episodes")
    hasty: dict[str, Probability] = Field(
        default_factory=dict,
        description="task -> share of its demonstrators that leave out the step before the last.",
    )
    demonstrators: Positive = Field(
        1, description="Demonstrators a page of a hasty task; with one a page, a policy learns by heart which is hasty."
    )


class Resources(Strict):
    """What a job asks of the machine or the scheduler; never changes a result."""

    threads: Positive = 1
    mem_mb: int = Field(2000, ge=1000, description="At least 1000: Snakemake itself lives in a cluster job, twice.")
    runtime: Positive = Field(60, description="Minutes.")
    disk_mb: Positive = 1000
    gpu: NonNegative = 0
    gpu_mem_mb: NonNegative = Field(
        0,
        description="Memory that each GPU must have, checked when a job starts; 0: any, which a plan does not accept.",
    )


class Study(Strict):
    """All numbers of one scale."""

    study: Literal["gate", "dark room"] = Field("gate", description="Which of the two papers' studies it is.")
    runs_table: str = Field("workflow/data/runs.tsv", description="The run table; one kind of row a study.")
    model: Model
    world: WorldSettings = MiniWobSettings()
    tasks: Tasks
    demonstrations: Demonstrations = Demonstrations()
    sft: dict[str, Sft] = Field(description="One entry an initialisation: 'sft' and, for the init axis, 'base'.")
    learning_rates: dict[str, float] = Field(
        default_factory=dict,
        description="Level name in runs.tsv -> learning rate; none in the dark room.",
    )
    grpo: dict[str, object] = Field(default_factory=dict, description="Defaults of every run; keys of Grpo.")
    warmup_steps: NonNegative = Field(4, description="Warm-up of the runs whose schedule is cosine.")
    runs: tuple[str, ...] | None = Field(None, description="Ids of the run table to make; default: all.")
    evaluate: dict[str, EvaluationPlan] = Field(
        default_factory=dict, description="Name of an SFT job, or family of runs -> plan; default: greedy on mastered."
    )
    evaluation: Evaluation = Evaluation()
    statistics: Statistics = Statistics()
    mechanism: Mechanism = Mechanism()
    resources: dict[str, Resources] = Field(
        default_factory=dict, description="Rule -> what its jobs ask for; 'default' for the others."
    )


class Settings(Strict):
    """``config.yaml``."""

    scale: Literal[
        "smoke",
        "tiny",
        "small",
        "paper",
        "paper-qwen3-vl-8b",
        "dark-room-smoke",
        "dark-room-tiny",
        "hidden-rule-smoke",
        "hidden-rule-tiny",
        "paper-qwen3-1.7b",
        "paper-qwen3-4b",
        "paper-qwen3-8b",
        "paper-hidden-rule-qwen3-4b",
    ] = "tiny"
    tier: Literal["scratch", "checkpoints", "evals", "tables"] = "scratch"
