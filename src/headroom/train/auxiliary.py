"""An auxiliary cross-entropy beside GRPO's loss: what the prediction block behind the agent's own command should say.

    L = L_GRPO + w * mean over the step's target tokens of -ln pi(token | prompt, command, block so far)

(arXiv 2607.21273: "prediction as auxiliary cross-entropy loss, outside the reward"). A turn's target is the command
that it gave, with a block that says

- ``prediction``    what was seen next: the facts of the observation that followed;
- ``shuffled``      those of another turn of the step. The turns form one random cycle, a function of (run seed, step),
  so none keeps its own; two turns that saw the same may still meet;
- ``random_words``  as many words as the facts have, drawn uniformly from the closed class of a policy with slots, from
  :data:`WORDS` for any other; a function of (run seed, step, task, page, sample, turn).

The last two are placebos: the same tokens trained, the content gone. Targets count where the encoded answer parts from
the encoded command alone, to the end of the block and without the end token, so that nothing is said about what may
follow a block. In a policy with slots a word may have no token in its turn: that token is left out, and counted. Turns
without a command, or without facts that follow, have no target, and are counted.

The mean is over all target tokens of the step, of all processes, fixed before the cut into microbatches; the softmax is
that of temperature 1, as in supervised training. Where the paper leaves it open (weight, tokens, draw) this is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headroom.agent.codec import Codec, EncodedPrompt, SlotCodec
from headroom.agent.dialect import LOCATION, OBJECTS
from headroom.agent.episode import Episode, Turn
from headroom.agent.grammar import MALFORMED
from headroom.config.models import Auxiliary
from headroom.seeds import generator

Facts = tuple[str, str]
"""What a block says: location, and whether objects are visible."""

_WORDS = (
    "anchor apple arrow autumn basket beach bell bird blanket boat bottle branch bread bridge brush butter button "
    "camera candle carpet castle chair cherry circle cloud coffee corner cotton cousin desert dinner doctor dragon "
    "engine evening family feather finger flower forest garden glass guitar hammer harbor honey island jacket kitchen "
    "ladder lemon letter library market mirror morning mountain needle ocean orange paper pencil pepper picture "
    "planet pocket rabbit river rocket saddle salt school shadow silver spring station stone summer table thunder "
    "ticket tower tunnel valley velvet village violin wagon water weather window winter"
)
WORDS = tuple(_WORDS.split())
"""What ``random_words`` draws from where the policy has its own tokenizer."""

COLUMNS = {
    "auxiliary_loss": "float64",
    "auxiliary_tokens": "int64",
    "auxiliary_skipped_turns": "int64",
    "auxiliary_skipped_tokens": "int64",
}
"""Columns of ``steps.parquet`` that only a run with an auxiliary loss has: the loss in nats a token, the mean over the
updates of a rollout and without its weight; the target tokens of a step; the turns without a target, and the tokens of
targets that were left out."""


@dataclass(frozen=True, slots=True)
class Target:
    """One turn's: ``prompt_ids`` int32 (P,), ``action_ids`` int32 (A,), ``trained`` float32 (A,), 1 on the tokens of
    the loss and else 0."""

    prompt_ids: npt.NDArray[np.int32]
    action_ids: npt.NDArray[np.int32]
    trained: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Targets:
    """The targets of a step, the same in every process."""

    items: list[Target] = field(default_factory=list)
    skipped_turns: int = 0
    skipped_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The denominator of the mean."""
        return int(sum(target.trained.sum() for target in self.items))

    def row(self, nats: float, passes: int) -> dict[str, Any]:
        """The columns of a step; ``nats`` were added up over so many passes."""
        mean = nats / (self.tokens * passes) if self.tokens and passes else None
        return {
            "auxiliary_loss": mean if mean is not None and np.isfinite(mean) else None,
            "auxiliary_tokens": self.tokens,
            "auxiliary_skipped_turns": self.skipped_turns,
            "auxiliary_skipped_tokens": self.skipped_tokens,
        }


