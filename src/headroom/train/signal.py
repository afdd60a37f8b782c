"""Dense rewards beside the outcome: a potential a turn, and how it is paid (arXiv 2607.21273).

An answer may predict the observation that follows it. The prediction's score is the weighted share of the fields that
it has right,

    Phi_t = 0.5 [location right] + 0.5 [objects visible right],   in [0, 1],

and 0 where the answer predicts nothing. Two other signals take what an answer says beside it: ``anchor`` is 1 where it
answers a question about the state that it is in rightly, else 0, and ``confidence`` what it says of its own success, in
tenths over 9, 0 where it says none; nothing holds the agent to it. Each is paid each turn, with ``w`` the signal's
weight at the run's step, as

    w (Phi_t - Phi_{t-1}),  Phi_0 = 0   ``potential`` (Ng, Harada and Russell, ICML 1999, without discount)
    w Phi_t                             ``additive``

``noise`` puts a uniform number in Phi's place, a function of (run seed, task, page, sample, turn) alone: a potential
with nothing to learn, which tells the fault of a normaliser from the fault of a predictable signal. The cosine
schedule takes ``w`` to exactly 0 at the run's last step.

Deviations: fields are compared without regard to case and to runs of white space. How the paper pays for confidence and
for anchor questions is not known: both take the place of Phi here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from headroom.agent.dialect import ANCHOR, LOCATION, OBJECTS
from headroom.agent.episode import Episode
from headroom.config.training import Signal
from headroom.seeds import derive
from headroom.train.reward import Floats

SHARES: dict[str, float] = {LOCATION: 0.5, OBJECTS: 0.5}
"""Field of an observation -> its share of the score."""
PAID = {"prediction": "prediction_score", "confidence": "confidence", "anchor": "anchor_score"}
"""Kind of signal -> what of a turn is its potential; 0 where it is None."""


def prediction_score(prediction: Mapping[str, str], facts: Sequence[tuple[str, str]]) -> float | None:
    """How right a prediction of an observation with these ``facts`` is, in [0, 1]; None where there is no fact to
    predict, 0 where there is no prediction."""
    known = dict(facts)
    if not known.keys() & SHARES.keys():
        return None
    return sum(
        share
        for field, share in SHARES.items()
        if field in known and field in prediction and _plain(known[field]) == _plain(prediction[field])
    )


def anchor_score(answer: str | None, facts: Sequence[tuple[str, str]]) -> float | None:
    """1 if ``answer`` is the ``anchor`` of an observation with these ``facts``, else 0; None where it has none."""
    known = dict(facts)
    if ANCHOR not in known:
        return None
    return float(answer is not None and _plain(answer) == _plain(known[ANCHOR]))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def weight_at(signal: Signal, step: int, steps: int) -> float:
    """The signal's weight at ``step`` (from 0) of ``steps``: constant, or a cosine from its full size to exactly 0 at
    the last step; a run of one step has the full weight.

    Raises:
        ValueError: there is no such step.
    """
    if not 0 <= step < steps:
        msg = f"no weight of a signal at step {step} of {steps}"
        raise ValueError(msg)
    if signal.schedule == "constant" or steps == 1:
        return signal.weight
    return signal.weight * 0.5 * (1.0 + math.cos(math.pi * step / (steps - 1)))


def potentials(episode: Episode, signal: Signal, *, seed: int) -> Floats:
    """Phi of each turn of an episode of ``T`` turns, float64 (T,) in [0, 1].

    Args:
        episode: its turns carry their scores and what they say.
        signal: of the run; ``none`` gives zeros.
        seed: of the run; read by ``noise`` only.
    """
    if signal.kind in PAID:
        values = [getattr(turn, PAID[signal.kind]) or 0.0 for turn in episode.turns]
        return np.array(values, dtype=np.float64)
    if signal.kind == "noise":
        place = (seed, episode.task, episode.seed, episode.sample)
        draws = [derive("signal", *place, turn) / 2**63 for turn in range(len(episode.turns))]
        return np.array(draws, dtype=np.float64)
    return np.zeros(len(episode.turns))


def dense_reward(episode: Episode, signal: Signal, *, seed: int, step: int, steps: int) -> Floats:
    """What the signal pays for each turn of an episode of ``T`` turns, float64 (T,), in units of the reward.

    Args:
        episode: a scored episode.
        signal: how it is paid.
        seed: of the run.
        step: of the run, from 0.
        steps: of the whole run; the schedule's length.
    """
    phi = potentials(episode, signal, seed=seed)
    if signal.kind == "none":
        return phi
    paid = np.diff(phi, prepend=0.0) if signal.form == "potential" else phi
    return weight_at(signal, step, steps) * paid
