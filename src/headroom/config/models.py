"""Every setting of the study, one frozen model a stage. Unknown keys fail; nothing has a second home.

``config.yaml`` names a scale; ``workflow/scales/<scale>.yaml`` holds that scale's numbers as a :class:`Study`;
``workflow/data/runs.tsv`` holds the runs. Resolution (``headroom.config.resolve``) turns the three into one JSON
file a job, and the bytes of that file decide what reruns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(ge=0.0, le=1.0)]


class Strict(BaseModel):
    """Base of all models: frozen, unknown keys rejected, numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TinyModel(Strict):
    """A Qwen3 from configuration, trained from scratch."""

    kind: Literal["tiny"] = "tiny"
    width: Positive = 96
    layers: Positive = 2
    heads: Positive = 3
    key_value_heads: Positive = 3
    head_width: Positive = 32
    feed_forward: Positive = 256
    rope_base: float = 1000.0
    tied_embeddings: bool = True
    initial_std: float = Field(0.02, gt=0, description="Of all matrices before training; Qwen3's own is 0.02.")
    slots: Positive = 64
    closed_share: Probability = Field(
        0.15, description="A word in at least this share of a task's episodes has a token of its own."
    )
    context: Positive = 1024

    @model_validator(mode="after")
    def _heads_divide(self) -> TinyModel:
        if self.heads % self.key_value_heads:
            raise ValueError("model.heads must be a multiple of model.key_value_heads")
        if self.head_width % 2:
            raise ValueError("model.head_width must be even: rotary positions turn pairs")
        return self


class PretrainedModel(Strict):
    """A released checkpoint, from a hub or a folder; its own tokenizer, the page as plain text."""

    kind: Literal["pretrained"] = "pretrained"
    name_or_path: str
    revision: str | None = Field(None, description="A full commit hash; required for a hub name.")
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    context: Positive = 8192


Model = Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")]


def model_files(model: TinyModel | PretrainedModel) -> list[Path]:
    """The files of the folder that a pretrained model is read from, sorted; none of a hub name: its commit pins it."""
    if isinstance(model, TinyModel) or not Path(model.name_or_path).is_dir():
        return []
    kinds = (".json", ".safetensors", ".txt", ".jinja", ".model")
    return sorted(path for path in Path(model.name_or_path).iterdir() if path.suffix in kinds and path.is_file())


class WorldSettings(Strict):
    """MiniWoB++ in Chromium."""

    tabs: Positive = Field(48, description="Pages kept open in one browser, about 4 MB each.")
    horizon: Positive = Field(10, description="Turns after which an episode ends as a failure.")
    success_above: float = Field(0.99, ge=-1.0, le=1.0, description="Success is done and raw reward above this.")
    memo_megabytes: NonNegative = Field(256, description="Bound on remembered observations; 0 turns the memo off.")
    tries: Positive = 3
    call_timeout_seconds: float = Field(20.0, gt=0)


class Tasks(Strict):
    """Candidate tasks, and the rule that picks the mastered and the headroom set from selection episodes."""

    candidates: tuple[str, ...]
    mastered: Positive = Field(11, description="Size of the mastered set.")
    headroom: Positive = Field(10, description="Size of the headroom set.")
    mastered_at_least: Probability = Field(0.7, description="Greedy success on the selection pool.")
    mastered_mean: Probability = Field(0.91, description="Mean greedy success that the mastered set is picked for.")
    headroom_at_most: Probability = Field(0.7, description="Greedy success on the selection pool.")
    selection_seeds: Positive = 20
    samples: Positive = Field(8, description="Samples a page at T=1 in the selection pool.")

    @model_validator(mode="after")
    def _unique(self) -> Tasks:
        if len(set(self.candidates)) != len(self.candidates):
            raise ValueError("tasks.candidates names a task twice")
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


class Optimiser(Strict):
    """AdamW (arXiv 1711.05101)."""

    beta1: Probability = 0.9
    beta2: Probability = 0.999
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    gradient_clip: float = Field(1.0, gt=0)


class Lora(Strict):
    """Low-rank adapters (LoRA, arXiv 2106.09685) on the named linear layers of every block; no dropout."""

    rank: Positive = 16
    alpha: Positive = Field(32, description="The update is scaled by alpha / rank.")
    dropout: Literal[0] = Field(0, description="None: sampler and trainer must agree on the policy.")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), min_length=1
    )


class Trainer(Strict):
    """How a step is computed: never what it computes, beyond rounding (``lora`` excepted, which decides what moves)."""

    precision: Literal["float32", "bfloat16_masters"] = Field(
        "float32", description="bfloat16_masters: computed in bfloat16; gradients, AdamW and weights kept in float32."
    )
    gradient_checkpointing: bool = Field(False, description="Keep one hidden state a block, recompute the rest.")
    logits_chunk: Positive | None = Field(
        None, description="Action tokens whose logits are held at a time; default: as many as 128 MiB hold."
    )
    lora: Lora | None = Field(None, description="Train adapters instead of all weights.")
    processes: Positive = Field(1, description="One a GPU (torchrun); the weights are sharded over them (FSDP2).")


