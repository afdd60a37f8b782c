"""What vLLM does beside the torch sampler, as numbers: run in an environment that has vLLM, read by test_vllm.py.

``python vllm_cases.py {weights,adapter} FOLDER`` trains the toy world for five steps, its rollouts sampled by vLLM,
then puts questions and faults to the engine of that run, and writes ``FOLDER/answers.json``. Started by torchrun, each
process has an engine, the weights are sharded, and the first process asks.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from toy_grpo import POOL, TASKS, WORDS, FakeButtonsWorld, FakeCodec, imitate, toy_job

from headroom.config.models import TinyModel
from headroom.policy.canary import canary_scores
from headroom.policy.decoder import read_decoder
from headroom.policy.engine import EngineError, open_engine
from headroom.policy.load import Policy
from headroom.policy.repeatable import repeatable
from headroom.policy.sampler import Generation, TorchSampler
from headroom.policy.tiny import tiny_model
from headroom.train import adapter, grpo
from headroom.train.optimiser import adamw
from headroom.train.processes import Processes, start
from headroom.train.trainee import Trainee

VLLM = {"cache_mb": 32, "longest": 192, "sequences": 64}
LORA = {"rank": 4, "alpha": 8}
END_IDS = (1, 7)


class TwoEnds(FakeCodec):
    end_ids = END_IDS


def untrained() -> Any:
    """Two layers with grouped heads and tied embeddings, far from their small start."""
    shape = TinyModel(
        width=64, layers=2, heads=2, key_value_heads=1, head_width=32, feed_forward=64, context=192, initial_std=0.2
    )
    return tiny_model(shape, vocabulary=len(WORDS), pad_id=WORDS.index("<pad>"), end_ids=END_IDS, seed=5).eval()


def a_policy(folder: Path) -> Policy:
    """A policy that succeeds now and then; its checkpoint in ``folder``."""
    if not folder.exists():
        folder.mkdir(parents=True)
        model = untrained()
        imitate(model, steps=30)
        model.save_pretrained(str(folder))
    model = read_decoder(folder, json.loads((folder / "config.json").read_text()), torch.float32)
    return Policy(model.eval(), TwoEnds(), folder)


class Replay:
    """Gives the actions of another engine, with log-probabilities of the model that it is synced to."""

    tolerance = None

    def __init__(self, recorded: list[list[np.ndarray]]) -> None:
        self._recorded, self._model = list(recorded), None

    def sync(self, model: Any) -> None:
        self._model = model

    def generate(
        self, prompts: Sequence[np.ndarray], *, temperature: float, seeds: Sequence[int], max_new_tokens: int
    ) -> list[Generation]:
        actions = self._recorded.pop(0)
        made = []
        for prompt, action in zip(prompts, actions, strict=True):
            scores = canary_scores(self._model, [prompt], torch.from_numpy(action).long()[None], temperature)[0]
            made.append(Generation(action, scores, np.zeros_like(scores)))
        return made


def train(folder: Path, job: Any, engine: Any, processes: Processes) -> tuple[Policy, list[dict[str, Any]]]:
    """A run whose engine is ``engine`` (a function of open_engine's arguments)."""
    policy = a_policy(folder / "checkpoint")
    grpo.open_engine = engine
    scratch = folder / f"scratch-{job.grpo.engine}"
    run = grpo.train(
        policy, None, FakeButtonsWorld(), job, TASKS, POOL,
        scratch=scratch, processes=processes, validation_seeds=POOL,
    )  # fmt: skip
    assert [row["step"] for row in run.validations] == [0, 2, 4]
    return policy, run.rows


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def both_backends(folder: Path, lora: bool, processes: Processes) -> tuple[Any, dict[str, Any]]:
    """Five steps by vLLM, and five by torch on the same actions; the engine, and how far the two ended apart."""
    changes = {
        "temperature": 0.8, "learning_rate": 3e-3, "trainer": {"lora": LORA if lora else None},
        "entropy_bonus": 0.01, "signal": {"kind": "noise"}, "validation": {"every": 2, "pages": 5},
    }  # fmt: skip
    job = toy_job(5, engine="vllm", vllm=VLLM, **changes)
    recorded: list[list[np.ndarray]] = []
    engines: list[Any] = []

    def recording(*arguments: Any) -> Any:
        engine = open_engine(*arguments)
        generate = engine.generate

        def remember(prompts: Any, **rest: Any) -> list[Generation]:
            made = generate(prompts, **rest)
            recorded.append([one.ids for one in made])
            return made

        engine.generate = remember
        engines.append(engine)
        return engine

    policy, rows = train(folder, job, recording, processes)
    del engines[0].generate
    torch_job = job.model_copy(update={"grpo": job.grpo.model_copy(update={"engine": "torch"})})
    twin, twin_rows = train(folder, torch_job, lambda *_: Replay(recorded), processes)
    begun = weights(a_policy(folder / "checkpoint").model)
    one, other = weights(policy.model) - begun, weights(twin.model) - begun
    names = ("success", "canary_gap", "sampler_gap", "importance_mean", "importance_capped_share", "weight_change")
    return engines[0], {
        "moved": float(one.norm()),
        "apart": float((one - other).norm()),
        "rows": [{name: row[name] for name in names} for row in rows],
        "twin": [{name: row[name] for name in names} for row in twin_rows],
        "skipped": [row["skipped"] for row in rows],
        "tolerance": engines[0].tolerance,
    }


def questions(engine: Any, model: Any) -> dict[str, Any]:
    """Greedy, sampled, seeded and grouped answers of an engine that is in step with ``model``."""
    engine.sync(model)
    random = np.random.default_rng(0)
    prompts = [random.integers(0, len(WORDS), n).astype(np.int32) for n in (1, 2, 7, 33, 64, 70, 150)] * 4
    seeds = [int(seed) for seed in random.integers(0, 2**63, len(prompts))]
    theirs = TorchSampler(model, END_IDS)
    greedy = [one.generate(prompts, temperature=0.0, seeds=seeds, max_new_tokens=12) for one in (engine, theirs)]
    found: dict[str, Any] = {
        "greedy": [[one.ids.tolist() for one in made] for made in greedy],
        "greedy_gap": max(
            float(np.abs(a.log_probabilities - b.log_probabilities).max()) for a, b in zip(*greedy, strict=True)
        ),
        "sampled_gap": 0.0,
    }
    for temperature in (0.6, 1.0, 1.7):
        made = engine.generate(prompts, temperature=temperature, seeds=seeds, max_new_tokens=12)
        for prompt, one in zip(prompts, made, strict=True):
            scores = canary_scores(model, [prompt], torch.from_numpy(one.ids).long()[None], temperature)[0]
            found["sampled_gap"] = max(found["sampled_gap"], float(np.abs(scores - one.log_probabilities).max()))
    rest = {"temperature": 1.0, "max_new_tokens": 12}
    found["together"] = [one.ids.tolist() for one in engine.generate(prompts, seeds=seeds, **rest)]
    found["backwards"] = [one.ids.tolist() for one in engine.generate(prompts[::-1], seeds=seeds[::-1], **rest)][::-1]
    found["alone"] = [
        engine.generate([prompt], seeds=[seed], **rest)[0].ids.tolist()
        for prompt, seed in zip(prompts[:8], seeds[:8], strict=True)
    ]
    found["group"] = [one.ids.tolist() for one in engine.generate([prompts[4]] * 16, seeds=range(16), **rest)]
    found["entropy_is_unknown"] = bool(np.isnan(engine.generate(prompts[:1], seeds=[0], **rest)[0].entropy).all())
    found["too_long"] = said(lambda: engine.generate([np.ones(185, np.int32)], seeds=[0], **rest))
    return found


def said(act: Callable[[], Any]) -> str:
    """The kind and the text of the error, or what came instead."""
    try:
        return f"no error: {act()}"
    except (EngineError, ValueError, FloatingPointError) as error:
        return f"{type(error).__name__}: {error}"


@torch.no_grad()
def shake(model: Any, only: str = "") -> None:
    """A change of the size of an update, of all tensors or of those with ``only`` in their name."""
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if only in name and parameter.requires_grad:
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=draw))


