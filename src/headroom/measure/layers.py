"""Hidden states of a decoder on fixed sequences, block by block, with one block's weights in memory at a time.

The network is built on the meta device, where it takes no memory. What :mod:`headroom.policy.decoder` knows is run by
it, without the library's import, which takes longer than a tiny model's measurement. Any other decoder is the
library's: a first pass through the model's own ``forward`` with every block replaced by a stub records what each block
is called with (masks, rotary tables), so that nothing about an architecture is repeated here. Then each block is filled
from the file, run on all sequences, and emptied.
Peak memory is one block, the hidden states of one site, and one chunk of the output matrix, for 0.2 M parameters or
8 B. Computation is float32 whatever the checkpoint's dtype.

Sites, in order: ``embedding`` (what enters block 0), ``block`` 0 .. L-1 (the residual stream after it), and
``final_norm`` (what the output matrix reads). Hugging Face's ``hidden_states[-1]`` is ``final_norm``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headroom.measure.weights import Checkpoint, ties_head
from headroom.policy.decoder import Body, known
from headroom.policy.forward import run_layer
from headroom.policy.vision import text_config

Ids = npt.NDArray[np.int32]
_HEAD_ROWS = 8192  # rows of the output matrix at a time


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the network; ``layer`` is -1 for the embedding, L for the final norm."""

    name: str
    layer: int


