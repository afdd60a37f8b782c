"""The language part of a Qwen3-VL checkpoint for vLLM, as the plain Qwen3 that it is on text.

vLLM's own Qwen3-VL holds the vision tower in memory, makes room for images and needs the image libraries; none of that
does anything for a policy that reads text. So the engine gets a folder of its own: links to the checkpoint's weight
files, and a configuration of the decoder alone, whose class is vLLM's Qwen3 with the checkpoint's names translated.
The same names come with every sync and in every adapter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from headroom.files import write_json
from headroom.policy.decoder import rope_base
from headroom.policy.files import INDEX, weight_files
from headroom.policy.vision import PREFIX, text_config

ARCHITECTURE = "HeadroomQwen3VLLanguagePart"
_NAMES = {PREFIX: None, "model.language_model.": "model."}


def for_engine(folder: Path, view: Path) -> Path:
    """The folder that vLLM reads in the place of the checkpoint ``folder``: itself, or ``view``, which is filled."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "qwen3_vl":
        return folder
    text = dict(text_config(config))
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    rope = {"rope_type": "default", "rope_theta": rope_base(text)}  # equal positions on all axes are plain ones
    dropped = {"rope_scaling", "rope_theta"}
    own = {"architectures": [ARCHITECTURE], "model_type": "qwen3", "tie_word_embeddings": tied, "rope_parameters": rope}
    write_json(view / "config.json", {name: value for name, value in text.items() if name not in dropped} | own)
    for path in [*weight_files(folder), folder / INDEX]:
        if path.is_file():
            (view / path.name).symlink_to(path.resolve())
    register()
    return view


def register() -> None:
    """Make the class known to vLLM, under :data:`ARCHITECTURE`."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM
    from vllm.model_executor.models.utils import WeightsMapper

    names = WeightsMapper(orig_to_new_prefix=_NAMES)

    class LanguagePart(Qwen3ForCausalLM):  # type: ignore[misc]
        """vLLM's Qwen3, reading the names of a Qwen3-VL checkpoint."""

        hf_to_vllm_mapper = names | Qwen3ForCausalLM.hf_to_vllm_mapper  # an adapter's names go through this one

        def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Any:
            return super().load_weights(names.apply(weights))

    ModelRegistry.register_model(ARCHITECTURE, LanguagePart)
