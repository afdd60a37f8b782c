"""A model of random weights for ``headroom.cluster.gpu_check``: its shape, its weights, what it reads and plays."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headroom.agent.codec import EncodedPrompt
from headroom.agent.dialect import WEB_PAGES, Dialect
from headroom.plan.architecture import FOLDER, TINY_VOCABULARY, shape_files
from headroom.policy.decoder import Decoder, known
from headroom.provenance.project import root
from headroom.seeds import derive
from headroom.train.batch import Example
from headroom.worlds.base import Element, History, Observation, Outcome, World

TASKS = ("click-button", "click-dialog-2", "enter-text", "login-user")
PAGES = (100, 101)
END = 1
Ids = npt.NDArray[np.int32]


def shape_config(shape: str) -> dict[str, Any]:
    """``config.json`` of a shape: ``tiny``, or a model of ``workflow/models`` that this project's decoder computes.

    Raises:
        ValueError: there is no such model, or it is none that reads text alone.
    """
    files = shape_files(root())
    if shape == "tiny":
        return {
            **files["qwen3-4b"].architecture, "vocab_size": TINY_VOCABULARY, "hidden_size": 32, "head_dim": 8,
            "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
        }  # fmt: skip
    usable = [name for name, file in files.items() if known(file.architecture) and "vocab_size" in file.architecture]
    if shape not in usable:
        raise ValueError(f"--shape {shape}: is none of tiny, {', '.join(usable)} ({FOLDER}/)")
    return files[shape].architecture


def random_model(config: dict[str, Any], device: str, seed: int = 0) -> Decoder:
    """A float32 decoder made on its device: matrices normal with deviation 0.02, norms 1."""
    with torch.device(device):
        model = Decoder(config)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
            else:
                parameter.fill_(1.0)
    return model.eval()


@dataclass(frozen=True)
class Codec:
    """Ids of text for a model that knows no language: every four characters one id, about as many as a real tokenizer.

    The actions of such a model say nothing, so they decode to no action.
    """

    size: int
    end_ids: tuple[int, ...] = (END,)
    pad_id: int = 0
    dialect: Dialect = WEB_PAGES

    def encode_prompt(self, text: str) -> EncodedPrompt:
        """See ``headroom.agent.codec.Codec``."""
        return EncodedPrompt(self._ids(f"{self.dialect.instructions}\n{text}"))

    def encode_action(self, text: str, prompt: EncodedPrompt) -> Ids:  # noqa: ARG002
        """See ``headroom.agent.codec.Codec``."""
        return np.append(self._ids(text), np.int32(END))

    def decode_action(self, ids: Sequence[int] | Ids, prompt: EncodedPrompt) -> str:  # noqa: ARG002
        """See ``headroom.agent.codec.Codec``."""
        return " ".join(str(int(index)) for index in ids)

    def save(self, folder: Path) -> None:
        """Ids are computed: there is nothing to save."""

    def _ids(self, text: str) -> Ids:
        pieces = (text[at : at + 4] for at in range(0, len(text), 4))
        return np.array([2 + zlib.crc32(piece.encode()) % (self.size - 2) for piece in pieces], dtype=np.int32)


class MadeUpPages:
    """Pages where no browser is: buttons whose words follow from the page seed; no action reaches one."""

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        """See ``headroom.worlds.base.World``."""
        return [self._page(history) for history in histories]

    def _page(self, history: History) -> Observation:
        names = [f"{history.task} {derive('page', history.seed, number) % 1000}" for number in range(12)]
        outcome = Outcome.MALFORMED if history.actions else Outcome.OK
        return Observation(f"Click {names[0]}.", tuple(Element("button", name) for name in names), outcome)

    def close(self) -> None:
        """Nothing to release."""


def supervised_turns(world: World, codec: Codec) -> list[Example]:
    """The first pages of the tasks, each with an action of its own."""
    starts = [History(task, seed) for seed in PAGES for task in TASKS]
    prompts = [codec.encode_prompt(codec.dialect.prompt_text([page], [])) for page in world.observe(starts)]
    return [
        Example(prompt.ids, codec.encode_action(f'click button "page {place}"', prompt))
        for place, prompt in enumerate(prompts)
    ]
