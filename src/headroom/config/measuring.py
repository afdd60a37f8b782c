"""Settings of what is measured on a policy: episodes, statistics, and what became of it inside."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headroom.config.base import NonNegative, Positive, Probability, Strict

TaskSet = Literal["mastered", "headroom", "all"]
"""A set of ``task_sets.json``: two that selection chose, and every candidate."""


class Evaluation(Strict):
    """Greedy and sampled episodes on a seed pool, the same for every policy."""

    seeds: Positive = 25
    samples: Positive = Field(8, description="Samples a page at T=1, for sampled success and pass@k.")
    temperature: float = Field(1.0, gt=0)
    pass_at: tuple[Positive, ...] = (1, 2, 4, 8)
    seed: int = Field(20260714, description="Seed of the sampler.")
    max_new_tokens: Positive = 24


class Statistics(Strict):
    """Paired contrasts against the supervised policy."""

    confidence: float = Field(0.95, gt=0, lt=1)
    bootstrap_draws: Positive = 10000
    bootstrap_seed: int = 7
    equivalence_margin: float = Field(0.05, gt=0, lt=1, description="TOST margin on the success difference.")
    power: float = Field(0.8, gt=0, lt=1, description="Of the minimum detectable effect.")


class Probe(Strict):
    """The fixed turns on which every checkpoint's hidden states are read: the supervised policy's own greedy turns."""

    task_sets: tuple[TaskSet, ...] = ("mastered",)
    seeds: Positive = Field(8, description="Pages a task, of the reading pool.")
    turns: Positive = Field(4, description="At most this many turns of an episode: loops would repeat one page.")


class Rank(Strict):
    """Effective rank (Roy & Vetterli 2007) of hidden states and weight updates. The primary one is fixed here."""

    primary_tokens: Literal["mean", "all", "action"] = "mean"
    primary_centred: bool = True
    bootstrap_draws: Positive = Field(200, description="Over episodes of the probe.")
    bootstrap_seed: int = 11
    bootstrap_up_to: Positive = Field(512, description="No interval where width and rows both exceed this.")
    spectrum_up_to: Positive = Field(8192, description="No spectrum of an update whose shorter side exceeds this.")
    batch_tokens: Positive = 8192


class Graft(Strict):
    """Parameter groups moved between the supervised and the trained checkpoint, and their random controls."""

    task_sets: tuple[TaskSet, ...] = ("mastered",)
    seeds: Positive = Field(10, description="Pages a task: the first of the evaluation pool.")
    seed: int = Field(0, description="Of the random controls.")
    bands: Positive = Field(3, description="Depth bands; never more than the model has blocks.")
    pairs: tuple[tuple[str, str], ...] = Field((("attention", "mlp"),), description="Grafted together, too.")
    controls_of: tuple[tuple[str, ...], ...] = Field(
        (("attention",), ("mlp",), ("attention", "mlp"), ("embedding",)),
        description="Unions of groups that get random controls.",
    )
    control_draws: NonNegative = 2
    broken_drop: Probability = Field(0.2, description="A task is broken if its greedy success fell by at least this.")


class Mechanism(Strict):
    """Why the runs did what they did: grafts, rank and drift, failures, film strips."""

    regimes: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Regime (low, degrade, collapse, headroom) -> runs that are taken apart."
    )
    graft_regimes: tuple[str, ...] = Field(("low", "degrade", "collapse"), description="Whose runs are grafted.")
    rank_families: tuple[str, ...] = Field(
        ("grid", "replication", "collapse"), description="Families of runs whose insides are measured."
    )
    probe: Probe = Probe()
    rank: Rank = Rank()
    graft: Graft = Graft()


class EvaluationPlan(Strict):
    """On which task sets the policies of a family are evaluated, and how often sampled."""

    greedy: tuple[TaskSet, ...] = ("mastered",)
    sampled: tuple[TaskSet, ...] = ()
    samples: Positive | None = Field(None, description="Samples a page; default: evaluation.samples.")