class Vllm(Strict):
    """vLLM (arXiv 2309.06180) inside the trainer's process; read where ``engine`` is vllm."""

    cache_mb: Positive = Field(1024, description="Keys and values that the engine may hold, beside its weights.")
    longest: Positive = Field(8192, description="Tokens of a prompt and its action; never more than the model's own.")
    sequences: Positive = Field(256, description="Actions that are sampled side by side.")
    importance_cap: float | None = Field(
        2.0, ge=1, description="C of the truncated importance weights min(pi_train / pi_sampler, C); null: none."
    )
    canary_tolerance: float | None = Field(
        None,
        gt=0,
        description="Nats that a log-probability of both engines may differ by; default: 1e-3, in bfloat16 0.5.",
    )


class Sft(Strict):
    """Supervised fine-tuning on the action tokens of the demonstrations."""

    seed: int = 0
    steps: Positive
    batch: Positive = 32
    learning_rate: float = Field(3e-3, gt=0)
    warmup_steps: NonNegative = 50
    schedule: Literal["cosine", "constant"] = "cosine"
    schedule_steps: Positive | None = Field(None, description="Length of the cosine; default: steps.")
    optimiser: Optimiser = Optimiser()
    trainer: Trainer = Trainer()
    checkpoint_every: Positive = 200


class Grpo(Strict):
    """One GRPO run (arXiv 2402.03300; Dr. GRPO 2503.20783; DAPO 2503.14476)."""

    run: str
    seed: int
    init: str = Field(description="Name of the SFT job that the run starts from.")
    tasks: Literal["mastered", "headroom"]
    steps: Positive = 40
    pages_per_step: Positive = 8
    group_size: Positive = 8
    temperature: float = Field(1.0, gt=0)
    updates_per_rollout: Positive = 1
    learning_rate: float = Field(ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: NonNegative = 0
    kl_beta: float = Field(0.0, ge=0)
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    advantage_scope: Literal["trajectory", "pooled_step"] = "trajectory"
    advantage_scale: Literal["none", "group_std", "batch_std"] = "none"
    advantage_epsilon: float = Field(1e-6, gt=0)
    aggregation: Literal["token_mean", "sequence_mean", "constant_length"] = "token_mean"
    reward_success: float = 1.0
    reward_failure: float = 0.0
    reward_invalid_action: float = 0.0
    optimiser: Optimiser = Optimiser()
    trainer: Trainer = Trainer()
    engine: Literal["torch", "vllm"] = Field("torch", description="What samples the rollouts.")
    vllm: Vllm = Vllm()
    overlap: bool = Field(False, description="Sample one half's actions while the pages of the other half are played.")
    microbatch_tokens: Positive = Field(16384, description="Padded tokens a forward pass; never changes the gradient.")
    max_new_tokens: Positive = 24
    checkpoint_every: Positive = 10


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


Family = Literal["grid", "replication", "group_size", "headroom", "collapse", "schedule"]


class Run(Strict):
    """One row of ``workflow/data/runs.tsv``: what distinguishes a run from the recipe."""

    run: str = Field(pattern=r"^[a-z][a-z0-9_]*-[0-9]{2,3}$")
    family: Family
    tasks: Literal["mastered", "headroom"]
    init: str = Field(description="Name of the SFT job that the run starts from.")
    learning_rate: str = Field(description="A level; each scale says what it is worth.")
    schedule: Literal["constant", "cosine"]
    kl_beta: float = Field(ge=0)
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    group_size: Positive
    seed: NonNegative


class Resources(Strict):
    """What a job asks of the machine or the scheduler; never changes a result."""

    threads: Positive = 1
    mem_mb: int = Field(2000, ge=1000, description="At least 1000: Snakemake itself lives in a cluster job, twice.")
    runtime: Positive = Field(60, description="Minutes.")
    disk_mb: Positive = 1000
    gpu: NonNegative = 0
    gpu_mem_mb: NonNegative = Field(0, description="Memory that each GPU must have; 0: any. Checked when a job starts.")


class Probe(Strict):
    """The fixed turns on which every checkpoint's hidden states are read: the supervised policy's own greedy turns."""

    task_sets: tuple[Literal["mastered", "headroom"], ...] = ("mastered",)
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

    task_sets: tuple[Literal["mastered", "headroom"], ...] = ("mastered",)
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

    greedy: tuple[Literal["mastered", "headroom"], ...] = ("mastered",)
    sampled: tuple[Literal["mastered", "headroom"], ...] = ()
    samples: Positive | None = Field(None, description="Samples a page; default: evaluation.samples.")


class Study(Strict):
    """All numbers of one scale."""

    model: Model
    world: WorldSettings = WorldSettings()
    tasks: Tasks
    demonstrations: Demonstrations = Demonstrations()
    sft: dict[str, Sft] = Field(description="One entry an initialisation: 'sft' and, for the init axis, 'base'.")
    learning_rates: dict[str, float] = Field(description="Level name in runs.tsv -> learning rate at this scale.")
    grpo: dict[str, object] = Field(default_factory=dict, description="Defaults of every run; keys of Grpo.")
    warmup_steps: NonNegative = Field(4, description="Warm-up of the runs whose schedule is cosine.")
    runs: tuple[str, ...] | None = Field(None, description="Ids of runs.tsv to make; default: all.")
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
        "smoke", "tiny", "small", "paper", "paper-qwen3-vl-8b", "paper-qwen3-1.7b", "paper-qwen3-4b", "paper-qwen3-8b"
    ] = "tiny"
    tier: Literal["scratch", "checkpoints", "evals", "tables"] = "scratch"
