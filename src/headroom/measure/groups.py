"""Parameter groups as a checked partition of a checkpoint's tensors, from their names alone.

By component: ``embedding`` (a tied head is the same tensor and counts here, once), ``attention`` and ``mlp`` (every
tensor of those modules of the decoder blocks; the query and key norms live inside the attention module), ``norms``
(the norms between the modules and the last one), ``head`` (an untied output matrix), ``vision_tower`` and ``merger``.
By depth: the decoder blocks cut into bands of near-equal size from ``early`` to ``late``, with what lies outside the
blocks kept in its component.

A partition that misses a tensor would leave that tensor in the wrong model without a word, so leftovers are an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headroom.measure.weights import Checkpoint

COMPONENTS = ("embedding", "attention", "mlp", "norms", "head", "vision_tower", "merger")
BAND_NAMES = {1: ("all",), 2: ("early", "late"), 3: ("early", "middle", "late")}

# Prefixes of the wrappers that the same decoder comes in: plain, vision-language, inside a PEFT adapter.
_WRAPPER = r"^(?:base_model\.model\.)?(?:model\.)?(?:language_model\.)?(?:model\.)?"
_LAYER = re.compile(_WRAPPER + r"layers\.(?P<layer>\d+)\.(?P<module>.+)$")
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("merger", re.compile(r"^(?:base_model\.model\.)?(?:model\.)?visual\.(?:merger|deepstack_merger_list)\.")),
    ("vision_tower", re.compile(r"^(?:base_model\.model\.)?(?:model\.)?visual\.(?:patch_embed|pos_embed|blocks)\.")),
    ("embedding", re.compile(_WRAPPER + r"embed_tokens\.")),
    ("norms", re.compile(_WRAPPER + r"norm\.")),
    ("head", re.compile(r"^(?:base_model\.model\.)?(?:model\.)?(?:language_model\.)?lm_head\.")),
)
_MODULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"^(?:self_attn|attention|attn)\.")),
    ("mlp", re.compile(r"^(?:mlp|feed_forward|block_sparse_moe)\.")),
    ("norms", re.compile(r"^[a-z_]*(?:layernorm|norm)\.")),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor sits: its component, and its decoder block (None outside the blocks)."""

    component: str
    layer: int | None


def place(name: str) -> Place | None:
    """The place of one tensor, or None if no rule knows the name."""
    inside = _LAYER.match(name)
    if inside:
        for component, pattern in _MODULES:
            if pattern.match(inside["module"]):
                return Place(component, int(inside["layer"]))
        return None
    for component, pattern in _RULES:
        if pattern.match(name):
            return Place(component, None)
    return None


def places(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> dict[str, Place]:
    """The place of every tensor; an alias (a tied head) gets its owner's.

    Raises:
        ValueError: some names fit no rule; the message lists them.
    """
    owners = aliases or {}
    found = {name: place(owners.get(name, name)) for name in sorted(names)}
    leftovers = [name for name, where in found.items() if where is None]
    if leftovers:
        shown = ", ".join(leftovers[:10]) + (f" and {len(leftovers) - 10} more" if len(leftovers) > 10 else "")
        raise ValueError(f"{len(leftovers)} tensors belong to no parameter group: {shown}")
    return {name: where for name, where in found.items() if where is not None}


def by_component(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """Component -> sorted tensor names; empty components are absent. A partition of ``names``.

    Raises:
        ValueError: leftovers.
    """
    found = places(names, aliases)
    return _partition({name: where.component for name, where in found.items()}, COMPONENTS)


def by_depth(
    names: Iterable[str], bands: int = 3, aliases: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Depth band -> sorted tensor names, what lies outside the blocks under its component. A partition of ``names``.

    With L blocks, block l belongs to band floor(l * bands / L); bands that get no block are absent.

    Raises:
        ValueError: leftovers, fewer than one band, or more bands than blocks.
    """
    found = places(names, aliases)
    layers = 1 + max((where.layer for where in found.values() if where.layer is not None), default=-1)
    if not 1 <= bands <= max(layers, 1):
        raise ValueError(f"{bands} depth bands cannot be cut from {layers} blocks")
    labels = BAND_NAMES.get(bands, tuple(f"band_{index + 1}" for index in range(bands)))
    label = {
        name: where.component if where.layer is None else labels[where.layer * bands // layers]
        for name, where in found.items()
    }
    return _partition(label, (*labels, *COMPONENTS))


def select(checkpoint: Checkpoint, groups: Collection[str], bands: int = 3) -> frozenset[str]:
    """The tensors of a union of groups, components and depth bands alike.

    Raises:
        ValueError: a group that this checkpoint does not have; the message lists those it has.
    """
    known = available(checkpoint, bands)
    for group in groups:
        if group not in known:
            raise ValueError(f"{checkpoint.folder}: no parameter group {group!r}; it has {', '.join(known)}")
    return frozenset(name for group in groups for name in known[group])


def available(checkpoint: Checkpoint, bands: int = 3) -> dict[str, tuple[str, ...]]:
    """Every group of a checkpoint by name: the components, then the depth bands."""
    names = checkpoint.tensors
    components = by_component(names, checkpoint.aliases)
    depth = by_depth(names, min(bands, block_count(checkpoint)), checkpoint.aliases) if block_count(checkpoint) else {}
    return components | {name: members for name, members in depth.items() if name not in components}


def block_count(checkpoint: Checkpoint) -> int:
    """Number of decoder blocks."""
    layers = [where.layer for where in places(checkpoint.tensors, checkpoint.aliases).values()]
    return 1 + max((layer for layer in layers if layer is not None), default=-1)


def parameter_count(checkpoint: Checkpoint, names: Iterable[str]) -> int:
    """Parameters in a set of tensors, each counted once: an alias adds nothing to its owner."""
    owned = {checkpoint.aliases.get(name, name) for name in names}
    return sum(checkpoint.tensors[name].elements for name in owned)


def _partition(label: Mapping[str, str], order: Iterable[str]) -> dict[str, tuple[str, ...]]:
    groups = {group: tuple(name for name in label if label[name] == group) for group in order}
    groups = {group: members for group, members in groups.items() if members}
    covered = sorted(name for members in groups.values() for name in members)
    if covered != sorted(label):
        raise ValueError("the parameter groups are not a partition of the tensors")
    return groups
