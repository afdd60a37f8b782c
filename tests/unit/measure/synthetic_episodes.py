"""Synthetic episodes for the tests of the measures."""

from __future__ import annotations

import numpy as np

from headroom.agent.episode import Ending, Episode, Turn
from headroom.worlds.base import Outcome


def turn(outcome: Outcome = Outcome.OK, text: str = 'click button "Ok"') -> Turn:
    ids = np.zeros(1, np.int32)
    return Turn(ids, ids, np.zeros(1, np.float32), text, outcome)


def episode(task: str = "a", seed: int = 1, sample: int = 0, *, success: bool = True, broken: bool = False) -> Episode:
    ending = Ending.INFRASTRUCTURE if broken else Ending.DONE
    return Episode(task, seed, sample, (turn(), turn(Outcome.MALFORMED, "??")), float(success), success, ending)