class _Stub(nn.Module):
    """Stands in for a block: keeps the keyword arguments of its call and passes the hidden state on."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: dict[str, Any] = {}

    def forward(self, hidden: Tensor, *_: Any, **arguments: Any) -> Tensor:
        self.arguments = arguments
        return hidden


class LayerWalk:
    """One walk through a checkpoint's decoder over a list of sequences.

    ``sequences`` are int32 (T_i,), T_i >= 1. Use :meth:`states` once, to its end, then :meth:`logits`.
    """

    def __init__(self, checkpoint: Checkpoint, sequences: Sequence[Ids], *, batch_tokens: int = 8192) -> None:
        """Build the empty network; no weights are read. The checkpoint may be a base with an adapter on it.

        Raises:
            ValueError: the folder is no checkpoint of a decoder that ``transformers`` knows, or an id is too large.
        """
        self.checkpoint = checkpoint
        self.own = known(checkpoint.config)
        self.body = _own_decoder(checkpoint.config) if self.own else _empty_decoder(checkpoint.folder)
        self.prefix = _prefix(self.checkpoint)
        self.sequences = sequences
        self.batches = _batches(sequences, batch_tokens)
        rows = self.checkpoint.tensors[f"{self.prefix}embed_tokens.weight"].shape[0]
        largest = max(int(ids.max()) for ids in sequences)
        if largest >= rows:
            raise ValueError(
                f"{checkpoint.folder}: the probe has id {largest}, the embedding {rows} rows; another tokenizer?"
            )
        self.hidden: list[Tensor] = []

    @property
    def blocks(self) -> int:
        """L, the number of blocks."""
        return len(self.body.layers)

    @torch.inference_mode()
    def states(self) -> Iterator[tuple[Site, list[npt.NDArray[np.float32]]]]:
        """Yield each site with the hidden states of every sequence there, (T_i, D), in the order of ``sequences``."""
        calls = self._enter()
        yield Site("embedding", -1), self._unpadded()
        for index in range(self.blocks):
            block = self._filled(self.body.layers[index], f"layers.{index}.")
            for number, call in enumerate(calls):
                hidden = self.hidden[number]
                self.hidden[number] = (
                    run_layer(block, hidden, **call[index]) if self.own else _tensor(block(hidden, **call[index]))
                )
            block.to("meta")
            yield Site("block", index), self._unpadded()
        norm = self._filled(self.body.norm, "norm.")
        self.hidden = [norm(hidden) for hidden in self.hidden]
        yield Site("final_norm", self.blocks), self._unpadded()

    @torch.inference_mode()
    def logits(self, positions: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits (N, V) at ``positions[i]`` of sequence i, all sequences in order, N positions altogether.

        Raises:
            ValueError: the walk has not ended, or the checkpoint has no output matrix.
        """
        if not self.hidden:
            raise ValueError("logits need the walk to have ended")
        states = self._unpadded()
        rows = torch.from_numpy(np.concatenate([states[i][at] for i, at in enumerate(positions)]))
        head = self.checkpoint.tensors[self._head_name()]
        vocabulary, width = head.shape
        out = np.empty((len(rows), vocabulary), dtype=np.float32)
        for first in range(0, vocabulary, _HEAD_ROWS):
            count = min(_HEAD_ROWS, vocabulary - first)
            weights = head.values(first * width, count * width).astype(np.float32).reshape(count, width)
            out[:, first : first + count] = (rows @ torch.from_numpy(weights).T).numpy()
        return out

    def _head_name(self) -> str:
        heads = [name for name in self.checkpoint.parameters if name.endswith("lm_head.weight")]
        if not heads and not ties_head(self.checkpoint.config):
            raise ValueError(f"{self.checkpoint.folder}: no lm_head.weight, and the configuration does not tie it")
        return heads[0] if heads else f"{self.prefix}embed_tokens.weight"

    def _enter(self) -> list[list[dict[str, Any]]]:
        """Embed all batches; per batch, the keyword arguments of every block."""
        if self.own:
            self.hidden = [self._embed(rows) for rows in self.batches]
            tables = [
                self.body.rotary_emb(hidden, torch.arange(hidden.shape[1], dtype=torch.int64)[None])
                for hidden in self.hidden
            ]
            return [[{"position_embeddings": pair}] * self.blocks for pair in tables]
        rotary = type(self.body.rotary_emb)(config=self.body.config)  # its tables are made, not stored
        stubs = nn.ModuleList(_Stub() for _ in self.body.layers)
        shell = {"rotary_emb": rotary, "layers": stubs, "norm": nn.Identity()}
        own = {name: getattr(self.body, name) for name in shell}
        calls = []
        try:
            for name, module in shell.items():
                setattr(self.body, name, module)
            for rows in self.batches:
                entered = self.body(inputs_embeds=self._embed(rows), use_cache=False).last_hidden_state
                self.hidden.append(entered)
                calls.append([stub.arguments for stub in stubs])
        finally:
            for name, module in own.items():
                setattr(self.body, name, module)
        return calls  # type: ignore[return-value]

    def _embed(self, rows: list[int]) -> Tensor:
        """Embedding rows of the ids that occur, read one by one: (B, T, D), padded with the first id of the batch."""
        table = self.checkpoint.tensors[f"{self.prefix}embed_tokens.weight"]
        width = table.shape[1]
        longest = max(len(self.sequences[row]) for row in rows)
        ids = np.full((len(rows), longest), self.sequences[rows[0]][0], dtype=np.int64)
        for line, row in enumerate(rows):
            ids[line, : len(self.sequences[row])] = self.sequences[row]
        unique, inverse = np.unique(ids, return_inverse=True)
        vectors = np.stack([table.values(int(index) * width, width) for index in unique]).astype(np.float32)
        return torch.from_numpy(vectors[inverse.reshape(ids.shape)])

    def _filled(self, module: Any, name: str) -> Any:
        """A module of the decoder with its weights read from the file."""
        module.to_empty(device="cpu")
        for part, parameter in module.state_dict(keep_vars=True).items():
            tensor = self.checkpoint.tensors.get(f"{self.prefix}{name}{part}")
            if tensor is None or tensor.shape != tuple(parameter.shape):
                found = "missing" if tensor is None else f"of shape {tensor.shape}"
                raise ValueError(
                    f"{self.checkpoint.folder}: tensor {self.prefix}{name}{part} is {found}, "
                    f"the configuration asks for {tuple(parameter.shape)}"
                )
            parameter.data.copy_(torch.from_numpy(tensor.values().astype(np.float32).reshape(tensor.shape)))
        return module.eval()

    def _unpadded(self) -> list[npt.NDArray[np.float32]]:
        out: list[npt.NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(self.sequences)
        for rows, hidden in zip(self.batches, self.hidden, strict=True):
            for line, row in enumerate(rows):
                out[row] = hidden[line, : len(self.sequences[row])].numpy()
        return out


def _tensor(output: Any) -> Tensor:
    """A block returns its hidden state, alone or first in a tuple."""
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def _prefix(checkpoint: Checkpoint) -> str:
    names = [name for name in checkpoint.tensors if name.endswith("embed_tokens.weight")]
    if len(names) != 1:
        raise ValueError(f"{checkpoint.folder}: {len(names)} tensors end in embed_tokens.weight, not one")
    return names[0].removesuffix("embed_tokens.weight")


def _own_decoder(config: Mapping[str, Any]) -> Any:
    """This project's decoder on the meta device."""
    with torch.device("meta"):
        return Body(text_config(config)).eval()


def _empty_decoder(folder: Path) -> Any:
    """The library's text decoder on the meta device, as the configuration describes it."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    try:
        config: Any = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(f"{folder / 'config.json'}: not a configuration that transformers knows ({first})") from error
    text = config.get_text_config()
    known: Mapping[Any, Any] = MODEL_MAPPING
    if type(text) not in known:
        raise ValueError(f"{folder / 'config.json'}: model type {text.model_type!r} has no text decoder here")
    text._attn_implementation = "sdpa"
    with torch.device("meta"):
        body: Any = known[type(text)](text)
    for part in ("layers", "norm", "rotary_emb"):
        if not hasattr(body, part):
            raise ValueError(f"{folder / 'config.json'}: a {text.model_type} decoder has no {part}; cannot walk it")
    return body.eval()


def _batches(sequences: Sequence[Ids], batch_tokens: int) -> list[list[int]]:
    """Sequences of similar length together, right-padded to at most ``batch_tokens`` (at least one a batch)."""
    batches: list[list[int]] = []
    for row in sorted(range(len(sequences)), key=lambda i: (len(sequences[i]), i)):
        if batches and (len(batches[-1]) + 1) * len(sequences[row]) <= batch_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
