"""A probe in memory, as ``headroom.measure.probe`` wrote it: what every checkpoint's hidden states are read on.

Apart from the module that writes it, so that a job which only reads one does not rest on any world.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ProbeTurns:
    """The probe in memory: per turn the ids, and the number of its episode, int64 (N,)."""

    prompts: tuple[Ids, ...]
    actions: tuple[Ids, ...]
    episode: npt.NDArray[np.int64]
    tokenizer: str
    dialect: str

    @property
    def sequences(self) -> list[Ids]:
        """What the network reads: the prompt and the action but for its last token, which predicts nothing."""
        return [np.concatenate([p, a[:-1]]) for p, a in zip(self.prompts, self.actions, strict=True)]

    @property
    def action_positions(self) -> list[npt.NDArray[np.int64]]:
        """Per turn the positions in :attr:`sequences` that predict the action's tokens; the first decides."""
        return [np.arange(len(p) - 1, len(p) + len(a) - 1) for p, a in zip(self.prompts, self.actions, strict=True)]


def tokenizer_digest(folder: Path) -> str:
    """What makes ids mean the same: sha256 over the vocabulary and added tokens of a checkpoint's tokenizer.

    Raises:
        ValueError: the folder has no ``tokenizer.json``.
    """
    path = folder / "tokenizer.json"
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); the checkpoint is incomplete") from error
    parts = json.dumps([value.get("model"), value.get("added_tokens")], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()


def read_probe(folder: Path) -> ProbeTurns:
    """Read a probe.

    Raises:
        SystemExit: a file is missing or empty.
    """
    try:
        table = pd.read_parquet(folder / "probe.parquet")
        said = json.loads((folder / "probe.json").read_bytes())
        tokenizer, dialect = str(said["tokenizer"]), str(said["dialect"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SystemExit(f"{folder}: holds no probe ({error}); run headroom.measure.probe") from error
    if table.empty:
        raise SystemExit(f"{folder / 'probe.parquet'}: is empty; run headroom.measure.probe again")
    return ProbeTurns(
        prompts=tuple(np.asarray(ids, dtype=np.int32) for ids in table["prompt_ids"]),
        actions=tuple(np.asarray(ids, dtype=np.int32) for ids in table["action_ids"]),
        episode=table["episode"].to_numpy(dtype=np.int64),
        tokenizer=tokenizer,
        dialect=dialect,
    )
