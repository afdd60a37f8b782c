"""The vision tower of a Qwen3-VL checkpoint, which no text passes through: checked by name, carried byte for byte.

On the text track no input holds an image, so the tower's weights (``model.visual.*``) have no gradient and change no
logit. They are therefore never read into memory: a saved checkpoint gets them as a second weight file, streamed from
the checkpoint that the policy was loaded from, beside the processor's files, so that the folder still loads in
``Qwen3VLForConditionalGeneration`` and sees images as before. No torch here, as in :mod:`headroom.policy.files`.

Names and shapes are those of ``transformers`` (arXiv 2511.21631 describes the tower); a test holds them to it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headroom.policy.files import Stored

PREFIX = "model.visual."
"""Of the tower's tensors, the mergers included."""

LANGUAGE_FILE, VISION_FILE = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
"""The weight files of a saved checkpoint."""

PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "chat_template.json",
)
"""What a Qwen3-VL checkpoint holds for its images; the tokenizer's own files are the codec's to write."""

_CHUNK = 1 << 24  # bytes copied at a time


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a ``config.json`` that describes the decoder: ``text_config``, or all of it."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def vision_shapes(vision: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of the tower that a ``vision_config`` describes.

    Raises:
        KeyError, TypeError, ValueError: a setting is missing or no number.
    """
    width, inner, out = (int(vision[name]) for name in ("hidden_size", "intermediate_size", "out_hidden_size"))
    merged = width * int(vision["spatial_merge_size"]) ** 2
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, wide: int, narrow: int) -> None:
        found[f"{PREFIX}{name}.weight"], found[f"{PREFIX}{name}.bias"] = (wide, narrow), (wide,)

    def norm(name: str, size: int) -> None:
        found[f"{PREFIX}{name}.weight"], found[f"{PREFIX}{name}.bias"] = (size,), (size,)

    def merger(name: str, normed: int) -> None:
        norm(f"{name}.norm", normed)
        linear(f"{name}.linear_fc1", merged, merged)
        linear(f"{name}.linear_fc2", out, merged)

    patch = (int(vision["temporal_patch_size"]), int(vision["patch_size"]), int(vision["patch_size"]))
    found[f"{PREFIX}patch_embed.proj.weight"] = (width, int(vision["in_channels"]), *patch)
    found[f"{PREFIX}patch_embed.proj.bias"] = (width,)
    found[f"{PREFIX}pos_embed.weight"] = (int(vision["num_position_embeddings"]), width)
    for block in range(int(vision["depth"])):
        for name in ("norm1", "norm2"):
            norm(f"blocks.{block}.{name}", width)
        for name, wide, narrow in (
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.linear_fc1", inner, width),
            ("mlp.linear_fc2", width, inner),
        ):
            linear(f"blocks.{block}.{name}", wide, narrow)
    merger("merger", width)
    for index in range(len(vision["deepstack_visual_indexes"])):
        merger(f"deepstack_merger_list.{index}", merged)  # normed after its patches were put side by side
    return found


def check_vision(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a Qwen3-VL checkpoint whose tower is not all there: what is saved of it would load nowhere.

    Args:
        folder: the checkpoint, for the message.
        config: its ``config.json``.
        shapes: name -> shape of all its tensors.

    Raises:
        ValueError: a tensor is missing, of another shape, or one too many; one line.
    """
    where = folder / "config.json"
    try:
        wanted = vision_shapes(config["vision_config"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: vision_config does not describe a vision tower ({error!r}); copy it again"
        ) from error
    found = {name: shape for name, shape in shapes.items() if name.startswith(PREFIX)}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        first = wrong[0]
        what = "is missing" if first not in found else f"has shape {found[first]}, not {wanted.get(first)}"
        raise ValueError(
            f"{where}: {len(wrong)} weights of the vision tower do not fit vision_config ({first} {what}); the text "
            "track carries the tower along unchanged: copy the whole released checkpoint, all its weight files"
        )


def carry(source: Path, target: Path) -> dict[str, int]:
    """Write the tower of the checkpoint ``source`` to ``target`` as its second weight file, and copy its processor's.

    Returns:
        Name -> bytes of each tensor written. Equal towers give equal bytes, however the source is split into files.

    Raises:
        ValueError: ``source`` is gone, damaged, or holds no tower.
    """
    from headroom.policy.files import stored_tensors, weight_files

    found: dict[str, tuple[Path, Stored]] = {}
    if source.is_dir():
        for path in weight_files(source):
            found |= {name: (path, at) for name, at in stored_tensors(path).items() if name.startswith(PREFIX)}
    if not found:
        raise ValueError(f"{source}: holds no vision tower any more, and the policy came from there; put it back")
    # The format's own order: wide numbers first, so that each is aligned, then by name.
    order = sorted(found, key=lambda name: (-_item_bytes(found[name][1].dtype), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        at = found[name][1]
        header[name] = {"dtype": at.dtype, "shape": list(at.shape), "data_offsets": [end, end + at.size]}
        end += at.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with (target / VISION_FILE).open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            path, at = found[name]
            for chunk in _bytes_of(path, at.begin, at.size):
                stream.write(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    for extra in PROCESSOR_FILES:
        if (source / extra).is_file():
            shutil.copyfile(source / extra, target / extra)
    return {name: found[name][1].size for name in order}


def _bytes_of(path: Path, begin: int, size: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        stream.seek(begin)
        while size:
            chunk = stream.read(min(size, _CHUNK))
            if not chunk:
                raise ValueError(f"{path}: truncated while it was copied; copy the checkpoint again")
            size -= len(chunk)
            yield chunk


def _item_bytes(dtype: str) -> int:
    """Of a safetensors dtype: F32 -> 4, BF16 -> 2, F8_E4M3 -> 1, BOOL -> 1."""
    digits = dtype.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ").partition("_")[0]
    return int(digits) // 8 if digits else 1
