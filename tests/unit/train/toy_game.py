"""A text game with facts, its codec and a toy policy: a whole run takes a second."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from toy_grpo import toy_job

from headroom.agent.codec import EncodedPrompt
from headroom.agent.dialect import ANCHOR, Dialect
from headroom.agent.text_game import LOCATION, OBJECTS, TEXT_GAME
from headroom.config.jobs import GrpoJob
from headroom.policy.load import Policy
from headroom.policy.score import action_log_probabilities
from headroom.policy.tiny import tiny_model
from headroom.train.batch import Example, make_batch
from headroom.train.grpo import Run, train
from headroom.worlds.base import Element, History, Observation, Outcome

ROOMS = ("attic", "bath", "cellar")
COMMANDS = (*(f"go to {room}" for room in ROOMS), "dance")
TASKS = ("find-cat", "find-dog")
POOL = tuple(range(200, 240))
VALIDATION = tuple(range(900, 920))
WORDS = ("<start>", "<end>", *COMMANDS, *ROOMS, "hall", "yes", "no", "junk", "<pad>")


class FakeGame:
    """Four rooms, an animal in one; a command that finds it ends the episode, ``dance`` is not admissible. The anchor
    question is where one is.

    ``impossible`` hides the animal for good.
    """

    def __init__(self, *, impossible: bool = False) -> None:
        self.impossible = impossible
        self.asked: list[History] = []

    def observe(self, histories: Sequence[History]) -> list[Observation]:
        self.asked += histories
        return [self._observe(history) for history in histories]

    def _observe(self, history: History) -> Observation:
        right = ROOMS[(history.seed + TASKS.index(history.task)) % len(ROOMS)]
        here, outcome, won = "hall", Outcome.OK, False
        for action in history.actions:
            outcome = Outcome.OK
            if action.text in COMMANDS[:3] and action.verb == "command":
                here = action.text.removeprefix("go to ")
                won = won or (here == right and not self.impossible)
            else:
                outcome = Outcome.UNSUPPORTED if action.verb == "command" else Outcome.MALFORMED
        facts = ((LOCATION, here), (OBJECTS, "no" if here == "hall" else "yes"), (ANCHOR, here))
        elements = (Element("text", here), *(Element("command", command) for command in COMMANDS[:3]))
        return Observation(right, elements, outcome, float(won), won, facts=facts)

    def close(self) -> None:
        pass


class FakeGameCodec:
    """The goal's word and the room in; a command, a room, yes or no, and the end token out. The room is answer to the
    anchor question, too, and a yes is rather sure."""

    end_ids = (1,)
    size = len(WORDS)
    pad_id = WORDS.index("<pad>")
    dialect: Dialect = TEXT_GAME

    def encode_prompt(self, text: str) -> EncodedPrompt:
        lines = text.split("\n")
        goal, here = lines[0].removeprefix("goal: "), lines[2].removeprefix("text ").strip('"')
        return EncodedPrompt(np.array([0, WORDS.index(goal), WORDS.index(here), 0], dtype=np.int32))

    def encode_action(self, text: str, prompt: EncodedPrompt) -> np.ndarray:
        """A word that the game does not have is junk."""
        words = [TEXT_GAME.parse(text).text, *TEXT_GAME.prediction(text).values()]
        return np.array([WORDS.index(w if w in WORDS else "junk") for w in words] + [1], dtype=np.int32)

    def decode_action(self, ids: Any, prompt: EncodedPrompt) -> str:
        words = [WORDS[int(i)] for i in ids if int(i) != 1]
        if not words or words[0] not in COMMANDS:
            return " ".join(words)
        if len(words) != 3:
            return f'do "{words[0]}"'
        sure = 7 if words[2] == "yes" else 2
        return f'do "{words[0]}" expect "{words[1]}" "{words[2]}" know "{words[1]}" sure "{sure}"'

    def save(self, folder: Path) -> None:
        pass


@functools.cache
def _pretrained() -> dict[str, torch.Tensor]:
    """Weights after imitating a teacher who goes anywhere and guesses."""
    model, codec, chance = untrained(), FakeGameCodec(), np.random.default_rng(0)
    examples = []
    for number in range(300):
        goal, here = ROOMS[number % 3], chance.choice([*ROOMS, "hall"])
        prompt = codec.encode_prompt(f'goal: {goal}\npage:\ntext "{here}"')
        command = str(chance.choice(COMMANDS))
        room = command.removeprefix("go to ") if chance.random() < 0.5 else str(chance.choice(ROOMS))
        words = [command, room if room in ROOMS else "hall", str(chance.choice(["yes", "no"]))]
        words = words[: int(chance.choice([3, 3, 1]))]
        examples.append(Example(prompt.ids, np.array([*map(WORDS.index, words), 1], dtype=np.int32)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        (-action_log_probabilities(model, make_batch(examples)).log_probabilities.mean()).backward()
        optimiser.step()
    return model.state_dict()


def untrained() -> Any:
    from headroom.config.models import TinyModel

    shape = TinyModel(width=32, layers=1, heads=2, key_value_heads=2, head_width=16, feed_forward=32, context=96)
    return tiny_model(shape, vocabulary=len(WORDS), pad_id=FakeGameCodec.pad_id, end_ids=(1,), seed=0)


def game_policy() -> Policy:
    model = untrained()
    model.load_state_dict(_pretrained())
    return Policy(model.eval(), FakeGameCodec(), Path("toy game"))


def run_game(
    job: GrpoJob, scratch: Path, *, impossible: bool = False, policy: Policy | None = None
) -> tuple[Policy, Run]:
    policy = policy or game_policy()
    run = train(
        policy, None, FakeGame(impossible=impossible), job, TASKS, POOL, scratch=scratch, validation_seeds=VALIDATION
    )
    return policy, run


def game_job(steps: int = 3, **changes: Any) -> GrpoJob:
    """The dark-room study's shape of a run, small."""
    settings: dict[str, Any] = {
        "max_new_tokens": 5, "advantage_scope": "pooled_step", "advantage_scale": "group_std",
        "reward_success": 10.0, "reward_invalid_action": -0.1, "checkpoint_every": 1,
    }  # fmt: skip
    return toy_job(steps, **(settings | changes))
