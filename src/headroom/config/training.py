"""Settings of a policy and of its training: the model, supervised fine-tuning, GRPO, and how a step is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headroom.config.base import NonNegative, Positive, Probability, Strict


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
    context: int = Field(1024, gt=64, description="Tokens of a turn, 64 of them for its action.")

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
    context: int = Field(8192, gt=64, description="Tokens of a turn, 64 of them for its action.")


Model = Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")]


def model_files(model: TinyModel | PretrainedModel) -> list[Path]:
    """The files of the folder that a pretrained model is read from, sorted; none of a hub name: its commit pins it."""
    if isinstance(model, TinyModel) or not Path(model.name_or_path).is_dir():
        return []
    kinds = (".json", ".safetensors", ".txt", ".jinja", ".model")
    return sorted(path for path in Path(model.name_or_path).iterdir() if path.suffix in kinds and path.is_file())


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


class Signal(Strict):
    """A dense reward beside the outcome (arXiv 2607.21273): a potential Phi_t in [0, 1] a turn, and how it is paid."""

    kind: Literal["none", "prediction", "noise", "confidence", "anchor"] = Field(
        "none",
        description="prediction: the right share of the agent's own prediction of the next observation; noise: a "
        "random potential in its place; confidence: what the agent says of its own success; anchor: 1 where it answers "
        "a question about the state that it is in rightly.",
    )
    form: Literal["potential", "additive"] = Field(
        "potential", description="Paid a turn: weight * (Phi_t - Phi_{t-1}), with Phi_0 = 0; or weight * Phi_t."
    )
    weight: float = Field(0.1, ge=0, description="lambda.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="Of the weight; cosine: to 0 at the end.")
    channel: Literal["added", "decoupled"] = Field(
        "added", description="added: to the other rewards; decoupled: an advantage of its own, added to theirs."
    )


class Auxiliary(Strict):
    """A cross-entropy loss beside the reward (arXiv 2607.21273): of the prediction block behind the agent's command."""

    kind: Literal["none", "prediction", "shuffled", "random_words"] = Field(
        "none",
        description="What the block says. prediction: what was seen next; shuffled: that of another turn of the step; "
        "random_words: words drawn uniformly.",
    )
    weight: float = Field(0.1, gt=0, description="Of the mean over the block's tokens, added to the loss of GRPO.")


class Validation(Strict):
    """Episodes during a run on pages that are used for nothing else; they change nothing in it."""

    every: NonNegative = Field(0, description="Steps between two; 0: none.")
    pages: Positive = 32
    temperature: float = Field(0.4, ge=0)
    last: Positive = Field(6, description="The endpoint of a run is the mean of this many at its end.")


class Grpo(Strict):
    """One GRPO run (arXiv 2402.03300; Dr. GRPO 2503.20783; DAPO 2503.14476)."""

    run: str
    seed: int
    init: str = Field(description="Name of the SFT job that the run starts from.")
    tasks: Literal["mastered", "headroom", "all"]
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
    signal: Signal = Signal()
    auxiliary: Auxiliary = Auxiliary()
    entropy_bonus: float = Field(0.0, ge=0, description="Weight of the mean entropy of the action tokens.")
    validation: Validation = Validation()
    optimiser: Optimiser = Optimiser()
    trainer: Trainer = Trainer()
    engine: Literal["torch", "vllm"] = Field("torch", description="What samples the rollouts.")
    vllm: Vllm = Vllm()
    overlap: bool = Field(False, description="Sample one half's actions while the pages of the other half are played.")
    microbatch_tokens: Positive = Field(16384, description="Padded tokens a forward pass; never changes the gradient.")
    max_new_tokens: Positive = 24
    checkpoint_every: Positive = 10
