"""Episodes of many pages at once: one call to the world and one to the sampler a turn.

Every random choice has a seed made of (run seed, task, page seed, sample, turn), so an episode does not depend on
which others it is played beside, and two policies that agree on a distribution agree on the action.

With ``overlap`` the episodes are played in two halves, and while the world answers one half (in a thread of its own),
the other half's actions are sampled: neither the browser nor the engine idles while the other works. The batches are
then half as wide, so log-probabilities may round otherwise; without it nothing runs beside anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headroom.agent.codec import EncodedPrompt
from headroom.agent.episode import Ending, Episode, Turn
from headroom.policy.load import Policy
from headroom.policy.sampler import Generation
from headroom.seeds import derive
from headroom.train.signal import anchor_score, prediction_score
from headroom.worlds.base import Action, History, Observation, World

Start = tuple[str, int, int]
"""(task, page seed, sample): one episode to play."""


class Sampler(Protocol):
    """What a rollout needs of an engine (``TorchSampler`` is one)."""

    def generate(
        self,
        prompts: Sequence[npt.NDArray[np.int32]],
        *,
        temperature: float,
        seeds: Sequence[int],
        max_new_tokens: int,
    ) -> list[Generation]:
        """One action a prompt, in the order given."""
        ...


@dataclass(slots=True)
class PhaseSeconds:
    """Wall seconds by phase, added up over calls: that the caller waited for the world, and for the sampler."""

    world: float = 0.0
    generate: float = 0.0


@dataclass(slots=True)
class _Live:
    """An episode that is being played."""

    place: int
    sample: int
    history: History
    observations: list[Observation] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)


@dataclass(slots=True)
class _Part:
    """Episodes that are played turn by turn together; ``answer`` gives their observations, once the world has them."""

    live: list[_Live]
    answer: Callable[[], list[Observation]]
    turn: int = 0


def rollout(
    world: World,
    policy: Policy,
    sampler: Sampler,
    starts: Sequence[Start],
    *,
    horizon: int,
    temperature: float,
    seed: int,
    success_above: float,
    max_new_tokens: int,
    phases: PhaseSeconds | None = None,
    progress: Callable[[int, int], None] | None = None,
    overlap: bool = False,
    keep_facts: bool = False,
) -> list[Episode]:
    """Play every start to its end; ``result[i]`` is the episode of ``starts[i]``.

    Args:
        world: Answers with observations; an infrastructure failure there ends the episode as such.
        policy: Its codec reads and writes; its model is used through ``sampler`` only.
        sampler: Draws the actions.
        starts: Episodes to play. Equal (task, page seed) share their pages; ``sample`` tells their seeds apart.
        horizon: Turns after which an episode ends; an action that does not reach the page costs its turn.
        temperature: Of the sampler; 0 is greedy.
        seed: Of the run or of the evaluation.
        success_above: Success is done with a raw reward above this.
        max_new_tokens: Longest action in tokens.
        phases: Receives the seconds spent in the world and in the sampler.
        progress: Called after each turn with (finished episodes, episodes).
        overlap: Sample one half's actions while the world plays the other half's.
        keep_facts: Whether a turn keeps what followed it and the slots of its prompt (``headroom.train.auxiliary``).

    Raises:
        ValueError: two starts are equal, ``horizon`` is not positive, or the world knows no such task.
    """
    if len(set(starts)) != len(starts) or horizon < 1:
        msg = f"a rollout needs distinct starts and a horizon of at least 1 (got {len(starts)} starts, {horizon} turns)"
        raise ValueError(msg)
    clock = phases if phases is not None else PhaseSeconds()
    episodes: dict[int, Episode] = {}
    live = [_Live(place, sample, History(task, page)) for place, (task, page, sample) in enumerate(starts)]
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1)) if overlap else None

        def ask(some: Sequence[_Live]) -> Callable[[], list[Observation]]:
            histories = [episode.history for episode in some]
            if threads is None:
                return lambda: world.observe(histories)
            return threads.submit(world.observe, histories).result

        half = (len(live) + 1) // 2 if overlap else len(live)
        waiting = [_Part(some, ask(some)) for some in (live[:half], live[half:]) if some]
        while waiting:
            part = waiting.pop(0)
            with _timed(clock, "world"):
                observations = part.answer()
            playing: list[_Live] = []
            for episode, observation in zip(part.live, observations, strict=True):
                if part.turn:
                    episode.turns[-1] = _answered(policy, episode.turns[-1], observation, keep_facts)
                episode.observations.append(observation)
                ending = _ending(observation, last=part.turn == horizon)
                if ending is None:
                    playing.append(episode)
                else:
                    episodes[episode.place] = _finish(episode, ending, success_above)
            if progress is not None:
                progress(len(episodes), len(starts))
            if not playing:
                continue
            prompts = _prompts(policy, playing)
            seeds = [
                derive("rollout", seed, episode.history.task, episode.history.seed, episode.sample, part.turn)
                for episode in playing
            ]
            with _timed(clock, "generate"):
                generations = sampler.generate(
                    [prompt.ids for prompt in prompts],
                    temperature=temperature, seeds=seeds, max_new_tokens=max_new_tokens,
                )  # fmt: skip
            for episode, prompt, generation in zip(playing, prompts, generations, strict=True):
                _act(policy, episode, prompt, generation, keep_facts)
            waiting.append(_Part(playing, ask(playing), part.turn + 1))
    return [episodes[place] for place in range(len(starts))]


def _prompts(policy: Policy, live: Sequence[_Live]) -> list[EncodedPrompt]:
    """Encode the next prompt of each episode; members of a group often stand on the same page with the same past."""
    known: dict[str, EncodedPrompt] = {}
    prompts = []
    for episode in live:
        text = policy.codec.dialect.prompt_text(episode.observations, episode.actions)
        if text not in known:
            known[text] = policy.codec.encode_prompt(text)
        prompts.append(known[text])
    return prompts


def _act(policy: Policy, episode: _Live, prompt: EncodedPrompt, generation: Generation, keep: bool) -> None:
    text = policy.codec.decode_action(generation.ids, prompt)
    action = policy.codec.dialect.parse(text)
    episode.actions.append(action)
    episode.history = episode.history.then(action)
    # Outcome and prediction's score are not known before the world has answered: they are filled in by _answered.
    seen = episode.observations[-1]
    score = anchor_score(policy.codec.dialect.anchor(text), seen.facts)
    episode.turns.append(
        Turn(
            prompt.ids, generation.ids, generation.log_probabilities, text, seen.outcome, anchor_score=score,
            confidence=policy.codec.dialect.confidence(text), table=prompt.table if keep else None,
        )
    )  # fmt: skip


def _answered(policy: Policy, turn: Turn, observation: Observation, keep: bool) -> Turn:
    """The turn with what the world made of it: the outcome, and how right the prediction of ``observation`` was."""
    score = prediction_score(policy.codec.dialect.prediction(turn.action_text), observation.facts)
    facts = observation.facts if keep else ()
    return replace(turn, outcome=observation.outcome, prediction_score=score, facts=facts)


def _ending(observation: Observation, *, last: bool) -> Ending | None:
    if observation.failure:
        return Ending.INFRASTRUCTURE
    if observation.done:
        return Ending.DONE
    return Ending.HORIZON if last else None


def _finish(episode: _Live, ending: Ending, success_above: float) -> Episode:
    observation = episode.observations[-1]
    scored = ending is not Ending.INFRASTRUCTURE
    return Episode(
        task=episode.history.task,
        seed=episode.history.seed,
        sample=episode.sample,
        turns=tuple(episode.turns),
        raw_reward=observation.raw_reward if scored else 0.0,
        success=scored and observation.done and observation.raw_reward > success_above,
        ending=ending,
        failure=observation.failure,
    )


@contextmanager
def _timed(clock: PhaseSeconds, phase: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        setattr(clock, phase, getattr(clock, phase) + time.perf_counter() - began)
