"""Between text and token ids: one protocol, two codecs.

``SlotCodec`` serves the tiny model (:mod:`headroom.agent.slots`), ``PlainCodec`` a released one with its own
tokenizer and chat template. Both encode the same prompt text. ``decode_action`` needs the prompt because a slot has
a meaning in its turn only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headroom.agent import slots, tokenizer
from headroom.agent.dialect import WEB_PAGES, Dialect, read_dialect
from headroom.agent.prompt import HISTORY, PAGE
from headroom.agent.spoken import OURS as SLOTS_FILE
from headroom.agent.spoken import write_spoken
from headroom.files import write_json

Ids = npt.NDArray[np.int32]

VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files that hold a tokenizer's tokens; one is enough."""
ACTION_ROOM = 64  # tokens of the context that a prompt leaves for an action


@dataclass(frozen=True)
class EncodedPrompt:
    """``ids`` int32 (P,); ``table`` maps the slots of this turn (None for a codec without slots)."""

    ids: Ids
    table: slots.SlotTable | None = None


class Codec(Protocol):
    """What a policy needs to read and write; ids are int32."""

    @property
    def dialect(self) -> Dialect:
        """How its world's observations become prompts, and its answers actions."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Every id that ends an action; the first is the one that demonstrations end with."""
        ...

    @property
    def pad_id(self) -> int:
        """The id of padding, which is masked by position and never looked up."""
        ...

    @property
    def size(self) -> int:
        """The number of ids."""
        ...

    def encode_prompt(self, text: str) -> EncodedPrompt:
        """Encode a prompt; too long a page is cut at its end, never the goal or the history."""
        ...

    def encode_action(self, text: str, prompt: EncodedPrompt) -> Ids:
        """Encode an action with its end token."""
        ...

    def decode_action(self, ids: Sequence[int] | Ids, prompt: EncodedPrompt) -> str:
        """The action text; ids from the first end id on are ignored. Never raises."""
        ...

    def save(self, folder: Path) -> None:
        """Write what :func:`load_codec` needs."""
        ...


class SlotCodec:
    """The tiny model's codec. ``tokens`` is token -> id, ``limit`` the longest prompt in tokens."""

    def __init__(
        self,
        tokens: dict[str, int],
        *,
        slot_count: int,
        limit: int,
        files: Mapping[str, bytes] | None = None,
        dialect: Dialect = WEB_PAGES,
    ) -> None:
        """``files`` are those that the codec was read from, name -> content: they are what it is saved as."""
        self.tokens = tokens
        self.dialect = dialect
        self._files = files
        self._slot_count = slot_count
        self._limit = limit
        self._closed = frozenset(token for token in tokens if not (len(token) > 1 and token[0] in "[<"))
        self.other_id = tokens[slots.OTHER]

    @classmethod
    def build(
        cls,
        turns: Iterable[tokenizer.Turn],
        *,
        slot_count: int,
        closed_share: float,
        context: int,
        dialect: Dialect = WEB_PAGES,
    ) -> SlotCodec:
        """Make the vocabulary from training turns."""
        tokens = tokenizer.vocabulary(list(turns), slots=slot_count, closed_share=closed_share, words=dialect.words)
        return cls(tokens, slot_count=slot_count, limit=context - ACTION_ROOM, dialect=dialect)

    @property
    def closed_words(self) -> frozenset[str]:
        """The words, and the punctuation, that have a token of their own in every turn."""
        return self._closed

    @cached_property
    def _by_id(self) -> dict[int, str]:
        return {index: token for token, index in self.tokens.items()}

    @property
    def end_ids(self) -> tuple[int, ...]:
        return (self.tokens[slots.END],)

    @property
    def pad_id(self) -> int:
        return self.tokens[tokenizer.PAD]

    @property
    def size(self) -> int:
        return len(self.tokens)

    def _ids(self, tokens: Iterable[str]) -> list[int]:
        return [self.tokens.get(token, self.other_id) for token in tokens]

    def _slots(self, prompt: str) -> tuple[slots.SlotTable, slots.Lines]:
        return slots.slot_table(prompt, self._closed, self._slot_count, merging=self.dialect.merges)

    def slot_text(self, prompt: str) -> str:
        """The prompt as the tokenizer of the checkpoint reads it: tokens with spaces between."""
        table, lines = self._slots(prompt)
        return " ".join(slots.prompt_tokens(lines, table))

    def encode_prompt(self, text: str) -> EncodedPrompt:
        table, lines = self._slots(text)
        ids = self._ids(slots.prompt_tokens(lines, table))
        excess = len(ids) - self._limit
        if excess > 0:
            mark = self.tokens[slots.structure(HISTORY)]
            tail = len(ids) - ids.index(mark) if mark in ids else 1
            ids = ids[: max(0, self._limit - tail)] + ids[-tail:]
        return EncodedPrompt(np.asarray(ids, np.int32), table)

    def encode_action(self, text: str, prompt: EncodedPrompt) -> Ids:
        assert prompt.table is not None
        return np.asarray([*self._ids(slots.action_tokens(text, prompt.table)), self.end_ids[0]], np.int32)

    def decode_action(self, ids: Sequence[int] | Ids, prompt: EncodedPrompt) -> str:
        assert prompt.table is not None
        tokens = [self._by_id.get(int(index), slots.OTHER) for index in _until_end(ids, self.end_ids)]
        return slots.action_text(tokens, prompt.table, self.dialect)

    def save(self, folder: Path) -> None:
        write_spoken(self.dialect.name, folder)
        if self._files is not None:  # without the tokenizer library, whose import takes longer than a small evaluation
            for name, content in self._files.items():
                (folder / name).write_bytes(content)
            return
        tokenizer.save_tokenizer(folder, self.tokens)
        write_json(folder / SLOTS_FILE, {"format": 1, "prompt_limit": self._limit, "slots": self._slot_count})


class PlainCodec:
    """A released model's codec: its tokenizer, its chat template where it has one, thinking off."""

    def __init__(
        self,
        hf_tokenizer: Any,
        *,
        end_ids: Sequence[int] = (),
        limit: int | None = None,
        dialect: Dialect = WEB_PAGES,
    ) -> None:
        self._hf = hf_tokenizer
        self.dialect = dialect
        self._limit = limit
        ends = [hf_tokenizer.eos_token_id, *end_ids]
        self._ends = tuple(dict.fromkeys(int(end) for end in ends if end is not None))
        if not self._ends:
            raise ValueError("the tokenizer has no end token, and the generation config names none")

    @property
    def end_ids(self) -> tuple[int, ...]:
        return self._ends

    @property
    def pad_id(self) -> int:
        pad = self._hf.pad_token_id
        # Some tokenizers pad with their end token; masks go by position, so any id that cannot end an action will do.
        if pad is None or pad in self._ends:
            pad = next(index for index in range(len(self._ends) + 1) if index not in self._ends)
        return int(pad)

    @property
    def size(self) -> int:
        return len(self._hf)

    def _prompt_ids(self, text: str) -> list[int]:
        instructions = self.dialect.instructions
        if self._hf.chat_template:
            messages = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
            shown = self._hf.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
            return list(self._hf(shown, add_special_tokens=False)["input_ids"])
        return list(self._hf(f"{instructions}\n\n{text}\n")["input_ids"])

    def encode_prompt(self, text: str) -> EncodedPrompt:
        ids = self._prompt_ids(text)
        lines = text.split("\n")
        tail = next((i for i in range(len(lines) - 1, -1, -1) if lines[i] == HISTORY), len(lines) - 1)
        while self._limit is not None and len(ids) > self._limit and lines[tail - 1] != PAGE and tail > 1:
            # An eighth of the page at a time: few retries, and a cut that depends on the text alone.
            keep = tail - max(1, tail // 8)
            lines, tail = lines[:keep] + lines[tail:], keep
            ids = self._prompt_ids("\n".join(lines))
        return EncodedPrompt(np.asarray(ids, np.int32))

    def encode_action(self, text: str, prompt: EncodedPrompt) -> Ids:  # noqa: ARG002
        return np.asarray([*self._hf(text, add_special_tokens=False)["input_ids"], self._ends[0]], np.int32)

    def decode_action(self, ids: Sequence[int] | Ids, prompt: EncodedPrompt) -> str:  # noqa: ARG002
        kept = [int(index) for index in _until_end(ids, self._ends)]
        return str(self._hf.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)).strip()

    def save(self, folder: Path) -> None:
        write_spoken(self.dialect.name, folder)
        if self._limit is not None:  # so that what is trained on it later cuts the same pages at the same place
            self._hf.model_max_length = self._hf.init_kwargs["model_max_length"] = self._limit + ACTION_ROOM
        self._hf.save_pretrained(str(folder))