def faults_of_weights(engine: Any, model: Any) -> dict[str, str]:
    """Each fault alone, on an engine that was in step before it."""
    found: dict[str, str] = {}

    def fault(name: str, attribute: str, broken: Any, only: str = "") -> None:
        engine.sync(model)
        shake(model, only)
        kept = getattr(engine, attribute)
        setattr(engine, attribute, broken)
        found[name] = said(lambda: engine.sync(model))
        setattr(engine, attribute, kept)

    def without(word: str) -> Any:
        whole = engine._weights
        return lambda model: ((name, value) for name, value in whole(model) if word not in name)

    fault("stale cache", "_forget", lambda: True)
    fault("a tensor that vLLM fuses was dropped", "_weights", without("layers.1.self_attn.k_proj"))
    fault("a tensor of its own was dropped", "_weights", without("layers.0.mlp.down_proj"))
    fault("no tensor was taken", "_load", lambda model: None)
    for name in ("embed_tokens", "layers.1.input_layernorm", "layers.0.self_attn.q_proj", "layers.1.mlp.up_proj"):
        fault(f"old {name}", "_load", lambda model: None, only=name)

    # What load_weights leaves where an output matrix that is tied was copied: the old one goes on answering.
    engine.sync(model)
    tied: list[Any] = []

    def untie(own: Any) -> None:
        tied.append(own.lm_head)
        own.lm_head = copy.deepcopy(own.lm_head)

    engine._llm.apply_model(untie)
    shake(model)
    found["old lm_head, noticed by name"] = said(lambda: engine.sync(model))
    load = engine._load
    engine._load = lambda model: engine._llm.apply_model(lambda own: set(own.load_weights(engine._weights(model))))
    found["old lm_head, noticed by the canary"] = said(lambda: engine.sync(model))
    engine._load = load
    engine._llm.apply_model(lambda own: setattr(own, "lm_head", tied[0]))

    found["none"] = said(lambda: engine.sync(model))
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight.fill_(torch.nan)
    found["a policy beyond use"] = said(lambda: engine.sync(broken))
    return found