def targets(episodes: Sequence[Episode], codec: Codec, settings: Auxiliary, *, seed: int, step: int) -> Targets | None:
    """The targets of the scored episodes of a step; None where there is no auxiliary loss.

    Args:
        episodes: all of the step that are scored, in its order; their turns know what followed them.
        codec: of the policy.
        settings: what the blocks say.
        seed: of the run.
        step: of the run, from 0.

    Raises:
        ValueError: a policy with slots has no word to draw.
    """
    if settings.kind == "none":
        return None
    turns = [
        (turn, true, (episode.task, episode.seed, episode.sample, number))
        for episode in episodes
        for number, turn in enumerate(episode.turns)
        if (true := _facts(turn)) is not None and codec.dialect.parse(turn.action_text).verb != MALFORMED
    ]
    said: list[Facts] = [true for _, true, _ in turns]
    if settings.kind == "shuffled":
        said = _shuffled(said, seed, step)
        turns = turns[: len(said)]
    elif settings.kind == "random_words":
        words = words_to_draw(codec)
        said = [_random(true, words, seed, step, *place) for _, true, place in turns]
    made = [_target(turn, facts, codec) for (turn, *_), facts in zip(turns, said, strict=True)]
    kept = [target for target, _ in made if target is not None]
    return Targets(
        kept, sum(len(episode.turns) for episode in episodes) - len(kept), sum(left_out for _, left_out in made)
    )


def cross_entropy(log_probabilities: Tensor, trained: Tensor) -> Tensor:
    """The sum of ``-ln pi`` over the tokens of the loss, in nats, a scalar with gradient.

    Args:
        log_probabilities: (B, A), with gradient.
        trained: (B, A), 1 on the tokens of the loss; what stands elsewhere is never read.
    """
    return -log_probabilities.masked_fill(trained.to(log_probabilities.device) == 0, 0.0).sum()


def _facts(turn: Turn) -> Facts | None:
    known = dict(turn.facts)
    return (known[LOCATION], known[OBJECTS]) if LOCATION in known and OBJECTS in known else None


def _shuffled(said: Sequence[Facts], seed: int, step: int) -> list[Facts]:
    """Every turn says what the next one on a random cycle through all of them saw; a lone turn says nothing."""
    if len(said) < 2:
        return []
    cycle = generator("auxiliary", seed, step).permutation(len(said))
    found = list(said)
    for here, other in zip(cycle, np.roll(cycle, -1), strict=True):
        found[here] = said[other]
    return found


def words_to_draw(codec: Codec) -> Sequence[str]:
    """What ``random_words`` draws from.

    Raises:
        ValueError: a policy with slots has none.
    """
    if not isinstance(codec, SlotCodec):
        return WORDS
    forced = codec.dialect.words  # the answer's own, in the vocabulary whatever was demonstrated
    words = sorted(word for word in codec.closed_words if word.isalnum() and word not in forced)
    if not words:
        raise ValueError("auxiliary.kind random_words: the policy has no closed-class word; lower model.closed_share")
    return words


def _random(true: Facts, words: Sequence[str], *place: str | int) -> Facts:
    chance = generator("auxiliary", *place)
    location, objects = (
        " ".join(words[draw] for draw in chance.integers(len(words), size=max(1, len(text.split())))) for text in true
    )
    return location, objects


def _target(turn: Turn, said: Facts, codec: Codec) -> tuple[Target | None, int]:
    """The target of a turn, and the tokens that were left out; None where nothing of the block can be written."""
    dialect, prompt = codec.dialect, EncodedPrompt(turn.prompt_ids, turn.table)
    command = dialect.parse(turn.action_text)
    alone = codec.encode_action(dialect.write(command, {}), prompt)[:-1]
    whole = codec.encode_action(dialect.write(command, dict(zip((LOCATION, OBJECTS), said, strict=True))), prompt)[:-1]
    shared = min(len(alone), len(whole))
    same = alone[:shared] == whole[:shared]
    trained = np.arange(len(whole)) >= (shared if same.all() else int(same.argmin()))
    writable = whole != codec.other_id if isinstance(codec, SlotCodec) else np.ones(len(whole), dtype=np.bool_)
    left_out = int((trained & ~writable).sum())
    trained &= writable
    return (Target(turn.prompt_ids, whole, trained.astype(np.float32)) if trained.any() else None), left_out
