"""A bounded memory of observations: the world is a function, so an answer can be kept."""

from __future__ import annotations

import sys
from collections import OrderedDict

from headroom.worlds.base import History, Observation

OVERHEAD_BYTES = 200  # of an entry: the dictionary's slot and the key's objects, measured roughly


def size_of(observation: Observation) -> int:
    """Bytes that an observation takes, roughly; strings are counted at every place where they stand."""
    total = sys.getsizeof(observation.utterance) + OVERHEAD_BYTES
    for element in observation.elements:
        total += 120 + sys.getsizeof(element.name) + sys.getsizeof(element.value)
        total += sum(map(len, element.options)) + 60 * len(element.options)
    return total


class Memo:
    """Least recently used observations by history, within a number of bytes; 0 keeps nothing."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity = capacity_bytes
        self.bytes = 0
        self.hits = 0
        self._kept: OrderedDict[History, tuple[Observation, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, history: History) -> Observation | None:
        """The observation kept for a history, or None."""
        entry = self._kept.get(history)
        if entry is None:
            return None
        self._kept.move_to_end(history)
        self.hits += 1
        return entry[0]

    def peek(self, history: History) -> Observation | None:
        """As :meth:`get`, but it counts as no use."""
        entry = self._kept.get(history)
        return entry[0] if entry else None

    def put(self, history: History, observation: Observation) -> None:
        """Keep an observation; forget the least recently used ones above the bound. Failures are never kept."""
        if observation.failure:
            return
        size = size_of(observation) + 100 * len(history.actions)
        if size > self.capacity:
            return
        if history in self._kept:
            self.bytes -= self._kept.pop(history)[1]
        self._kept[history] = (observation, size)
        self.bytes += size
        while self.bytes > self.capacity:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed
