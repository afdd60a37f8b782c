"""The tiny model's vocabulary, made from training demonstrations only, as a plain Hugging Face tokenizer.

The tokenizer is a ``PreTrainedTokenizerFast`` (WordLevel, split at white space), so a checkpoint loads in plain
``AutoTokenizer``; what it tokenises is the *slot text* that :mod:`headroom.agent.slots` makes of a prompt. The
vocabulary, in this order: special tokens, slots, structure tokens of the grammar and of the training pages, and the
closed-class words.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from headroom.agent.grammar import VERBS
from headroom.agent.prompt import ACTION, ARROW, GOAL, HISTORY, PAGE
from headroom.agent.serialise import FILLED, ON, OPTIONS, VALUE
from headroom.agent.slots import END, OTHER, SEPARATOR, lexemes, read_lines, structure, words_of
from headroom.worlds.base import Outcome

FILES = ("tokenizer.json", "tokenizer_config.json")
"""What :func:`save_tokenizer` writes."""

PAD = "<pad>"
SPECIAL = (PAD, END, OTHER)
OCCURRENCES = 12  # "#1" ... have tokens; a higher number reads <other>
MINIMUM_EPISODES = 3  # in a few-shot task, a share alone would make a class of one coincidence

_FIXED = (
    *(word.rstrip() for word in (GOAL, PAGE, HISTORY, ACTION)),
    *VERBS,
    *(word for outcome in Outcome for word in outcome.value.split()),
    FILLED,
    OPTIONS,
    ON,
    VALUE,
    *(f"#{n}" for n in range(1, OCCURRENCES + 1)),
)


class Turn(NamedTuple):
    """What the vocabulary is counted on: one turn of one demonstration."""

    task: str
    seed: int
    prompt: str
    action: str


def closed_words(turns: Iterable[Turn], closed_share: float) -> list[str]:
    """Words that stand in at least ``closed_share`` of the episodes of some task (and in three), sorted."""
    episodes: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for turn in turns:
        lines = read_lines(turn.prompt)
        seen = episodes[turn.task][turn.seed]
        seen.update(words_of(lines.goal))
        for text in (*lines.strings(), *(lexeme.text for lexeme in lexemes(turn.action) if lexeme.quoted)):
            seen.update(words_of(text))
    closed: set[str] = set()
    for of_task in episodes.values():
        counts = Counter(word for words in of_task.values() for word in words)
        least = max(MINIMUM_EPISODES, math.ceil(closed_share * len(of_task)))
        closed.update(word for word, count in counts.items() if count >= least)
    return sorted(closed)


def structure_words(turns: Iterable[Turn]) -> list[str]:
    """Bare words (roles, states ...) of the training prompts and actions, and the fixed ones, sorted after those."""
    seen: set[str] = set()
    for turn in turns:
        for line in (*read_lines(turn.prompt).rest, lexemes(turn.action)):
            seen.update(lexeme.text for lexeme in line if not lexeme.quoted)
    fixed = list(dict.fromkeys(_FIXED))
    return fixed + sorted(word for word in seen - {*fixed, ARROW} if not word.startswith("#"))


def vocabulary(
    turns: Sequence[Turn], *, slots: int, closed_share: float, words: Collection[str] = ()
) -> dict[str, int]:
    """Token -> id; equal turns in any order give equal ids. ``words`` are of the closed class in any case."""
    tokens = (
        *SPECIAL,
        *(f"<s{slot}>" for slot in range(slots)),
        SEPARATOR,
        *map(structure, structure_words(turns)),
        *sorted({*closed_words(turns, closed_share), *words}),
    )
    return {token: index for index, token in enumerate(tokens)}


def save_tokenizer(folder: Path, tokens: dict[str, int]) -> None:
    """Write the files that ``AutoTokenizer.from_pretrained(folder)`` reads."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel(tokens, unk_token=OTHER))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=OTHER, clean_up_tokenization_spaces=False
    ).save_pretrained(str(folder))


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Token -> id from a saved tokenizer, without importing a tokenizer library.

    Raises:
        ValueError: the file is missing or is no WordLevel tokenizer; the message names it.
    """
    path = folder / "tokenizer.json"
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
        return {str(token): int(index) for token, index in tokens.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path}: cannot be read as a word-level tokenizer ({error}); the checkpoint is incomplete"
        raise ValueError(msg) from error
