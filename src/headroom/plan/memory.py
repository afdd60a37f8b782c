"""Bytes of one device, by component, at the widest moment of a job.

A training job has four moments: the float32 checkpoint as it is loaded, before it is sharded; the rollout, for which
all weights are gathered; the update; and the end, when the float32 weights are gathered to be written. What each holds
follows ``headroom.train.trainee``, ``sharded`` and ``headroom.policy.forward``:

- bfloat16 with float32 masters, one process: 2 + 4 + 4 + 8 bytes a weight (copy, master, gradient, AdamW's moments);
- ``n`` processes (FSDP2): (4 + 4 + 8) / n, and gathered in bfloat16 one block at a time, the next one fetched ahead;
- LoRA: 2 bytes a frozen weight, 16 an adapter's;
- recomputed blocks keep their inputs: a hidden state a token, and the keys and values of the prefix.

Formulas are held to the tensors that the real forward pass saves (tests/unit/plan/test_memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from headroom.config.models import Lora, Trainer, Vllm
from headroom.plan.architecture import Shape

LOGITS_AT_ONCE, CACHE_TOKENS = 2**25, 65536
"""Of ``headroom.policy.score`` and of ``TorchSampler``, without importing torch; a test holds them to it."""
CONTEXT_BYTES, LIBRARY_BYTES = 2_000_000_000, 400_000_000
"""Assumed of one process: a GPU's context, kernels and communication buffers; without one, interpreter and torch."""
FRAGMENTED = 0.05
"""Assumed: what the allocator holds and cannot use, of everything else."""

Parts = dict[str, float]


@dataclass(frozen=True)
class Load:
    """What passes through a model at a time: ``tokens`` of a microbatch, ``actions`` of them action tokens,
    ``cached`` tokens of the sampler's cache, ``rows`` it samples side by side."""

    tokens: int
    actions: int
    cached: int = 0
    rows: int = 0


def adapter_parameters(shape: Shape, lora: Lora) -> int:
    """Parameters of the factors: rank x (inputs + outputs) of every named layer of every block."""
    attention, pairs = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    sizes = {
        "q_proj": (shape.width, attention),
        "k_proj": (shape.width, pairs),
        "v_proj": (shape.width, pairs),
        "o_proj": (attention, shape.width),
        "gate_proj": (shape.width, shape.feed_forward),
        "up_proj": (shape.width, shape.feed_forward),
        "down_proj": (shape.feed_forward, shape.width),
    }
    return shape.layers * sum(lora.rank * sum(sizes[name]) for name in lora.target_modules)


def training(
    shape: Shape, trainer: Trainer, load: Load, *, reference: bool, gpu: bool = True, engine: Vllm | None = None
) -> dict[str, Parts]:
    """Moment -> component -> bytes of one device of a training job.

    Args:
        shape: the model.
        trainer: precision, recomputation, adapter, processes.
        load: of one device; ``cached`` 0 where nothing is sampled (SFT).
        reference: whether a frozen second model stands beside it (a KL term, without an adapter).
        gpu: whether it works on one.
        engine: vLLM's settings where it samples: its weights and its cache stay beside the trainer's all the time.
    """
    width = 2 if trainer.precision == "bfloat16_masters" else 4
    count, lora = trainer.processes, trainer.lora
    trained = shape.language if lora is None else adapter_parameters(shape, lora)
    frozen = 0 if lora is None else shape.language
    apart = width == 2 and count == 1  # the model's own copy; sharded, or in float32, the masters are the model
    held: Parts = {
        "weights": (width * frozen + (width * trained if apart else 0)) / count,
        "float32 masters": 4 * trained / count,
        "AdamW moments": 8 * trained / count,
        "reference model": width * shape.language if reference and lora is None else 0,
    }
    if engine is not None:
        held |= {"vLLM weights": width * shape.language, "vLLM key-value cache": engine.cache_mb * 2**20}
    gathered_blocks = 2 * shape.block + shape.outside
    update: Parts = {
        **held,
        "gathered weights": width * gathered_blocks if count > 1 else 0,
        "gradients": 4 * trained / count + (width * gathered_blocks if count > 1 and lora is None else 0),
        "activations": activations(shape, load.tokens, width, recomputed=trainer.gradient_checkpointing),
        "logits": logits(shape, load.actions, trainer.logits_chunk),
    }
    beside = ("reference model", "vLLM weights", "vLLM key-value cache")  # opened before the weights are sharded
    loaded: Parts = {"float32 weights": 4.0 * shape.language, **{name: held[name] for name in beside if name in held}}
    moments = {"load": loaded, "update": update}
    if load.cached:
        moments["rollout"] = {
            **held,
            "gathered weights": width * shape.language if count > 1 else 0,
            **(_sampling(shape, load, width) if engine is None else {}),
        }
    # Shards are gathered into the processors' memory, a tensor at a time; the embedding is the largest.
    whole = shape.vocabulary * shape.width if count > 1 else 0 if lora is None else shape.language
    moments["end"] = {**held, "float32 weights": 4.0 * whole}
    return {moment: _with_overhead(parts, gpu) for moment, parts in moments.items()}


