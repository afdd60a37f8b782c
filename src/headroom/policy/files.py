"""Is this folder a checkpoint that can be read? Answered from names, sizes and headers, before any library loads.

Weights are safetensors only: a pickle can run code when it is read, so it never is. No torch here, so that a command
can refuse a bad path at once.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom.policy.numbers import check_numbers
from headroom.policy.vision import check_vision, text_config

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3_vl")
"""``model_type`` of the configurations whose decoder layers ``headroom.policy.forward`` can run."""

WEIGHTS = "model.safetensors"
GENERATION = "generation_config.json"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
}  # fmt: skip
"""Bits of an item by the format's names."""
_LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors library


def check_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the parsed ``config.json`` of a checkpoint folder that can be loaded.

    Pickled files beside whole safetensors weights (an optimiser's state, say) are left unread.

    Raises:
        ValueError: it cannot; the message is one line with the file, what is wrong with it, and the remedy.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such checkpoint folder; give a folder with config.json and {WEIGHTS}")
    config = _config(folder)
    generation = folder / GENERATION
    if generation.is_file():
        _check_generation(generation)
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weight_files(folder):
        shapes |= tensor_shapes(path)
    rows = next((shape[0] for name, shape in shapes.items() if name.endswith("embed_tokens.weight")), None)
    said = text_config(config).get("vocab_size")
    if rows is not None and rows != said:
        raise ValueError(
            f"{folder / 'config.json'}: vocab_size is {said}, but the weights hold {rows} tokens; "
            "the files belong to two different checkpoints"
        )
    check_numbers(folder / "config.json", text_config(config), shapes)
    if config["model_type"] == "qwen3_vl":
        check_vision(folder, config, shapes)
    return config


def _config(folder: Path) -> dict[str, Any]:
    path, adapter = folder / "config.json", folder / "adapter_config.json"
    if adapter.is_file():
        raise ValueError(f"{adapter}: the folder holds an adapter; merge it into its base model first")
    if not path.is_file():
        raise ValueError(f"{path}: missing; the folder is not a Hugging Face checkpoint")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); copy the checkpoint again") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path}: holds no settings; copy the checkpoint again")
    kind = config.get("model_type")
    if "auto_map" in config:
        raise ValueError(
            f"{path}: auto_map asks for code from outside, which is never run; use a built-in architecture"
        )
    if kind not in ARCHITECTURES:
        raise ValueError(f"{path}: model_type {kind!r} is not supported; known are {', '.join(ARCHITECTURES)}")
    if kind == "qwen3_vl" and not isinstance(config.get("text_config"), dict):
        raise ValueError(f"{path}: model_type 'qwen3_vl' without a text_config; copy the checkpoint again")
    if text_config(config).get("use_sliding_window"):
        raise ValueError(f"{path}: use_sliding_window is not supported; set it to false or use another checkpoint")
    if config.get("quantization_config"):
        raise ValueError(f"{path}: quantised weights are not supported; use the full-precision checkpoint")
    return config


def _check_generation(path: Path) -> None:
    try:
        ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); copy the checkpoint again") from error
    for end in ends if isinstance(ends, list) else [ends]:
        if end is not None and type(end) is not int:
            raise ValueError(
                f"{path}: eos_token_id holds {str(end)[:40]!r}, which is no token; copy the checkpoint again"
            )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, one or several.

    Raises:
        ValueError: there is none, or the index names one that is missing.
    """
    index = folder / INDEX
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"{index}: cannot be read ({error!r}); copy the checkpoint again") from error
        for name in names:
            if Path(name).name != name or not (folder / name).is_file():
                raise ValueError(f"{folder / name}: missing, though {INDEX} names it; copy the checkpoint again")
        return [folder / name for name in names]
    pickled = sorted(path for path in folder.iterdir() if path.suffix in PICKLES)
    if pickled:
        raise ValueError(f"{pickled[0]}: pickled weights are never read; convert the checkpoint to safetensors")
    raise ValueError(f"{folder / WEIGHTS}: missing; the folder holds no weights")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a tensor lies: ``size`` bytes from the absolute offset ``begin`` of its file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    size: int


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of a safetensors file, from its header.

    Raises:
        ValueError: the file's length does not fit its header (a cut download, a full disk).
    """
    return {name: stored.shape for name, stored in stored_tensors(path).items()}


def stored_tensors(path: Path) -> dict[str, Stored]:
    """Name -> place of every tensor of a safetensors file, from its header.

    Raises:
        ValueError: as :func:`tensor_shapes`.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, _LONGEST_HEADER):
                raise ValueError("the header is longer than the file")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        found = {
            name: Stored(
                str(entry["dtype"]),
                tuple(entry["shape"]),
                8 + length + entry["data_offsets"][0],
                entry["data_offsets"][1] - entry["data_offsets"][0],
            )
            for name, entry in header.items()
        }
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"{path}: damaged or truncated ({error}); copy it again") from error
    for name, stored in found.items():
        items = math.prod(stored.shape) if all(isinstance(n, int) and n >= 0 for n in stored.shape) else -1
        width = _BITS.get(stored.dtype)
        if width is None or stored.begin < 8 + length or items * width != stored.size * 8:
            raise ValueError(
                f"{path}: damaged, the header says {stored.dtype} {list(stored.shape)} in {stored.size} bytes "
                f"of {name[:80]!r}; copy it again"
            )
    end = max((stored.begin + stored.size for stored in found.values()), default=8 + length)
    if size != end:
        raise ValueError(f"{path}: truncated, {size} of {end} bytes; copy it again")
    return found
