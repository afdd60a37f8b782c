"""What a graft puts where: for each tensor of the base, which bytes come out, one chunk at a time.

Two edits exist. A :class:`Swap` takes the named tensors from the donor and everything else from the base.
A :class:`RandomControl` is its null: as many parameters as the grafted group has, at places that carry no
information, moved from the base towards the donor by as much as the group moves. It is built so:

* a random subset of single parameters of the whole model, of exactly the group's size, stratified so that each
  tensor (and each chunk of it) gives in proportion to its size; single parameters, because rows or whole tensors
  would put the change back into few units, which is what a graft does and a control must not do;
* base + scale * (donor - base) on the subset, the base elsewhere, with scale = ||delta of the group|| / ||delta of
  the subset||, so that count and norm both match. The scale is reported: far above 1, the control overshoots the
  donor, and below 1 it stops short of it.

The group's own parameters are not kept out of the subset: a group that holds most of the model would leave nothing
to draw from. The streaming writer and the in-memory overlay both consume :func:`edited`, so they cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headroom.measure.weights import Checkpoint, encode
from headroom.seeds import generator

# Keys of config.json that say how a file was saved, not which network it holds.
_SAVING_KEYS = frozenset({"transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache"})


@dataclass(frozen=True, slots=True)
class Swap:
    """These tensors from the donor, the others from the base."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class RandomControl:
    """``parameters`` randomly placed parameters moved by ``scale`` times their way to the donor."""

    parameters: int
    scale: float
    seed: int


Edit = Swap | RandomControl


def check_pair(base: Checkpoint, donor: Checkpoint) -> None:
    """Refuse two checkpoints that are not the same network.

    Raises:
        ValueError: a key of the configuration, a tensor's presence, dtype or shape differs; names file and tensor.
    """
    keys = (set(base.config) | set(donor.config)) - _SAVING_KEYS
    # Plain values first: a number of layers says more than the list that follows from it.
    for key in sorted(keys, key=lambda key: (isinstance(base.config.get(key), (list, dict)), key)):
        if _bare(base.config.get(key)) != _bare(donor.config.get(key)):
            raise ValueError(
                f"{donor.folder / 'config.json'}: another architecture than {base.folder}: "
                f"{key} is {donor.config.get(key)!r}, not {base.config.get(key)!r}"
            )
    for name in sorted(set(base.tensors) | set(donor.tensors)):
        if name not in donor.tensors:
            raise ValueError(f"{donor.folder}: tensor {name} is missing; {base.tensors[name].path} has it")
        if name not in base.tensors:
            raise ValueError(f"{donor.tensors[name].path}: tensor {name} is not in {base.folder}")
        ours, theirs = base.tensors[name], donor.tensors[name]
        for what in ("shape", "dtype"):
            if getattr(ours, what) != getattr(theirs, what):
                raise ValueError(
                    f"{theirs.path}: tensor {name} has {what} {getattr(theirs, what)}, "
                    f"{ours.path} has {getattr(ours, what)}"
                )


def _bare(value: Any) -> Any:
    """A configuration value without the keys that only say how it was saved, at any depth."""
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items() if key not in _SAVING_KEYS}
    return value


def delta_norm(base: Checkpoint, donor: Checkpoint, names: Collection[str]) -> float:
    """||donor - base|| over the parameters of ``names`` (aliases counted once), in float64."""
    owned = sorted({base.aliases.get(name, name) for name in names})
    return math.sqrt(sum(_square(delta) for name in owned for delta in _deltas(base, donor, name)))


def random_control(base: Checkpoint, donor: Checkpoint, *, parameters: int, norm: float, seed: int) -> RandomControl:
    """The control of ``parameters`` parameters whose delta has the given norm; one pass over both checkpoints.

    Raises:
        ValueError: more parameters than the model has, or the random subset did not move at all.
    """
    total = _total(base, donor)
    if not 0 <= parameters <= total:
        raise ValueError(f"a control of {parameters} parameters cannot be drawn from {total}")
    square = 0.0
    for name, offset in _offsets(base, donor).items():
        pieces = zip(base.tensors[name].chunks(), _deltas(base, donor, name), strict=True)
        for index, ((first, count), delta) in enumerate(pieces):
            square += _square(delta[_places(name, index, offset + first, count, parameters, total, seed)])
    if square == 0.0 and norm > 0.0:
        raise ValueError(f"{donor.folder}: the random subset of {parameters} parameters equals {base.folder}")
    return RandomControl(parameters, norm / math.sqrt(square) if square else 1.0, seed)


def edited(edit: Edit, base: Checkpoint, donor: Checkpoint, name: str) -> Iterator[bytes]:
    """The raw bytes of one tensor of the result, in consecutive chunks, in the base's dtype."""
    owner = base.aliases.get(name, name)
    if isinstance(edit, Swap):
        source = (donor if owner in edit.names or name in edit.names else base).tensors[owner]
        for first, count in source.chunks():
            yield source.read(first, count)
        return
    ours, theirs = base.tensors[owner], donor.tensors[owner]
    total, offset = _total(base, donor), _offsets(base, donor).get(owner)
    for index, (first, count) in enumerate(ours.chunks()):
        data = ours.read(first, count)
        if offset is None:  # not a real-valued tensor: it has no direction to move in
            yield data
            continue
        chosen = _places(owner, index, offset + first, count, edit.parameters, total, edit.seed)
        values = ours.values(first, count)
        # Only the chosen elements are written anew: the others keep their bytes, NaN payloads and signed zeros too.
        values[chosen] += edit.scale * (theirs.values(first, count)[chosen] - values[chosen])
        item = len(data) // count
        out = np.frombuffer(data, dtype=np.dtype((np.void, item))).copy()
        out[chosen] = np.frombuffer(encode(values[chosen], ours.dtype), dtype=out.dtype)
        yield out.tobytes()


def _square(values: npt.NDArray[np.float64]) -> float:
    return float(np.dot(values, values))


def _deltas(base: Checkpoint, donor: Checkpoint, name: str) -> Iterator[npt.NDArray[np.float64]]:
    ours, theirs = base.tensors[name], donor.tensors[name]
    if ours.real:
        for first, count in ours.chunks():
            yield theirs.values(first, count) - ours.values(first, count)


def _total(base: Checkpoint, donor: Checkpoint) -> int:
    return sum(base.tensors[name].elements for name in _offsets(base, donor))


def _offsets(base: Checkpoint, donor: Checkpoint) -> Mapping[str, int]:
    """Where each tensor that can change begins in the row of all their parameters, sorted by name."""
    offsets, position = {}, 0
    for name, tensor in base.parameters.items():
        if tensor.real and donor.tensors[name] is not tensor:  # an adapter leaves most tensors alone: nothing to draw
            offsets[name] = position
            position += tensor.elements
    return offsets


def _places(
    name: str, index: int, first: int, count: int, parameters: int, total: int, seed: int
) -> npt.NDArray[np.int64]:
    """The chosen elements of a chunk whose first element is number ``first`` of ``total``.

    The chunk gives floor((first + count) K / N) - floor(first K / N) elements: the shares are proportional and
    their sum over all chunks is exactly K.
    """
    share = (first + count) * parameters // total - first * parameters // total
    return generator("control", seed, name, index).choice(count, size=share, replace=False, shuffle=False)
