"""Play a policy on pages: one process, one browser and one model for everything that a stage evaluates.

Episodes are a function of (policy, task, page seed, sample, temperature, sampler seed) alone: neither the batch that
an episode shares, nor the order of the batches, changes it. All policies are sampled with the same seed (common
random numbers), so two equal policies give equal episodes and their difference is exactly 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from headroom.agent.episode import Episode
from headroom.config.models import WorldSettings
from headroom.measure.progress import progress
from headroom.worlds.base import World

if TYPE_CHECKING:
    from headroom.policy.load import Policy
    from headroom.policy.sampler import Generation, TorchSampler
    from headroom.train.rollout import Sampler

EPISODES_AT_ONCE = 128


class Player(Protocol):
    """What the measures need: episodes of one policy."""

    def greedy(self, tasks: Sequence[str], seeds: Sequence[int]) -> list[Episode]:
        """One episode a page, the most likely action at each turn."""
        ...

    def sampled(
        self, tasks: Sequence[str], seeds: Sequence[int], samples: int, temperature: float = 1.0
    ) -> list[Episode]:
        """``samples`` episodes a page."""
        ...


class SilentWhenBroken:
    """A sampler that gives an empty action, malformed by definition, where the model has no finite probabilities.

    A run that diverged is evaluated like any other: its policy says nothing, and fails. Each prompt is judged alone,
    so an answer does not depend on the batch.
    """

    def __init__(self, sampler: TorchSampler, end_id: int) -> None:
        self._sampler, self._end_id = sampler, end_id
        self.silenced = 0

    def generate(
        self,
        prompts: Sequence[npt.NDArray[np.int32]],
        *,
        temperature: float,
        seeds: Sequence[int],
        max_new_tokens: int,
    ) -> list[Generation]:
        """See ``TorchSampler.generate``."""
        from headroom.policy.sampler import Generation

        rest: dict[str, Any] = {"temperature": temperature, "max_new_tokens": max_new_tokens}
        try:
            return self._sampler.generate(prompts, seeds=seeds, **rest)
        except FloatingPointError:
            if len(prompts) > 1:
                middle = len(prompts) // 2
                return [
                    *self.generate(prompts[:middle], seeds=seeds[:middle], **rest),
                    *self.generate(prompts[middle:], seeds=seeds[middle:], **rest),
                ]
        self.silenced += 1
        unknown = np.array([np.nan], dtype=np.float32)
        return [Generation(np.array([self._end_id], dtype=np.int32), unknown, unknown)]


class PolicyPlayer:
    """A :class:`Player` for a loaded policy in a world."""

    def __init__(
        self,
        world: World,
        policy: Policy,
        sampler: Sampler,
        settings: WorldSettings,
        *,
        seed: int,
        max_new_tokens: int,
        label: str = "",
    ) -> None:
        self._world, self._policy, self._sampler, self._settings = world, policy, sampler, settings
        self._seed, self._max_new_tokens, self._label = seed, max_new_tokens, label

    def greedy(self, tasks: Sequence[str], seeds: Sequence[int]) -> list[Episode]:
        """See :class:`Player`."""
        return self._play("greedy", [(task, seed, 0) for task in tasks for seed in seeds], 0.0)

    def sampled(
        self, tasks: Sequence[str], seeds: Sequence[int], samples: int, temperature: float = 1.0
    ) -> list[Episode]:
        """See :class:`Player`."""
        if temperature <= 0.0:
            raise ValueError(f"sampling needs a temperature above 0, not {temperature}")
        starts = [(task, seed, sample) for task in tasks for seed in seeds for sample in range(samples)]
        return self._play("sampled", starts, temperature)

    def _play(self, mode: str, starts: list[tuple[str, int, int]], temperature: float) -> list[Episode]:
        from headroom.train.rollout import rollout

        episodes: dict[tuple[str, int, int], Episode] = {}
        with progress(f"{self._label} {mode}".strip(), len(starts)) as bar:
            for some in _batches(starts):
                batch = rollout(
                    self._world,
                    self._policy,
                    self._sampler,
                    some,
                    horizon=self._settings.horizon,
                    temperature=temperature,
                    seed=self._seed,
                    success_above=self._settings.success_above,
                    max_new_tokens=self._max_new_tokens,
                )
                episodes.update(zip(some, batch, strict=True))
                bar.advance(len(batch), sum(episode.success for episode in batch))
        return [episodes[start] for start in starts]


def _batches(starts: Sequence[tuple[str, int, int]]) -> list[list[tuple[str, int, int]]]:
    """As wide as allowed, a page of every task at a time.

    A page that several episodes share replays their past at each step. That costs less than it saves: a network so
    small spends its time between operations, whatever their width, and a call to a page plays many episodes at once.
    """
    together: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    for start in starts:
        together.setdefault(start[1:], []).append(start)
    line = [start for group in together.values() for start in group]
    return [line[first : first + EPISODES_AT_ONCE] for first in range(0, len(line), EPISODES_AT_ONCE)]


def load_player(
    checkpoint: Path,
    world: World,
    settings: WorldSettings,
    *,
    seed: int,
    max_new_tokens: int,
    label: str = "",
    released: bool = False,
) -> PolicyPlayer:
    """Load a checkpoint to play in ``world``, which several policies may share, one after the other.

    A ``released`` model need not say what world it was trained for; a checkpoint that a stage made must.

    Raises:
        ValueError: the checkpoint cannot be loaded, or was trained for another world; the message names the file.
    """
    from headroom.agent.dialect import check_dialect
    from headroom.policy.load import load_policy
    from headroom.policy.repeatable import repeatable
    from headroom.policy.sampler import TorchSampler

    repeatable()
    check_dialect(checkpoint, settings.kind, released=released)
    policy = load_policy(checkpoint)
    end_ids = policy.codec.end_ids
    sampler = SilentWhenBroken(TorchSampler(policy.model, end_ids), end_ids[0])
    return PolicyPlayer(world, policy, sampler, settings, seed=seed, max_new_tokens=max_new_tokens, label=label)


@contextmanager
def open_player(
    checkpoint: Path,
    settings: WorldSettings,
    *,
    seed: int,
    max_new_tokens: int,
    label: str = "",
    notes: dict[str, Any] | None = None,
    released: bool = False,
) -> Iterator[PolicyPlayer]:
    """:func:`load_player` in a world of its own, whose counters ``notes`` receive. A bad checkpoint starts no browser.

    Raises:
        ValueError: as :func:`load_player`.
    """
    from headroom.agent.dialect import check_dialect
    from headroom.worlds.open import open_world

    check_dialect(checkpoint, settings.kind, released=released)
    with open_world(settings, notes) as world:
        yield load_player(
            checkpoint, world, settings, seed=seed, max_new_tokens=max_new_tokens, label=label, released=released
        )
