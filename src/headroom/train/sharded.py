"""Weights over several processes: FSDP2 (``torch.distributed.fsdp.fully_shard``), one shard group a block.

``torch.distributed`` is imported where there is more than one process, and only there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn


def shard(model: Any, layers: Iterable[Any], precision: Literal["float32", "bfloat16_masters"]) -> None:
    """Shard ``model`` in place, its blocks one by one and the rest together.

    Gradients of the processes are added, in float32, not averaged: the denominators of the loss are the whole step's.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    # A block returns views (padded keys and values), which nothing ever writes into.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    low = precision == "bfloat16_masters"
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if low else None,
        reduce_dtype=torch.float32 if low else None,
        cast_forward_inputs=False,
    )
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        if "run_part" not in module.__dict__:
            module.run_part = _direct(module)
        register_fsdp_forward_method(module, "run_part")
    model.run_part(_nothing)  # the first call makes it the root of the others
    model.reshard()


@contextmanager
def whole(model: Any) -> Iterator[None]:
    """Gather all weights in every process as long as the block lasts, for passes without gradient."""
    from torch.distributed.fsdp import FSDPModule

    groups = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in groups:
        module.unshard()
    try:
        yield
    finally:
        for module in groups:
            module.reshard()


@torch.no_grad()
def undo(model: Any) -> None:
    """Put whole tensors in the place of the shards; the model is a plain one again, without gradients.

    It ends in the processors' memory, a tensor at a time: no device must hold all float32 weights, beside an engine's.
    """
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    replaced: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and hasattr(parameter, "full_tensor"):
                if id(parameter) not in replaced:
                    replaced[id(parameter)] = nn.Parameter(parameter.full_tensor().cpu(), parameter.requires_grad)
                module._parameters[name] = replaced[id(parameter)]
    for module in model.modules():
        module.__dict__.pop("run_part", None)
        for name, buffer in module._buffers.items():  # never sharded
            module._buffers[name] = None if buffer is None else buffer.cpu()


def _direct(module: Any) -> Callable[..., Any]:
    def run_part(part: Callable[..., Any], *inputs: Any) -> Any:
        return part(module, *inputs)

    return run_part


def _nothing(_module: Any) -> None:
    return None
