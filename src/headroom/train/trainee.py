"""A model in training: what computes, what AdamW steps, and how the two keep step. SFT and GRPO share it.

The float32 tensors that AdamW steps are the *masters*:

- ``float32``, one process: the model's own parameters. Nothing else happens.
- ``bfloat16_masters`` (mixed precision, arXiv 1710.03740, without loss scaling: bfloat16 has float32's range): the
  model computes in bfloat16; each gradient is added to the master's in float32 as soon as it is there and freed; after
  a step the masters are rounded into the model. Bytes a weight: 2 + 4 + 4 + 8 (AdamW), and no bfloat16 gradient stays.
- several processes: FSDP2 (``torch.distributed.fsdp.fully_shard``) shards the float32 masters, their gradients and
  AdamW's moments over the processes; a block's weights are gathered for its own pass, in the computing precision.
- LoRA: the masters are the adapter's factors; frozen weights are held in the computing precision, and the float32
  values that rounding would lose wait on the processor for the checkpoint.

A resume state holds whole masters by name, so the state of one layout resumes in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from headroom.config.models import Trainer
from headroom.policy.forward import body_and_head
from headroom.policy.score import LOGITS_AT_ONCE, Batch, Scored, action_log_probabilities
from headroom.train import checkpoint, sharded
from headroom.train.processes import ALONE, Processes

PLAIN = Trainer()


class Trainee:
    """See the module. ``model`` computes; ``optimiser`` steps ``masters`` (name -> float32 parameter)."""

    def __init__(
        self,
        model: Any,
        optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | torch.optim.Optimizer,
        trainer: Trainer = PLAIN,
        processes: Processes = ALONE,
        *,
        seed: int = 0,
    ) -> None:
        """Prepare ``model`` (float32 weights) in place.

        Args:
            model: a decoder.
            optimiser: over the masters, or what makes one of them.
            trainer: how a step is computed.
            processes: this one among those of the job.
            seed: of the adapter's factors.

        Raises:
            ValueError: an adapter's layer does not exist.
        """
        self.model, self.trainer, self.processes = model, trainer, processes
        self._kept: dict[str, Tensor] = {}  # frozen float32 weights that the computing precision cannot hold
        if trainer.lora is not None:
            from headroom.train import adapter

            adapter.add(model, trainer.lora, seed=seed)
        if trainer.precision == "bfloat16_masters":
            self._kept = _round_frozen(model)
        self.masters = trained = _trained(model)
        if trainer.gradient_checkpointing:
            for layer in body_and_head(model)[0].layers:
                layer.run_part = _recomputing(layer)
        if processes.count > 1:
            sharded.shard(model, body_and_head(model)[0].layers, trainer.precision)
            self.masters = _trained(model)
        elif trainer.precision == "bfloat16_masters":
            self.masters = {name: _with_master(parameter) for name, parameter in trained.items()}
        # What is rounded after a step; FSDP2 rounds when it gathers.
        apart = trainer.precision == "bfloat16_masters" and processes.count == 1
        self._apart = [(trained[name], self.masters[name]) for name in trained] if apart else []
        make = optimiser if callable(optimiser) else lambda _: optimiser
        self.optimiser: torch.optim.Optimizer = make(list(self.masters.values()))

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """The masters by name, in the model's order."""
        return self.masters.items()

    def parameters(self) -> Iterator[nn.Parameter]:
        """The masters, in the model's order."""
        return iter(self.masters.values())

    def score(self, batch: Batch, temperature: float = 1.0, *, entropy_gradient: bool = False) -> Scored:
        """``action_log_probabilities`` of the model as it stands."""
        chunk = self.trainer.logits_chunk
        at_once = LOGITS_AT_ONCE if chunk is None else chunk * body_and_head(self.model)[1].weight.shape[0]
        return action_log_probabilities(
            self.model, batch, temperature, logits_at_once=at_once, entropy_gradient=entropy_gradient
        )

    def score_base(self, batch: Batch, temperature: float = 1.0) -> Tensor:
        """Log-probabilities of the model without its adapter, float32 (B, A), without gradient."""
        from headroom.train import adapter

        with torch.no_grad(), self.whole(), adapter.switched_off(self.model):
            return self.score(batch, temperature).log_probabilities

    def learning(self, wanted: bool) -> AbstractContextManager[Any]:
        """Where to score: with gradient, or, where there is nothing to learn, without."""
        return nullcontext() if wanted else self._without_gradient()

    @contextmanager
    def _without_gradient(self) -> Iterator[None]:
        with torch.no_grad(), self.whole():
            yield

    def whole(self) -> AbstractContextManager[Any]:
        """The whole model in this process, for passes without gradient: the sampler runs it layer by layer."""
        return nullcontext() if self.processes.count == 1 else sharded.whole(self.model)

    def backward(self, loss: Tensor, counts: bool = True) -> None:
        """Add the gradient of a microbatch's share of the step's loss; ``counts`` is false of a repeated one."""
        (loss if counts else loss * 0.0).backward()  # type: ignore[no-untyped-call]

    def clip(self, largest: float) -> float:
        """Scale the step's gradient down to the norm ``largest``; its norm before, over all processes."""
        return float(checkpoint.whole(torch.nn.utils.clip_grad_norm_(self.masters.values(), largest)))

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.optimiser.zero_grad(set_to_none=True)

    def step(self) -> None:
        """One optimiser step, seen by the model at once."""
        self.optimiser.step()
        self._publish()

    @torch.no_grad()
    def _publish(self) -> None:
        for parameter, master in self._apart:
            parameter.copy_(master)

    def save(self, folder: Path, step: int, extra: dict[str, Any]) -> None:
        """Write a resume state (``headroom.train.checkpoint``); the first process writes."""
        checkpoint.save(folder, step, self, self.optimiser, extra, write=self.processes.first)

    def resume(self, folder: Path) -> tuple[int, dict[str, Any]] | None:
        """Go on from the newest readable state of ``folder``, whichever layout wrote it: (finished steps, extra)."""
        found = checkpoint.latest(folder, self, self.optimiser)
        self._publish()
        return found

    @torch.no_grad()
    def finish(self, adapter_folder: Path | None = None) -> None:
        """End training: make ``model`` a plain float32 one again, an adapter written to a folder and merged.

        The trained weights are the masters; frozen ones are, to the bit, what they were before.
        """
        if self.processes.count > 1:
            sharded.undo(self.model)
        for parameter, master in self._apart:
            parameter.data = master.data
        for name, parameter in self.model.named_parameters():
            if parameter.dtype == torch.bfloat16:
                parameter.data = self._kept.pop(name).to(parameter.device) if name in self._kept else parameter.float()
        self._apart, self.masters = [], {}
        self.optimiser.state.clear()
        if self.trainer.lora is not None:
            from headroom.train import adapter

            if adapter_folder is not None and self.processes.first:
                adapter.save(self.model, self.trainer.lora, adapter_folder)
            adapter.merge(self.model)
        for layer in body_and_head(self.model)[0].layers:
            layer.__dict__.pop("run_part", None)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _recomputing(layer: nn.Module) -> Callable[..., Any]:
    """The layer's pieces with their inputs alone kept for the backward pass (Chen et al., arXiv 1604.06174)."""

    def run_part(part: Callable[..., Any], *inputs: Any) -> Any:
        return recomputed(part, layer, *inputs, use_reentrant=False, preserve_rng_state=False)

    return run_part


def _with_master(parameter: nn.Parameter) -> nn.Parameter:
    """Round ``parameter`` to bfloat16 in place; its float32 master, which takes over every gradient at once."""
    master = nn.Parameter(parameter.data)
    parameter.data = parameter.data.to(torch.bfloat16)

    def hand_over(rounded: Tensor) -> None:
        if rounded.grad is not None:
            gradient = rounded.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            rounded.grad = None

    parameter.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]
    return master


@torch.no_grad()
def _round_frozen(model: nn.Module) -> dict[str, Tensor]:
    """Round the frozen weights to bfloat16 in place; those that lose digits, as they were, on the processor."""
    lossy: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and parameter.dtype == torch.float32:
            rounded = parameter.data.to(torch.bfloat16)
            if not torch.equal(rounded.float(), parameter.data):
                lossy[name] = parameter.data.cpu()
            parameter.data = rounded
    return lossy
