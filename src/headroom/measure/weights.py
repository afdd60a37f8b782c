"""A checkpoint as named tensors in files: safetensors headers first, bytes a chunk at a time, no whole model.

Nothing here loads a framework or a pickle. The format (an 8-byte little-endian header length, a JSON header, then
the tensors without gaps) is small enough to read directly, which keeps peak memory at one chunk whatever the size of
the checkpoint, and lets every fault be reported with the file and the tensor before anything is written.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CHUNK_ELEMENTS = 1 << 20
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_HEADER_LIMIT = 100_000_000  # the format's own bound
WEIGHT_FILES = ("model.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies: ``begin`` is an absolute byte offset in ``path``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    begin: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.elements * _ITEM_BYTES[self.dtype]

    @property
    def real(self) -> bool:
        """Whether it holds floating-point numbers that this project reads."""
        return self.dtype in _FLOATS or self.dtype == "BF16"

    def read(self, first: int = 0, count: int | None = None) -> bytes:
        """The raw bytes of ``count`` elements from element ``first``."""
        item = _ITEM_BYTES[self.dtype]
        wanted = (self.elements - first if count is None else count) * item
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self.begin + first * item)
            data = stream.read(wanted)
        if len(data) != wanted:
            raise ValueError(f"{self.path}: tensor {self.name} ends early; the file changed while it was read")
        return data

    def values(self, first: int = 0, count: int | None = None) -> npt.NDArray[np.float64]:
        """The same elements as float64 (count,); exact for every floating dtype."""
        return decode(self.read(first, count), self.dtype, self.name)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """(first element, count) of consecutive pieces of at most ``CHUNK_ELEMENTS``; none for an empty tensor."""
        for first in range(0, self.elements, CHUNK_ELEMENTS):
            yield first, min(CHUNK_ELEMENTS, self.elements - first)


def decode(data: bytes, dtype: str, name: str = "") -> npt.NDArray[np.float64]:
    """Raw bytes to float64 values.

    Raises:
        ValueError: the dtype is not a floating one.
    """
    if dtype == "BF16":
        return (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    if dtype not in _FLOATS:
        raise ValueError(f"tensor {name}: dtype {dtype} holds no real numbers")
    return np.frombuffer(data, dtype=_FLOATS[dtype]).astype(np.float64)


def encode(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """float64 values to raw bytes, rounded to nearest even."""
    if dtype != "BF16":
        return values.astype(_FLOATS[dtype]).tobytes()
    single = values.astype("<f4")
    bits = single.view("<u4").astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(single), np.uint16(0x7FC0), rounded).astype("<u2").tobytes()


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One safetensors file: its header, byte for byte, and its tensors in file order."""

    path: Path
    header: bytes
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder of weights: every tensor by name, the files they lie in, the model's configuration.

    ``aliases`` maps a tensor that is stored but tied (``lm_head.weight`` where the configuration ties it) to the
    tensor that owns the parameters: an alias has no parameters of its own and always gets its owner's values.
    """

    folder: Path
    files: tuple[WeightFile, ...]
    tensors: dict[str, Tensor]  # all that is stored, sorted by name, aliases included
    config: dict[str, Any]
    aliases: dict[str, str]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The tensors that own parameters: every tensor once, no alias."""
        return {name: tensor for name, tensor in self.tensors.items() if name not in self.aliases}

    @property
    def largest_file(self) -> int:
        """Bytes of the largest weight file."""
        return max(len(file.header) + sum(t.size for t in file.tensors) for file in self.files)


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read the headers of a checkpoint or adapter folder, single file or sharded; no tensor is read.

    Raises:
        ValueError: anything is missing, truncated or inconsistent; one line that names the file and the tensor.
    """
    paths = _weight_files(folder)
    files = tuple(_weight_file(path) for path in paths)
    seen: dict[str, Path] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in seen:
                raise ValueError(f"{file.path}: tensor {tensor.name} stands in {seen[tensor.name].name} too")
            seen[tensor.name] = file.path
    _check_index(folder, seen)
    config_path = folder / ("adapter_config.json" if (folder / "adapter_config.json").exists() else "config.json")
    config = _json_object(config_path)
    tensors = {tensor.name: tensor for file in files for tensor in file.tensors}
    return Checkpoint(folder, files, dict(sorted(tensors.items())), config, _aliases(config, list(seen)))


def _weight_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such checkpoint folder")
    for name in WEIGHT_FILES:
        if (folder / f"{name}.index.json").exists():
            index = _json_object(folder / f"{name}.index.json")
            names = index.get("weight_map")
            if not isinstance(names, dict) or not names:
                raise ValueError(f"{folder / name}.index.json: no weight_map; save the checkpoint again")
            for tensor, file in sorted(names.items()):
                if Path(str(file)).name != file or not (folder / file).is_file():
                    raise ValueError(f"{folder / str(file)}: missing, and tensor {tensor} should be in it")
            return sorted({folder / file for file in names.values()})
        if (folder / name).exists():
            return [folder / name]
    raise ValueError(f"{folder}: holds none of {', '.join(WEIGHT_FILES)}; weights are read from safetensors only")


def _check_index(folder: Path, seen: dict[str, Path]) -> None:
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        if index.exists():
            mapped = _json_object(index)["weight_map"]
            for tensor in sorted(set(mapped) | set(seen)):
                if tensor not in seen or mapped.get(tensor) != seen[tensor].name:
                    raise ValueError(f"{index}: tensor {tensor} is not where the index says; save the checkpoint again")


def _json_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value


def _weight_file(path: Path) -> WeightFile:
    size = path.stat().st_size
    with path.open("rb") as stream:
        prefix = stream.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(_HEADER_LIMIT, size - 8):
            raise ValueError(f"{path}: truncated or not safetensors: {size} bytes do not hold the header")
        body = stream.read(length)
    try:
        entries = json.loads(body)
        entries.pop("__metadata__", None)
        tensors = [
            (int(e["data_offsets"][0]), int(e["data_offsets"][1]), name, str(e["dtype"]), tuple(map(int, e["shape"])))
            for name, e in entries.items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"{path}: the header is not a safetensors header ({error})") from error
    start, expected, found = 8 + length, 0, []
    for begin, end, name, dtype, shape in sorted(tensors):
        if dtype not in _ITEM_BYTES:
            raise ValueError(f"{path}: tensor {name}: dtype {dtype} is not supported")
        tensor = Tensor(name, dtype, shape, path, start + begin)
        if begin != expected or end - begin != tensor.size:
            raise ValueError(f"{path}: tensor {name}: offsets {begin}..{end} do not fit dtype {dtype}, shape {shape}")
        if start + end > size:
            raise ValueError(f"{path}: truncated: tensor {name} needs {start + end} bytes, the file has {size}")
        expected = end
        found.append(tensor)
    if start + expected != size:
        raise ValueError(f"{path}: {size - start - expected} bytes after the last tensor; save the checkpoint again")
    return WeightFile(path, prefix + body, tuple(found))


def ties_head(config: dict[str, Any]) -> bool:
    """Whether a model's configuration makes the output matrix the embedding."""
    text = config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, dict) else None
    return bool(config.get("tie_word_embeddings", inner))


def _aliases(config: dict[str, Any], names: list[str]) -> dict[str, str]:
    heads = [n for n in names if n.endswith("lm_head.weight")]
    embeddings = [n for n in names if n.endswith("embed_tokens.weight")]
    return {heads[0]: embeddings[0]} if ties_head(config) and len(heads) == 1 and len(embeddings) == 1 else {}


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``output`` that takes its place on a clean exit and vanishes on any other.

    Raises:
        ValueError: ``output`` exists and is not an empty folder.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"{output}: exists already; name a new folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}.", suffix=".part"))
    try:
        yield part
        part.chmod(0o755)
        part.replace(output)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def copy_side_files(base: Checkpoint, output: Path) -> None:
    """Copy what a checkpoint folder holds besides weights: configuration, tokenizer, index."""
    weights = {file.path.name for file in base.files}
    for path in sorted(base.folder.iterdir()):
        if path.is_file() and path.name not in weights:
            shutil.copyfile(path, output / path.name)
