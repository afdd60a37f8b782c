"""A fake world, a fake codec and a toy model for the GRPO tests; as a script, one run that may be killed.

Nothing here is a page: ``FakeButtonsWorld`` answers from a rule, so that a whole run takes a second.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headroom.agent.codec import EncodedPrompt
from headroom.agent.dialect import WEB_PAGES, Dialect
from headroom.agent.episode import Turn
from headroom.config.jobs import GrpoJob
from headroom.config.models import Grpo, MiniWobSettings, TinyModel
from headroom.files import write_parquet
from headroom.policy.load import Policy
from headroom.policy.sampler import TorchSampler
from headroom.policy.score import action_log_probabilities
from headroom.policy.tiny import tiny_model
from headroom.train.batch import Example, make_batch
from headroom.train.diagnostics import steps_table
from headroom.train.grpo import Run, collect, train
from headroom.train.rollout import PhaseSeconds
from headroom.train.validation import validation_table
from headroom.worlds.base import Action, Element, History, Observation, Outcome

BUTTONS = ("ash", "birch", "cedar", "dogwood")
TASKS = ("press-one", "press-other")
POOL = tuple(range(100, 140))
WORDS = ("<start>", "<end>", *BUTTONS, "history:", "junk", "<pad>")

PAD = WORDS.index("<pad>")  # no prompt holds it: torch gives the padding row of an embedding no gradient


class FakeButtonsWorld:
    """Four buttons, one right one a page. Clicking ends the episode, anything malformed costs a turn.

    ``broken`` names (task, page seed) pairs that fail by infrastructure; ``impossible`` makes every click wrong.
    """

    def __init__(self, *, broken: Sequence[tuple[str, int]] = (), impossible: bool = False) -> None:
        self.broken, self.impossible = set(broken), impossible
        self.asked: list[History] = []

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        self.asked += histories
        return [self._observe(history) for history in histories]

    def _observe(self, history: History) -> Observation:
        right = BUTTONS[(history.seed + TASKS.index(history.task)) % len(BUTTONS)]
        page = tuple(Element("button", name) for name in BUTTONS)
        if (history.task, history.seed) in self.broken and history.actions:
            return Observation(right, page, failure="the fake world was told to fail here")
        if not history.actions:
            return Observation(right, page)
        last: Action = history.actions[-1]
        if last.verb != "click":
            return Observation(right, page, outcome=Outcome.MALFORMED)
        won = last.name == right and not self.impossible
        return Observation(right, page, raw_reward=1.0 if won else -1.0, done=True)

    def close(self) -> None:
        pass


class FakeCodec:
    """The goal's word and a flag for a past mistake in; one token and the end token out."""

    end_ids = (1,)
    size = len(WORDS)
    dialect: Dialect = WEB_PAGES

    def __init__(self, pad_id: int = PAD) -> None:
        self.pad_id = pad_id

    def encode_prompt(self, text: str) -> EncodedPrompt:
        goal = text.split("\n", 1)[0].removeprefix("goal: ")
        ids = [0, WORDS.index(goal), *([WORDS.index("history:")] if "history:" in text else []), 0]
        return EncodedPrompt(np.array(ids, dtype=np.int32))

    def encode_action(self, text: str, prompt: EncodedPrompt) -> np.ndarray:
        return np.array([WORDS.index(text.split('"')[1]), 1], dtype=np.int32)

    def decode_action(self, ids: Any, prompt: EncodedPrompt) -> str:
        words = [WORDS[int(i)] for i in ids if int(i) != 1]
        return f'click button "{words[0]}"' if len(words) == 1 and words[0] in BUTTONS else " ".join(words)

    def save(self, folder: Path) -> None:
        pass


@functools.cache
def _pretrained(seed: int) -> dict[str, torch.Tensor]:
    """Weights after a second of imitation."""
    model = _untrained(seed, PAD)
    imitate(model, steps=60, seed=seed)
    return model.state_dict()


