"""How far the weights moved, and in how many directions: by tensor, by parameter group, and as a whole.

    relative movement of a group = ||W' - W||_F / ||W||_F over the group's parameters, tied ones counted once
    share of squared movement    = ||delta of the group||^2 / ||delta of the model||^2

and of every two-dimensional update the effective rank, participation ratio and stable rank. An update is only as
sharp as the masters it is read from: the difference of two bfloat16 checkpoints is mostly rounding (a rank-8 update
at 1e-3 of the norm measures a rank of hundreds), so ``sharp`` says whether both are float32 or the update comes
from LoRA factors, and a rank that is not sharp is not to be believed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from headroom.measure import groups
from headroom.measure.adapted import AsFloat32
from headroom.measure.edit import check_pair
from headroom.measure.spectrum import Moments, Ranks, matrix_ranks, ranks
from headroom.measure.weights import CHUNK_ELEMENTS, Checkpoint, Tensor

COLUMNS = [
    "scope",
    "name",
    "group",
    "layer",
    "parameters",
    "norm",
    "delta_norm",
    "relative_movement",
    "share_of_squared_movement",
    "effective_rank",
    "participation_ratio",
    "stable_rank",
    "dtype",
    "sharp",
]
_NONE = Ranks(math.nan, math.nan, math.nan)


def weight_drift(reference: Checkpoint, policy: Checkpoint, *, spectrum_up_to: int = 8192) -> pd.DataFrame:
    """One row a tensor, a group and the model (``scope``), with the columns of :data:`COLUMNS`.

    ``layer`` is -1 outside the blocks. Rows of groups and of the model have no ranks. The two may be a base and the
    base with a LoRA adapter on it (:func:`headroom.measure.adapted.open_pair`): norm and ranks of an update then come
    from its factors, exactly.

    Raises:
        ValueError: the two are not one architecture; names file and tensor.
    """
    check_pair(reference, policy)
    places = groups.places(reference.parameters)
    rows = []
    for name, ours in reference.parameters.items():
        if not ours.real:
            continue
        theirs = policy.tensors[name]
        factors = theirs.factors if isinstance(theirs, AsFloat32) else None
        square = delta_square = 0.0
        for first, count in ours.chunks():
            before = ours.values(first, count)
            square += float(before @ before)
            if factors is None:
                delta = theirs.values(first, count) - before
                delta_square += float(delta @ delta)
        if factors is None:
            found = _delta_ranks(ours, theirs, spectrum_up_to)
        else:
            squared = factors.squared_singular_values()
            found, delta_square = ranks(squared), float(squared.sum())
        where = places[name]
        layer = -1 if where.layer is None else where.layer
        dtype = theirs.source.dtype if isinstance(theirs, AsFloat32) else theirs.dtype
        sharp = factors is not None or theirs is ours or dtype in ("F32", "F64")
        moved = (square, delta_square, found, dtype, sharp)
        rows.append(_row("tensor", name, where.component, layer, ours.elements, *moved))
    return _with_groups(pd.DataFrame(rows))


def _delta_ranks(ours: Tensor, theirs: Tensor, spectrum_up_to: int) -> Ranks:
    """Ranks of one update, streamed along the longer side so that memory is the shorter side squared."""
    if len(ours.shape) != 2 or not 1 <= min(ours.shape) <= spectrum_up_to:
        return _NONE
    if theirs is ours:
        return Ranks(0.0, 0.0, 0.0)
    height, width = ours.shape
    if height < width:  # rows are the shorter side: one Gram matrix of the whole, which then fits in memory
        delta = (theirs.values() - ours.values()).reshape(ours.shape)
        return matrix_ranks(delta)
    moments = Moments(width)
    rows = max(1, CHUNK_ELEMENTS // width)
    for first in range(0, height, rows):
        count = min(rows, height - first)
        span = (first * width, count * width)
        moments.add((theirs.values(*span) - ours.values(*span)).reshape(count, width))
    return moments.ranks(centred=False)


def _row(
    scope: str,
    name: str,
    group: str,
    layer: int,
    parameters: int,
    square: float,
    delta_square: float,
    found: Ranks,
    dtype: str,
    sharp: bool,
) -> dict[str, object]:
    return {
        "scope": scope,
        "name": name,
        "group": group,
        "layer": layer,
        "parameters": parameters,
        "norm": math.sqrt(square),
        "delta_norm": math.sqrt(delta_square),
        "relative_movement": math.sqrt(delta_square / square) if square else math.nan,
        "share_of_squared_movement": math.nan,
        "effective_rank": found.effective_rank,
        "participation_ratio": found.participation_ratio,
        "stable_rank": found.stable_rank,
        "dtype": dtype,
        "sharp": sharp,
    }


def _with_groups(tensors: pd.DataFrame) -> pd.DataFrame:
    """Add the rows of groups (by component) and of the model, and everybody's share of the squared movement."""
    total = float((tensors["delta_norm"] ** 2).sum())
    rows = [_sum_row("group", group, group, tensors[tensors["group"] == group]) for group in _present(tensors["group"])]
    rows.append(_sum_row("model", "model", "", tensors))
    table = pd.concat([tensors, pd.DataFrame(rows)], ignore_index=True)
    table["share_of_squared_movement"] = table["delta_norm"] ** 2 / total if total else math.nan
    return table[COLUMNS]


def _present(found: Iterable[str]) -> list[str]:
    names = set(found)
    return [group for group in groups.COMPONENTS if group in names]


def _sum_row(scope: str, name: str, group: str, members: pd.DataFrame) -> dict[str, object]:
    square, moved = (float((members[column] ** 2).sum()) for column in ("norm", "delta_norm"))
    dtypes, sharp = "+".join(sorted(set(members["dtype"]))), bool(members["sharp"].all())
    return _row(scope, name, group, -1, int(members["parameters"].sum()), square, moved, _NONE, dtypes, sharp)