def faults_of_adapters(engine: Any, folder: Path) -> dict[str, Any]:
    """Adapters that are not applied, or old, on a model that is in training."""
    policy = a_policy(folder / "checkpoint")
    settings = toy_job(trainer={"lora": LORA}).grpo
    Trainee(policy.model, adamw(settings.optimiser, 1e-3), settings.trainer)
    model, found = policy.model, {}
    found["at the start, where it does nothing"] = said(lambda: engine.sync(model))
    shake(model, ".lora_")
    found["none"] = said(lambda: engine.sync(model))
    random = np.random.default_rng(0)
    asked = {"temperature": 0.0, "seeds": range(8), "max_new_tokens": 1}
    prompts = [random.integers(0, len(WORDS), 6).astype(np.int32) for _ in range(8)]
    by_engine = engine.generate(prompts, **asked)
    with adapter.switched_off(model):
        base = TorchSampler(model, END_IDS).generate(prompts, **asked)
    pairs = zip(by_engine, base, strict=True)
    found["furthest from the base"] = max(float(abs(a.log_probabilities - b.log_probabilities)[0]) for a, b in pairs)
    serve = engine._serve

    def base_only(model: Any) -> None:
        serve(model)
        engine._adapter = None

    engine._serve = base_only
    found["adapter not applied"] = said(lambda: engine.sync(model))
    engine._serve = serve
    found["after it"] = said(lambda: engine.sync(model))
    shake(model, ".lora_")
    engine._serve = lambda model: None
    found["old adapter"] = said(lambda: engine.sync(model))
    engine._serve = serve
    return found


def main(kind: str, folder: Path, processes: Processes) -> None:
    """All of it; the first process makes the checkpoint and writes the answers."""
    if processes.first:
        a_policy(folder / "checkpoint")
    processes.gather(None)
    engine, answers = both_backends(folder, kind == "adapter", processes)
    if not processes.first:
        return
    answers["processes"] = processes.count
    policy = a_policy(folder / "checkpoint")
    if kind == "weights":
        answers["questions"] = questions(engine, untrained())
        answers["faults"] = faults_of_weights(engine, replace(policy).model)
    else:
        answers["faults"] = faults_of_adapters(engine, folder)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    repeatable()
    with start(int(os.environ.get("WORLD_SIZE", "1"))) as these:
        main(sys.argv[1], Path(sys.argv[2]), these)
