"""vLLM on the language part of a Qwen3-VL beside the torch sampler: run where vLLM is, read by test_vllm_language.py.

``python vllm_language_cases.py {weights,adapter} FOLDER`` writes ``FOLDER/answers.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tiny_qwen3_vl
import torch

from headroom.config.models import Lora, Optimiser, Trainer, Vllm
from headroom.policy.engine import EngineError
from headroom.policy.load import load_policy
from headroom.policy.repeatable import repeatable
from headroom.policy.sampler import TorchSampler
from headroom.policy.vllm_engine import VllmSampler
from headroom.train import adapter
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee

LORA = Lora(rank=4, alpha=8)


@torch.no_grad()
def shake(model: Any, seed: int) -> None:
    """A change of the size of an update, of all that is trained."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))


def main(kind: str, folder: Path) -> None:
    lora = LORA if kind == "adapter" else None
    split = kind == "weights"
    source = tiny_qwen3_vl.write(folder / "released", head=32, tied=not split, shards=split)
    policy = load_policy(source, "float32")
    model, ends = policy.model, policy.codec.end_ids
    if lora is not None:
        Trainee(model, adamw(Optimiser(), 1e-3), Trainer(lora=lora))
    settings = Vllm(cache_mb=32, longest=192, sequences=16)
    engine = VllmSampler(source, ends, settings, lora=lora, adapters=adapter if lora else None)
    found: dict[str, Any] = {"gaps": [engine.sync(model)], "tolerance": engine.tolerance}
    random = np.random.default_rng(0)
    prompts = [random.integers(3, 250, n).astype(np.int32) for n in (2, 7, 33, 70, 150)]
    asked: dict[str, Any] = {"temperature": 0.0, "seeds": range(len(prompts)), "max_new_tokens": 12}
    before = [one.ids.tolist() for one in engine.generate(prompts, **asked)]
    shake(model, 1)
    found["gaps"].append(engine.sync(model))
    pairs = [sampler.generate(prompts, **asked) for sampler in (engine, TorchSampler(model, ends))]
    found["greedy"] = [[one.ids.tolist() for one in made] for made in pairs]
    found["changed"] = before != found["greedy"][0]
    found["apart"] = max(
        float(np.abs(a.log_probabilities - b.log_probabilities).max()) for a, b in zip(*pairs, strict=True)
    )
    shake(model, 2)
    setattr(engine, "_load" if lora is None else "_serve", lambda model: None)
    try:
        found["fault"] = f"none: {engine.sync(model)}"
    except EngineError as error:
        found["fault"] = str(error)
    (folder / "answers.json").write_text(json.dumps(found))


if __name__ == "__main__":
    repeatable()
    main(sys.argv[1], Path(sys.argv[2]))