def _until_end(ids: Sequence[int] | Ids, ends: tuple[int, ...]) -> list[int]:
    kept = []
    for index in ids:
        if int(index) in ends:
            break
        kept.append(int(index))
    return kept


def load_codec(
    folder: Path, *, context: int | None = None, positions: int | None = None, dialect: Dialect | None = None
) -> Codec:
    """The codec of a checkpoint folder: slots where there is a ``slots.json``, else the folder's own tokenizer.

    Args:
        folder: of the checkpoint.
        context: tokens of a turn, default the length that the tokenizer was saved with; never more than ``positions``.
        positions: tokens that the model can tell apart, where that is known.
        dialect: of what the policy will be trained on; default the folder's own.

    Raises:
        ValueError: a file is missing or damaged, or names an unknown dialect; the message names it.
    """
    spoken = read_dialect(folder) if dialect is None else dialect
    path = folder / SLOTS_FILE
    if path.exists():
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
            count, limit = int(settings["slots"]), int(settings["prompt_limit"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}: cannot be read ({error!r}); the checkpoint is incomplete") from error
        files = {
            name: (folder / name).read_bytes() for name in (*tokenizer.FILES, SLOTS_FILE) if (folder / name).is_file()
        }
        tokens = tokenizer.read_vocabulary(folder)
        return SlotCodec(tokens, slot_count=count, limit=limit, files=files, dialect=spoken)
    if not any((folder / name).is_file() for name in VOCABULARIES):  # the library would make an empty one up
        raise ValueError(f"{folder}: holds no tokenizer (none of {', '.join(VOCABULARIES)}); copy it there, too")
    from transformers import AutoTokenizer, GenerationConfig

    try:
        hf_tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder}: holds no tokenizer ({error}); the checkpoint is incomplete") from error
    if hf_tokenizer.chat_template is None:
        hf_tokenizer.chat_template = _processor_template(folder)
    ends: list[int] = []
    if (folder / "generation_config.json").exists():
        eos = GenerationConfig.from_pretrained(str(folder)).eos_token_id
        ends = eos if isinstance(eos, list) else [eos] if eos is not None else []
    # What is asked for goes before what the tokenizer says; one that knows no length gives one of thirty digits.
    lengths = (positions, context if context is not None else int(hf_tokenizer.model_max_length))
    longest = min((length for length in lengths if length and length < 10**9), default=None)
    room = longest - ACTION_ROOM if longest is not None else None
    return PlainCodec(hf_tokenizer, end_ids=ends, limit=room, dialect=spoken)


def _processor_template(folder: Path) -> str | None:
    """The chat template that a vision-language checkpoint gives its processor alone, where it has one."""
    path = folder / "chat_template.json"
    if not path.is_file():
        return None
    try:
        template = json.loads(path.read_text(encoding="utf-8"))["chat_template"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: cannot be read ({error!r}); copy it again") from error
    if not isinstance(template, str):
        raise ValueError(
            f"{path}: chat_template must be one text, not a {type(template).__name__}; leave the one to use"
        )
    return template
