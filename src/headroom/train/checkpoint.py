"""Resume states: weights, optimiser and step in one safetensors file, written whole or not at all.

There is no random state to save: data order and sampling are functions of (seed, step) (see ``headroom.seeds``), so
the step is all that a resumed job needs to draw what an unbroken one would have drawn. Frozen parameters are not
written; the caller loads them from the same initial checkpoint. Everything that is not a tensor is JSON in the
file's own header, so a state is one rename: it exists entirely or it does not. No pickle is read.

A state holds whole tensors by name, whether or not they were sharded over processes when it was written: all processes
take part in writing one (the first holds the pen) and each reads its own share back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from headroom.files import atomic

KEPT = 2
"""States kept in a folder: the newest, and one to fall back on if it cannot be read."""

_log = logging.getLogger(__name__)


class Named(Protocol):
    """A model, or whatever else knows the trained parameters by name."""

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Each parameter once."""
        ...


def save(
    folder: Path,
    step: int,
    model: Named,
    optimiser: torch.optim.Optimizer,
    extra: dict[str, Any] | None = None,
    *,
    write: bool = True,
) -> Path:
    """Write the state after ``step`` finished steps to ``folder`` and delete all but the newest ``KEPT``.

    ``extra`` is any JSON value without NaN (rows of the step table so far, counters); floats survive exactly.
    Equal states give equal bytes. ``write`` is false in the processes that only give their shards.

    Raises:
        ValueError: ``extra`` is not JSON, or ``step`` is negative.
    """
    if step < 0:
        msg = f"a state after {step} steps cannot exist"
        raise ValueError(msg)
    tensors: dict[str, torch.Tensor] = {}

    def keep(name: str, value: torch.Tensor) -> None:
        entire = whole(value.detach())  # by all processes, in one order
        if write:
            tensors[name] = entire.cpu()

    for name, parameter in _trained(model).items():
        keep(f"model.{name}", parameter)
    state = optimiser.state_dict()
    plain: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                keep(f"optimiser.{index}.{key}", value)
            else:
                plain.setdefault(str(index), {})[key] = value
    header = {"step": step, "extra": extra or {}, "groups": state["param_groups"], "plain": plain}
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    path = folder / f"step-{step:08d}.safetensors"
    if not write:
        return path
    with atomic(path) as part:
        save_file({name: value.contiguous() for name, value in tensors.items()}, part, metadata={"headroom": text})
    for old in _states(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    for leftover in folder.glob(".step-*.part"):  # of a process that was killed while it wrote
        leftover.unlink(missing_ok=True)
    return path


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that is sharded over processes, gathered (by all of them together); any other as it is."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def shard(value: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor that is sharded over processes; any other as it is."""
    return value.to_local() if hasattr(value, "to_local") else value


def _share(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This process's shard of a whole tensor, laid out as ``like`` is."""
    if not hasattr(like, "full_tensor") or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(value.to(like.device), sharded.device_mesh, sharded.placements)


def latest(folder: Path, model: Named, optimiser: torch.optim.Optimizer) -> tuple[int, dict[str, Any]] | None:
    """Restore the newest readable state of ``folder`` into ``model`` and ``optimiser`` in place.

    Returns (finished steps, ``extra``), or None when there is no readable state (then nothing was changed). A file
    that is truncated or damaged is skipped with a warning, and the next older one is used.

    Raises:
        ValueError: a readable state belongs to another model or optimiser.
    """
    for path in _states(folder):
        try:
            header, tensors = _read(path)
        except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
            _log.warning("%s: skipped, it cannot be read (%s); an older state is used if there is one", path, error)
            continue
        _restore(path, header, tensors, model, optimiser)
        return int(header["step"]), dict(header["extra"])
    return None


def _trained(model: Named) -> dict[str, nn.Parameter]:
    """Trainable parameters by name; tied ones once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _states(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"), reverse=True)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as stream:
        header: dict[str, Any] = json.loads((stream.metadata() or {})["headroom"])
        # A clone, so that no tensor is a view of a file that is deleted two states later.
        return header, {name: stream.get_tensor(name).clone() for name in stream.keys()}  # noqa: SIM118 (not a dict)


def _restore(
    path: Path,
    header: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    model: Named,
    optimiser: torch.optim.Optimizer,
) -> None:
    parameters = _trained(model)
    saved = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    shapes = {name: tuple(value.shape) for name, value in saved.items()}
    if shapes != {name: tuple(value.shape) for name, value in parameters.items()}:
        msg = f"{path}: the state of another model; delete the folder to start again"
        raise ValueError(msg)
    ordered = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {int(index): dict(entries) for index, entries in header["plain"].items()}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, index, key = name.split(".", 2)
            like = ordered[int(index)] if int(index) < len(ordered) else value
            state.setdefault(int(index), {})[key] = _share(value, like)
    groups = [
        {key: tuple(value) if isinstance(value, list) and key != "params" else value for key, value in group.items()}
        for group in header["groups"]
    ]
    try:
        optimiser.load_state_dict({"state": state, "param_groups": groups})
    except ValueError as error:
        msg = f"{path}: the state of another optimiser ({error}); delete the folder to start again"
        raise ValueError(msg) from error
    with torch.no_grad():
        for name, value in saved.items():
            parameters[name].copy_(_share(value, parameters[name]))
