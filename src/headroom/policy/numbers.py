"""The numbers of a ``config.json``, checked before any of them becomes the size of an allocation.

The weights are the measure: their headers say how many blocks there are and how wide, at no cost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_Count = Annotated[int, Field(gt=0)]
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION = "visual."


class _Rope(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    rope_type: str = "default"
    rope_theta: float | None = Field(None, gt=0)


class DecoderNumbers(BaseModel):
    """What a decoder's settings must look like where they are given; which must be given is the reader's to say.

    A default is not validated, so that an absent key passes and a null does not.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    vocab_size: _Count
    hidden_size: _Count = Field(default=0)
    num_hidden_layers: _Count = Field(default=0)
    num_attention_heads: _Count = Field(default=0)
    num_key_value_heads: _Count = Field(default=0)
    head_dim: _Count | None = None
    intermediate_size: _Count = Field(default=0)
    max_position_embeddings: _Count | None = None
    rms_norm_eps: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.0)
    rope_theta: Annotated[float, Field(gt=0)] | None = None
    rope_parameters: _Rope | None = None
    hidden_act: str = ""
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    attention_bias: bool | None = None
    tie_word_embeddings: bool | None = None
    use_sliding_window: bool | None = None


def check_numbers(path: Path, settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Hold a decoder's settings to their types and to the weights.

    Args:
        path: of ``config.json``, for the message.
        settings: those of the decoder.
        shapes: name -> shape of every tensor of the checkpoint.

    Raises:
        ValueError: a value is of the wrong kind, or the weights have another number of blocks or another width; one
            line.
    """
    try:
        numbers = DecoderNumbers.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{path}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}, not {str(first['input'])[:60]!r}; "
            "copy the checkpoint again"
        ) from error
    heads, shared = numbers.num_attention_heads, numbers.num_key_value_heads
    if heads and shared and heads % shared:
        raise ValueError(
            f"{path}: num_attention_heads ({heads}) is no multiple of num_key_value_heads ({shared}); "
            "copy the checkpoint again"
        )
    own = {name: shape for name, shape in shapes.items() if not _is_vision(name)}
    blocks = 1 + max((int(found[1]) for name in own if (found := _BLOCK.search(name))), default=-1)
    if numbers.num_hidden_layers and blocks and numbers.num_hidden_layers != blocks:
        raise ValueError(
            f"{path}: num_hidden_layers is {numbers.num_hidden_layers}, but the weights hold {blocks} blocks; "
            "the files belong to two different checkpoints"
        )
    embedding = next((shape for name, shape in own.items() if name.endswith("embed_tokens.weight")), None)
    if embedding is not None and numbers.hidden_size and embedding[1:] != (numbers.hidden_size,):
        raise ValueError(
            f"{path}: hidden_size is {numbers.hidden_size}, but the weights' embedding is {embedding}; "
            "the files belong to two different checkpoints"
        )


def _is_vision(name: str) -> bool:
    return name.startswith(_VISION) or f".{_VISION}" in name
