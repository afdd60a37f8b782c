"""Grafts of a LoRA adapter (arXiv 2106.09685): modules switched on and off, factors untouched.

An adapter is a difference from its base model, so grafting its attention group into the base is the adapter with
only the attention modules' factors kept, and grafting the base's attention group into the adapted model is the
adapter without them. The adapter's configuration lists the kept modules by their full names, so that a loader finds
neither missing nor surplus factors and no base weight is ever merged or rewritten.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from headroom.files import write_json
from headroom.measure import groups
from headroom.measure.weights import Checkpoint, Tensor, copy_side_files, new_folder, open_checkpoint

_FACTOR = re.compile(r"^base_model\.model\.(?P<module>.+?)\.(?P<part>lora_[A-Za-z_]+?)(?:\.weight)?$")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a PEFT adapter rather than a whole model."""
    return (folder / "adapter_config.json").exists()


def adapter_modules(adapter: Checkpoint) -> dict[str, dict[str, Tensor]]:
    """Module -> part (``lora_A``, ``lora_B`` ..., or ``saved`` for a whole tensor) -> tensor, sorted by module."""
    modules: dict[str, dict[str, Tensor]] = {}
    for name, tensor in adapter.tensors.items():
        factor = _FACTOR.match(name)
        if factor:
            modules.setdefault(factor["module"], {})[factor["part"]] = tensor
        else:
            module = name.removeprefix("base_model.model.").removesuffix(".weight").removesuffix(".bias")
            modules.setdefault(module, {})[f"saved {name}"] = tensor
    return dict(sorted(modules.items()))


def modules_of(adapter: Checkpoint, names: Collection[str], bands: int = 3) -> frozenset[str]:
    """The adapter's modules that belong to a union of parameter groups.

    Raises:
        ValueError: a module fits no group, or a group holds no module of this adapter.
    """
    modules = list(adapter_modules(adapter))
    labels = [f"{module}.weight" for module in modules]
    layers = 1 + max((where.layer for where in groups.places(labels).values() if where.layer is not None), default=-1)
    known = groups.by_component(labels)
    if layers:
        known = groups.by_depth(labels, min(bands, layers)) | known
    for name in names:
        if name not in known:
            raise ValueError(f"{adapter.folder}: no module of group {name!r}; the adapter has {', '.join(known)}")
    return frozenset(label.removesuffix(".weight") for name in names for label in known[name])


def module_scale(config: dict[str, Any], module: str) -> float:
    """alpha / r of one module (alpha / sqrt(r) for rank-stabilised LoRA), per-module patterns respected."""
    rank = _pattern(config.get("rank_pattern"), module, config["r"])
    alpha = _pattern(config.get("alpha_pattern"), module, config["lora_alpha"])
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else float(rank))


def _pattern(patterns: dict[str, Any] | None, module: str, default: Any) -> Any:
    for key, value in (patterns or {}).items():
        if _matches(key, module):
            return value
    return default


def _matches(pattern: str, module: str) -> bool:
    """PEFT's rule: a pattern names the end of a module's name."""
    return re.match(rf"(.*\.)?({pattern})$", module) is not None


def write_adapter_graft(donor: Path, names: list[str], output: Path, *, bands: int = 3) -> dict[str, object]:
    """Write the adapter with only the modules of ``names`` switched on.

    Returns:
        groups, parameters (of the kept factors) and modules.

    Raises:
        ValueError: unknown groups, or an adapter whose parts cannot be told apart; nothing is written.
    """
    adapter = open_checkpoint(donor)
    modules = adapter_modules(adapter)
    kept = modules_of(adapter, names, bands)
    if not kept:
        raise ValueError(f"{donor}: no module is left; the graft is the base model itself")
    tensors = sorted((t for module in kept for t in modules[module].values()), key=lambda tensor: tensor.name)
    with new_folder(output) as part:
        copy_side_files(adapter, part)
        write_json(part / "adapter_config.json", _kept_config(adapter.config, modules, kept))
        _write_tensors(part / adapter.files[0].path.name, tensors)
    parameters = sum(tensor.elements for tensor in tensors)
    return {"groups": names, "parameters": parameters, "modules": sorted(kept)}


def _kept_config(config: dict[str, Any], modules: dict[str, dict[str, Tensor]], kept: frozenset[str]) -> dict[str, Any]:
    saved = {module for module, parts in modules.items() if any(part.startswith("saved ") for part in parts)}
    changed = dict(config)
    changed["target_modules"] = sorted(kept - saved)
    # Full names are listed, so the shorthands that widened or narrowed the old list must not apply to the new one.
    for key in ("layers_to_transform", "layers_pattern", "exclude_modules"):
        if key in changed:
            changed[key] = None
    for key in ("rank_pattern", "alpha_pattern"):
        patterns = config.get(key) or {}
        changed[key] = {p: value for p, value in patterns.items() if any(_matches(p, module) for module in kept)}
    if config.get("modules_to_save"):
        changed["modules_to_save"] = [m for m in config["modules_to_save"] if any(k.endswith(m) for k in kept & saved)]
    return changed


def _write_tensors(path: Path, tensors: list[Tensor]) -> None:
    """Stream tensors of any files into a new safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in tensors:
        offsets = [position, position + tensor.size]
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        position += tensor.size
    body = json.dumps(header, separators=(",", ":")).encode()
    body += b" " * (-len(body) % 8)  # the format aligns the data to eight bytes
    with path.open("wb") as stream:
        stream.write(np.uint64(len(body)).astype("<u8").tobytes() + body)
        for tensor in tensors:
            for first, count in tensor.chunks():
                stream.write(tensor.read(first, count))
        stream.flush()
        os.fsync(stream.fileno())