def playing(shape: Shape, load: Load, *, gpu: bool = True) -> dict[str, Parts]:
    """The same of a job that only samples, in float32: evaluation, selection, the reading, grafts."""
    return {"rollout": _with_overhead({"weights": 4.0 * shape.language, **_sampling(shape, load, 4)}, gpu)}


def activations(shape: Shape, tokens: int, width: int, *, recomputed: bool) -> float:
    """Bytes that the backward pass needs of all blocks: ``tokens`` of them, numbers of ``width`` bytes.

    Recomputed: the inputs of each block, and everything of the one that is being recomputed, with its gradients.
    """
    attention, pairs = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    # Two norms (their float32 inputs and results), queries and keys before and after norm and rotation, values,
    # attention's result; gate, up, their activation and product.
    inner = 4 * shape.width + 4 * attention + 5 * pairs + 4 * shape.feed_forward
    upcast = 2 * (2 * shape.width + attention + pairs)
    block = tokens * (width * inner + 4 * upcast)
    if not recomputed:
        return float(shape.layers * block)
    kept = tokens * width * (shape.width + 2 * pairs)
    return float(shape.layers * kept + 2 * block)


def logits(shape: Shape, actions: int, chunk: int | None) -> float:
    """Bytes of the logits held at a time: themselves, their log-softmax and its gradient, in float32."""
    rows = min(actions, max(1, LOGITS_AT_ONCE // shape.vocabulary) if chunk is None else chunk)
    return 3.0 * 4 * rows * shape.vocabulary


def _sampling(shape: Shape, load: Load, width: int) -> Parts:
    cached = min(load.cached, CACHE_TOKENS)
    return {
        # Once a unique prefix, once a row that continues it.
        "key-value cache": 2.0 * width * cached * shape.key_value_numbers,
        "logits": 3.0 * 4 * load.rows * shape.vocabulary,
    }


def _with_overhead(parts: Parts, gpu: bool) -> Parts:
    kept = {name: float(value) for name, value in parts.items() if value}
    return {
        **kept,
        "context and fragmentation": (CONTEXT_BYTES if gpu else LIBRARY_BYTES) + FRAGMENTED * sum(kept.values()),
    }


def peak(moments: dict[str, Parts]) -> tuple[str, float]:
    """The widest moment and its bytes."""
    return max(((name, sum(parts.values())) for name, parts in moments.items()), key=lambda pair: pair[1])


def host(shape: Shape, trainer: Trainer | None) -> float:
    """Bytes of the processors' memory of a job: each process reads the float32 checkpoint, the first one writes a
    resume state of masters and moments, and each keeps its initial weights to measure how far they moved."""
    processes = 1 if trainer is None else trainer.processes
    loaded = 4.0 * shape.language * processes
    if trainer is None:
        return loaded
    return max(loaded, 12.0 * trained_parameters(shape, trainer) + 4.0 * trained_parameters(shape, trainer))


def state(shape: Shape, trainer: Trainer) -> float:
    """Bytes of one resume state: float32 masters and AdamW's two moments."""
    return 12.0 * trained_parameters(shape, trainer)


def trained_parameters(shape: Shape, trainer: Trainer) -> int:
    """Parameters that AdamW steps."""
    return shape.language if trainer.lora is None else adapter_parameters(shape, trainer.lora)
