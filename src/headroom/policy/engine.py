"""What samples a policy's actions: the model that is trained itself, or a second engine that is kept equal to it.

``torch`` reads the trained weights where they are (``headroom.policy.sampler``). ``vllm`` holds a copy in an engine
made for serving (``headroom.policy.vllm_engine``), and so must be told of every update, and watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from headroom.config.models import Grpo, Lora
from headroom.policy.load import Policy
from headroom.policy.sampler import Generation, Ids, TorchSampler


class EngineError(Exception):
    """An engine that cannot be used, or no longer answers as the policy does; one line with the remedy."""


class Engine(Protocol):
    """A sampler with weights to keep in step."""

    @property
    def tolerance(self) -> float | None:
        """Nats that a canary's log-probability may be off; None without a canary."""
        ...

    def sync(self, model: Any) -> float | None:
        """Sample from the weights that ``model`` has now; the canary's gap in nats, None without a canary.

        Raises:
            EngineError: the engine does not answer as ``model`` does.
            FloatingPointError: the model gives no finite probabilities.
        """
        ...

    def generate(
        self, prompts: Sequence[Ids], *, temperature: float, seeds: Sequence[int], max_new_tokens: int
    ) -> list[Generation]:
        """See ``TorchSampler.generate``."""
        ...


class Adapters(Protocol):
    """How an adapter is taken out of a model (``headroom.train.adapter``, which knows how one is put in)."""

    def save(self, model: Any, lora: Lora, folder: Path) -> None:
        """Write the adapter alone, as PEFT reads it."""
        ...

    def switched_off(self, model: Any) -> AbstractContextManager[None]:
        """The base model, as long as the block lasts."""
        ...


def open_engine(policy: Policy, settings: Grpo, adapters: Adapters | None = None) -> Engine:
    """The engine that ``settings.engine`` names, for ``policy`` as it was loaded from its folder.

    Raises:
        EngineError: the engine is not installed, or cannot hold the model.
    """
    if settings.engine == "torch":
        return TorchSampler(policy.model, policy.codec.end_ids)
    from headroom.policy.vllm_engine import VllmSampler

    bfloat16 = settings.trainer.precision == "bfloat16_masters"
    return VllmSampler(
        policy.path,
        policy.codec.end_ids,
        settings.vllm,
        dtype="bfloat16" if bfloat16 else "float32",
        temperature=settings.temperature,
        lora=settings.trainer.lora,
        adapters=adapters,
    )