def imitate(model: Any, *, steps: int, seed: int = 0) -> None:
    """Train on a clumsy teacher: half right clicks, the rest wrong ones and junk."""
    codec, chance = FakeCodec(), np.random.default_rng(seed)
    examples = []
    for number in range(240):
        goal = BUTTONS[number % 4]
        prompt = codec.encode_prompt(f"goal: {goal}" + ("\nhistory:" if number % 3 == 0 else ""))
        word = chance.choice([goal, chance.choice(BUTTONS), "junk"], p=[0.3, 0.4, 0.3])
        examples.append(Example(prompt.ids, np.array([WORDS.index(word), 1], dtype=np.int32)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        (-action_log_probabilities(model, make_batch(examples)).log_probabilities.mean()).backward()
        optimiser.step()


def _untrained(seed: int, pad_id: int) -> Any:
    shape = TinyModel(width=32, layers=1, heads=2, key_value_heads=2, head_width=16, feed_forward=32, context=96)
    return tiny_model(shape, vocabulary=len(WORDS), pad_id=pad_id, end_ids=(1,), seed=seed)


def toy_policy(seed: int = 0, pad_id: int = PAD) -> Policy:
    """A model of ten thousand weights that succeeds now and then."""
    model = _untrained(seed, pad_id)
    model.load_state_dict(_pretrained(seed))
    return Policy(model.eval(), FakeCodec(pad_id), Path("toy"))


def toy_job(steps: int = 4, **changes: Any) -> GrpoJob:
    """A short run; ``changes`` are settings of ``Grpo``."""
    settings: dict[str, Any] = {
        "run": "toy", "seed": 0, "init": "toy", "tasks": "mastered", "steps": steps, "pages_per_step": 4,
        "group_size": 6, "learning_rate": 3e-3, "max_new_tokens": 3, "checkpoint_every": 2,
    }  # fmt: skip
    return GrpoJob(world=MiniWobSettings(horizon=3), grpo=Grpo.model_validate(settings | changes))


def run_toy(
    job: GrpoJob, scratch: Path, *, policy: Policy | None = None, world: FakeButtonsWorld | None = None
) -> tuple[Policy, Run]:
    """Train the toy policy, with a reference where the job has a KL term."""
    policy = policy or toy_policy()
    reference = toy_policy().model.requires_grad_(False) if job.grpo.kl_beta > 0 else None
    run = train(
        policy, reference, world or FakeButtonsWorld(), job, TASKS, POOL, scratch=scratch, validation_seeds=POOL
    )
    return policy, run


def a_rollout(policy: Policy, **changes: Any) -> tuple[list[Turn], torch.Tensor]:
    """Turns of one step and made-up advantages that are never zero."""
    job = toy_job(**changes)
    sampler = TorchSampler(policy.model, policy.codec.end_ids)
    groups = collect(FakeButtonsWorld(), policy, sampler, job, TASKS, POOL, 0, PhaseSeconds())
    turns = [turn for group in groups for episode in group.episodes for turn in episode.turns]
    spread = torch.linspace(-1.0, 1.0, 2 * len(turns), dtype=torch.float64)[::2]
    return turns, spread


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def one_run(scratch: Path, output: Path) -> None:
    """One run with everything that has a state: KL, several updates a rollout, momentum, decay, cosine, validation."""
    settings = {
        "kl_beta": 0.05, "updates_per_rollout": 2, "schedule": "cosine", "optimiser": {"weight_decay": 0.01},
        "signal": {"kind": "noise", "schedule": "cosine"}, "validation": {"every": 3, "pages": 4},
    }  # fmt: skip
    policy, run = run_toy(toy_job(steps=40, **settings), scratch)
    output.mkdir(parents=True, exist_ok=True)
    write_parquet(output / "steps.parquet", steps_table(run.rows))
    write_parquet(output / "validation.parquet", validation_table(run.validations))
    (output / "weights").write_bytes(weights(policy).numpy().tobytes())


def start(scratch: Path, output: Path) -> int:
    """Make the run in a process of its own; its id. A fork, so that the imports are paid once."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            one_run(scratch, output)
            status = 0
        finally:
            os._exit(status)
    return child


def killed_and_resumed(folder: Path, kills: int) -> int:
    """Make ``unbroken`` in one go, and ``broken`` through ``kills`` SIGKILLs at random moments; the kills that hit."""
    began = time.monotonic()
    if os.waitpid(start(folder / "unbroken-scratch", folder / "unbroken"), 0)[1]:
        return -1
    span, hit, moments = time.monotonic() - began, 0, random.Random(0)
    scratch = folder / "broken-scratch"
    for _ in range(kills):
        before = sorted(path.name for path in scratch.glob("step-*.safetensors"))[-1:]
        child = start(scratch, folder / "broken")
        # Let it get further than the last one did, and then some: the kill falls into any phase of a step.
        while not os.waitpid(child, os.WNOHANG)[0]:
            if sorted(path.name for path in scratch.glob("step-*.safetensors"))[-1:] > before:
                time.sleep(moments.random() * span / kills / 2)
                os.kill(child, signal.SIGKILL)
                hit += os.waitpid(child, 0)[1] == signal.SIGKILL
                break
            time.sleep(0.001)
    return -1 if os.waitpid(start(scratch, folder / "broken"), 0)[1] else hit


if __name__ == "__main__":
    torch.set_num_threads(1)
    toy_policy()
    print(killed_and_resumed(Path(sys.argv[1]), kills=5))
