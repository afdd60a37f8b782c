"""LoRA (arXiv 2106.09685) by PEFT, put into the model's own linear layers; the base weights are frozen.

With ``W`` frozen, a layer computes ``x W^T + (alpha / rank) x A^T B^T``; B starts at zero, so training starts at the
base model exactly. Deviations from PEFT's habits: A is drawn from a generator of its own, never from the global random
state; the base is never merged into while training goes on, because merging and unmerging in bfloat16 drifts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from headroom.config.models import Lora
from headroom.files import write_json
from headroom.seeds import derive

_NAME = "default"
"""PEFT's name of the one adapter."""


def add(model: Any, lora: Lora, *, seed: int) -> None:
    """Freeze ``model`` and put an adapter into its layers, in place; equal seeds give equal factors (float32).

    Raises:
        ValueError: no layer of the model has one of the names.
    """
    from peft import LoraConfig, inject_adapter_in_model

    layers = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if unknown := sorted(set(lora.target_modules) - layers):
        raise ValueError(
            f"trainer.lora.target_modules: the model has no linear layer {unknown[0]!r}; "
            f"it has {', '.join(sorted(layers))}"
        )
    model.requires_grad_(False)
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=sorted(lora.target_modules)
    )
    inject_adapter_in_model(config, model, _NAME)
    draw = torch.Generator().manual_seed(derive("lora", seed))
    with torch.no_grad():
        for name, factor in _factors(model).items():
            if ".lora_A." in name:  # PEFT's own start: uniform with bound 1 / sqrt(width)
                bound = 1 / math.sqrt(factor.shape[1])
                factor.copy_(torch.empty(factor.shape).uniform_(-bound, bound, generator=draw))


@contextmanager
def switched_off(model: Any) -> Iterator[None]:
    """The base model, as long as the block lasts."""
    for layer in _layers(model).values():
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in _layers(model).values():
            layer.enable_adapters(True)


def merge(model: Any) -> None:
    """Replace every adapted layer by a plain one with weight ``W + (alpha / rank) B A``, in place and for good."""
    for name, layer in _layers(model).items():
        layer.merge()
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, layer.get_base_layer())
    for attribute in ("peft_config", "_hf_peft_config_loaded"):
        model.__dict__.pop(attribute, None)


def save(model: Any, lora: Lora, folder: Path) -> None:
    """Write the adapter alone, as PEFT reads it: ``adapter_model.safetensors`` and ``adapter_config.json``."""
    from peft import LoraConfig

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=sorted(lora.target_modules),
        task_type="CAUSAL_LM", inference_mode=True,
    ).to_dict()  # type: ignore[no-untyped-call]  # fmt: skip
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    plain["target_modules"] = sorted(lora.target_modules)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "adapter_config.json", plain)
    tensors = {
        "base_model.model." + name.replace(f".{_NAME}.", "."): factor.detach().float().cpu().contiguous()
        for name, factor in _factors(model).items()
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def _factors(model: Any) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if ".lora_" in name}
