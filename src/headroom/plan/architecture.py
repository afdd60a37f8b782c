"""The shape of a model: its parameters, counted on the meta device, where a tensor has a shape and no storage.

A released model's configuration stands in ``workflow/models/``, one file a model; its class is the library's own, so
the count is that of the checkpoint and not of a formula. The tiny models are built from their settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from headroom.config.models import Positive, PretrainedModel, Strict, TinyModel
from headroom.config.resolve import ConfigError, check, load_yaml
from headroom.policy.files import check_checkpoint

FOLDER = "workflow/models"
TINY_VOCABULARY = 512
"""Tokens of a tiny model's own vocabulary, which is made of its demonstrations: about as many."""


class ModelFile(Strict):
    """``workflow/models/<name>.yaml``."""

    hub: str = Field(pattern=r"^[\w.-]+/[\w.-]+$", description="Name on the hub.")
    parameters: Positive = Field(description="Of the released checkpoint, tied weights counted once.")
    architecture: dict[str, Any] = Field(description="Values of config.json that decide the shape.")


@dataclass(frozen=True)
class Shape:
    """What memory and time depend on. Parameters are counted once where weights are tied.

    ``block`` are the parameters of one decoder block, ``outside`` those of the embedding and the output layer,
    ``vision`` those that no text passes through; ``parameters`` is everything.
    """

    name: str
    kind: str
    parameters: int
    block: int
    outside: int
    vision: int
    layers: int
    width: int
    heads: int
    key_value_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int

    @property
    def language(self) -> int:
        """Parameters that are loaded and trained: a vision tower stays on disk (``headroom.policy.vision``)."""
        return self.parameters - self.vision

    @property
    def checkpoint(self) -> float:
        """Bytes of a saved one: float32, and the vision tower in bfloat16, as it was released."""
        return 4.0 * self.language + 2.0 * self.vision

    @property
    def blocks(self) -> int:
        """Parameters of all decoder blocks."""
        return self.block * self.layers

    @property
    def key_value_numbers(self) -> int:
        """Numbers that the cache holds for one token."""
        return 2 * self.layers * self.key_value_heads * self.head_width


def shape_files(project: Path) -> dict[str, ModelFile]:
    """Name -> content of every file of ``workflow/models/``.

    Raises:
        ConfigError: one cannot be read.
    """
    found = {}
    for path in sorted((project / FOLDER).glob("*.yaml")):
        name = f"{FOLDER}/{path.name}"
        found[path.stem] = check(ModelFile, load_yaml(path, name), name, "see ModelFile in headroom.plan.architecture")
    return found


def shape_of(model: TinyModel | PretrainedModel, project: Path) -> Shape:
    """Count a model of the settings.

    Raises:
        ConfigError: its shape is not known here, or its count is not the one of its file.
    """
    if isinstance(model, TinyModel):
        from headroom.policy.tiny import tiny_config

        return count("tiny", tiny_config(model, vocabulary=TINY_VOCABULARY, pad_id=0, end_ids=(1,)))
    folder = project / model.name_or_path
    if folder.is_dir():
        try:
            return count(model.name_or_path, check_checkpoint(folder))
        except ValueError as error:
            raise ConfigError(f"model.name_or_path: {error}") from error
    known = {file.hub: (name, file) for name, file in shape_files(project).items()}
    if model.name_or_path not in known:
        raise ConfigError(
            f"{FOLDER}: no file has hub: {model.name_or_path}; add one with the values of its config.json"
        )
    name, file = known[model.name_or_path]
    shape = count(name, file.architecture)
    if shape.parameters != file.parameters:
        raise ConfigError(
            f"{FOLDER}/{name}.yaml: parameters: says {file.parameters}, but its architecture has {shape.parameters}; "
            "copy the values of the released config.json again"
        )
    return shape


def count(name: str, architecture: dict[str, Any]) -> Shape:
    """Build the library's model of a configuration on the meta device and count it."""
    import torch
    import transformers

    library: Any = transformers
    values = {key: value for key, value in architecture.items() if key not in ("architectures", "dtype")}
    config = library.AutoConfig.for_model(**values)
    seeing = hasattr(config, "vision_config")
    maker = library.AutoModelForImageTextToText if seeing else library.AutoModelForCausalLM
    with torch.device("meta"):
        model = maker.from_config(config)
    model.tie_weights()
    text = config.text_config if seeing else config
    sizes = {key: value.numel() for key, value in model.named_parameters()}
    vision = sum(size for key, size in sizes.items() if ".visual." in key)
    blocks = [size for key, size in sizes.items() if ".layers." in key and ".visual." not in key]
    return Shape(
        name=name,
        kind=config.model_type,
        parameters=sum(sizes.values()),
        block=sum(blocks) // text.num_hidden_layers,
        outside=sum(sizes.values()) - vision - sum(blocks),
        vision=vision,
        layers=text.num_hidden_layers,
        width=text.hidden_size,
        heads=text.num_attention_heads,
        key_value_heads=text.num_key_value_heads,
        head_width=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        feed_forward=text.intermediate_size,
        vocabulary=text.vocab_size,
    )
