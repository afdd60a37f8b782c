"""A base model with a LoRA adapter on it, as one checkpoint: W + scale * B A, a few rows at a time, never written.

What the adapter leaves alone is the base's own tensor object, so "which tensors can a graft switch" is a question of
identity; what it changes reads as float32 on both sides of a pair, because an update rounded to bfloat16 would mostly
be lost. Taking a group's tensors from one side or the other is then switching the group's modules on or off.

What cannot be expressed so is refused: variants that are no product of two factors, initialisations that rewrite the
base when they are loaded, and a change of an embedding to which the base ties its head (the head would not follow).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headroom.measure.edit import check_pair
from headroom.measure.lora import adapter_modules, is_adapter, module_scale
from headroom.measure.spectrum import factored_squared_singular_values
from headroom.measure.weights import Checkpoint, Tensor, encode, open_checkpoint, ties_head
from headroom.policy.vision import PREFIX

_REWRITES_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_VARIANTS = (
    *("use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "layer_replication"),
    *("trainable_token_indices", "target_parameters", "alora_invocation_tokens"),
    *("arrow_config", "kasa_config", "monteclora_config"),
)


@dataclass(frozen=True, slots=True)
class Factors:
    """An update ``scale * left @ right``: left (m, r), right (r, n); turned over for an embedding, whose update is
    (B A)'."""

    left: Tensor
    right: Tensor
    scale: float
    turned: bool

    def rows(self, first: int, count: int) -> npt.NDArray[np.float64]:
        """Rows of the update, float64 (count, n)."""
        left, right = (part.values().reshape(part.shape) for part in (self.left, self.right))
        if self.turned:
            left, right = right.T, left.T
        return np.asarray(self.scale * (left[first : first + count] @ right), dtype=np.float64)

    def squared_singular_values(self) -> npt.NDArray[np.float64]:
        """Of the update, (r,), by two thin QR decompositions: exact, and cheap for any m and n."""
        factors = [part.values().reshape(part.shape) for part in (self.left, self.right)]
        return factored_squared_singular_values(factors[0], factors[1], self.scale)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the update."""
        shape = (self.left.shape[0], self.right.shape[1])
        return shape[::-1] if self.turned else shape


@dataclass(frozen=True, slots=True)
class AsFloat32(Tensor):
    """A tensor of a file as float32, with a low-rank update added if it has one."""

    source: Tensor
    factors: Factors | None = None

    def values(self, first: int = 0, count: int | None = None) -> npt.NDArray[np.float64]:
        """See :meth:`Tensor.values`."""
        count = self.elements - first if count is None else count
        values = self.source.values(first, count)
        if self.factors is not None and count:
            width = self.shape[-1]
            top = first // width
            rows = self.factors.rows(top, -(-(first + count) // width) - top).ravel()
            values = values + rows[first - top * width :][:count]
        return values

    def read(self, first: int = 0, count: int | None = None) -> bytes:
        """See :meth:`Tensor.read`."""
        return encode(self.values(first, count), self.dtype)


def _as_float32(name: str, source: Tensor, factors: Factors | None = None) -> AsFloat32:
    path = source.path if factors is None else factors.left.path
    return AsFloat32(name, "F32", source.shape, path, source.begin, source, factors)


def adapted(base: Checkpoint, adapter: Checkpoint) -> tuple[Checkpoint, Checkpoint]:
    """(base, base with the adapter on it): one set of tensors but for those that the adapter changes.

    Raises:
        ValueError: the adapter is none of this base, or of a kind that this is not true of; names file and tensor.
    """
    _check_kind(base, adapter)
    on: dict[str, Tensor] = {}
    for module, parts in adapter_modules(adapter).items():
        saved = {key.removeprefix("saved "): tensor for key, tensor in parts.items() if key.startswith("saved ")}
        for stored, tensor in saved.items():
            name = stored.removeprefix("base_model.model.").replace(".base_layer.", ".")
            _check_fits(base, name, tensor.shape, tensor)
            on[name] = _as_float32(name, tensor)
        if len(saved) < len(parts):
            name = f"{module}.weight"
            factors = _factors(adapter, module, parts)
            _check_fits(base, name, factors.shape, factors.left)
            on[name] = _as_float32(name, base.tensors[name], factors)
    tied = [name for name in on if ties_head(base.config) and name.endswith(("embed_tokens.weight", "lm_head.weight"))]
    if tied:
        raise ValueError(
            f"{on[tied[0]].path}: changes {tied[0]}, which {base.folder} ties to its head; merge the adapter first"
        )
    off: dict[str, Tensor] = {name: _as_float32(name, base.tensors[name]) for name in on}
    return replace(base, tensors=base.tensors | off), replace(base, tensors=base.tensors | on)


def open_pair(base: Path, policy: Path) -> tuple[Checkpoint, Checkpoint]:
    """(base, policy): two whole checkpoints, or a model and a LoRA adapter on it; one object twice for one folder.

    Raises:
        ValueError: the two are not a pair; one line that names the file and the tensor.
    """
    ours = open_checkpoint(base)
    if policy.resolve() == base.resolve():
        return ours, ours
    theirs = open_checkpoint(policy)
    if is_adapter(policy) and not is_adapter(base):
        return adapted(ours, theirs)
    check_pair(ours, theirs)
    return ours, with_shared_tower(ours, theirs)


def with_shared_tower(ours: Checkpoint, theirs: Checkpoint) -> Checkpoint:
    """``theirs`` with the very tensor objects of ``ours`` for the vision tower, where the bytes of all of it are equal.

    Training on text carries the tower along: it did not move, no graft of it does anything, and random controls drawn
    from it would move nothing.
    """
    tower = [name for name in ours.tensors if name.startswith(PREFIX)]
    if not tower or not all(_equal(ours.tensors[name], theirs.tensors[name]) for name in tower):
        return theirs
    return replace(theirs, tensors=theirs.tensors | {name: ours.tensors[name] for name in tower})


def _equal(one: Tensor, other: Tensor) -> bool:
    return all(one.read(first, count) == other.read(first, count) for first, count in one.chunks())


def switched(one: Checkpoint, other: Checkpoint) -> frozenset[str]:
    """The tensors in which a pair may differ: those that are not one and the same object."""
    return frozenset(name for name, tensor in one.tensors.items() if other.tensors[name] is not tensor)


def _check_kind(base: Checkpoint, adapter: Checkpoint) -> None:
    path, config = adapter.folder / "adapter_config.json", adapter.config
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise ValueError(f"{path}: peft_type is {kind}, not LORA; merge the adapter into a copy of {base.folder} first")
    for key in _VARIANTS:
        if config.get(key):
            raise ValueError(f"{path}: {key} is set, so it is no W + scale * B A; merge it into a copy of its base")
    start = str(config.get("init_lora_weights", ""))
    if start.startswith(_REWRITES_THE_BASE):
        raise ValueError(f"{path}: init_lora_weights {start} rewrites the base; save the adapter as plain LoRA")


def _factors(adapter: Checkpoint, module: str, parts: dict[str, Tensor]) -> Factors:
    turned = "lora_embedding_A" in parts
    names = ("lora_embedding_B", "lora_embedding_A") if turned else ("lora_B", "lora_A")
    unknown = sorted(key for key in parts if key not in names and not key.startswith("saved "))
    missing = [name for name in names if name not in parts]
    if unknown or missing:
        what = f"{unknown[0]} beside its factors" if unknown else f"no {missing[0]}"
        raise ValueError(f"{adapter.folder}: module {module} has {what}: not W + scale * B A")
    left, right = parts[names[0]], parts[names[1]]
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"{left.path}: module {module}: factors {left.shape} and {right.shape} have no product")
    return Factors(left, right, module_scale(adapter.config, module), turned)


def _check_fits(base: Checkpoint, name: str, shape: tuple[int, ...], tensor: Tensor) -> None:
    if name not in base.tensors:
        raise ValueError(f"{tensor.path}: tensor {tensor.name} changes {name}, which {base.folder} does not have")
    if base.tensors[name].shape != shape:
        raise ValueError(
            f"{tensor.path}: tensor {tensor.name} has an update of shape {shape} for {name} of shape "
            f"{base.tensors[name].shape}; this is the adapter of another base"
        )
