"""What a job must compute and play, counted from its settings: operations, passes, page steps, bytes.

A multiplication and an addition are two operations; a token through a weight is one of each (Kaplan et al., arXiv
2001.08361), its backward pass twice that. Attention adds 4 x tokens x context x heads x head width a block, half of it
where a causal mask hides the future.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headroom.config.models import MiniWobSettings, PretrainedModel, Study
from headroom.plan.architecture import Shape


@dataclass(frozen=True)
class Profile:
    """What an episode is like: turns, and tokens of a prompt and of an action."""

    turns: float
    prompt_tokens: float
    action_tokens: float


PROFILES = {
    "tiny": Profile(turns=1.9, prompt_tokens=60, action_tokens=6),
    "pretrained": Profile(turns=3.0, prompt_tokens=250, action_tokens=16),
    "tiny, text game": Profile(turns=50, prompt_tokens=76, action_tokens=16),
    "pretrained, text game": Profile(turns=50, prompt_tokens=460, action_tokens=29),
}
"""Of MiniWoB++ pages. Tiny: its demonstrations. Pretrained, assumed: 700 characters of instructions and page, between
the demonstrators' turns and the horizon. Of a text game, an answer is a command, a prediction, an answer to the anchor
question and a confidence. Tiny: means over the demonstrations of dark-room-tiny (1,349 turns; at most 115 and 18; at
dark-room-smoke 65 and 16). Pretrained: means over 583 demonstrated turns of scenes with 24 receptacles and 24 objects,
with 22 commands listed on average, in the tokens of SmolLM2's tokenizer (at most 613 and 40; answers without the last
two blocks: 20); Qwen3's was not at hand. Every episode runs into the turn limit, as those of a collapsed arm do, so an
upper bound."""


def profile_of(study: Study) -> Profile:
    """What an episode of a study is like: by the kind of its model and of its world; in a text game, to its horizon."""
    kind = "pretrained" if isinstance(study.model, PretrainedModel) else "tiny"
    if not isinstance(study.world, MiniWobSettings):
        return replace(PROFILES[f"{kind}, text game"], turns=float(study.world.horizon))
    return PROFILES[kind]


@dataclass(frozen=True)
class Work:
    """Of one job. ``calls`` are block passes (each costs its launch, however small it is); ``weight_reads`` are passes
    of the sampler that must read every weight; ``written`` are bytes of checkpoints."""

    generate_flops: float = 0.0
    generate_calls: float = 0.0
    weight_reads: float = 0.0
    update_flops: float = 0.0
    update_calls: float = 0.0
    world_steps: float = 0.0
    written: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def times(self, factor: float) -> Work:
        """As often as ``factor``; a share of the work where it is below 1."""
        return Work(*(factor * value for value in _values(self)))


def _values(work: Work) -> tuple[float, ...]:
    return tuple(getattr(work, name) for name in Work.__dataclass_fields__)


def prefix_tokens(profile: Profile, pages: int, episodes: int) -> float:
    """Prompt tokens of a rollout that are computed: the members of a group share their first page."""
    return profile.prompt_tokens * (pages + episodes * max(0.0, profile.turns - 1))


def rollout(shape: Shape, profile: Profile, pages: int, episodes: int, *, at_once: int | None = None) -> Work:
    """Play ``episodes`` on ``pages``; ``at_once`` of them share a pass of the sampler (default: all)."""
    prompts, actions = prefix_tokens(profile, pages, episodes), episodes * profile.turns * profile.action_tokens
    head = shape.width * shape.vocabulary
    rounds = math.ceil(episodes / (at_once or episodes))
    passes = rounds * profile.turns * (profile.action_tokens + 1)
    return Work(
        generate_flops=2 * shape.blocks * (prompts + actions)
        + 2 * head * actions
        + _attention(shape, prompts, profile.prompt_tokens / 2)
        + _attention(shape, actions, profile.prompt_tokens),
        generate_calls=passes * shape.layers,
        weight_reads=passes,
        world_steps=episodes * (profile.turns + 1),
    )


def update(
    shape: Shape, profile: Profile, pages: int, turns: float, *, budget: int, recomputed: bool, reference: bool
) -> Work:
    """One optimiser step over ``turns`` turns on ``pages`` first pages, in microbatches of ``budget`` tokens."""
    episodes = turns / profile.turns
    prompts, actions = prefix_tokens(profile, pages, round(episodes)), turns * profile.action_tokens
    tokens = prompts + actions
    forward = (
        2 * shape.blocks * tokens
        + 2 * shape.width * shape.vocabulary * actions
        + _attention(shape, prompts, profile.prompt_tokens / 2)
        + _attention(shape, actions, profile.prompt_tokens)
    )
    passes = 3 + recomputed + reference
    microbatches = math.ceil(tokens / budget)
    return Work(update_flops=passes * forward, update_calls=passes * microbatches * shape.layers)


def _attention(shape: Shape, tokens: float, context: float) -> float:
    return 4 * tokens * context * shape.layers * shape.heads * shape.head_width


def spectra(shape: Shape) -> float:
    """Operations of the spectra of one checkpoint's weight update: a Gram matrix and its eigenvalues a matrix."""
    attention, pairs = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    sides = [(shape.width, attention)] * 2 + [(shape.width, pairs)] * 2 + [(shape.width, shape.feed_forward)] * 3
    return float(shape.layers * sum(2 * min(s) ** 2 * max(s) + 9 * min(s) ** 3 for s in sides))
