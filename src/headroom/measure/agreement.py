"""How far a policy has moved from its reference on the same tokens: argmax agreement, KL and CKA.

* Argmax agreement: the share of action tokens whose most likely token is the reference's, both reading the
  reference's own action (teacher forcing). ``first`` counts the first token of each action only.
* KL(policy || reference), the direction of the training penalty, and KL(reference || policy), nats a token.
* Linear CKA (Kornblith et al. 2019, arXiv 1905.00414) of hidden states X, Y (N, D) with centred columns:
  ||Y'X||_F^2 / (||X'X||_F ||Y'Y||_F); 1 for states equal up to rotation and scale.

Means over action tokens; intervals over episodes of the probe, because tokens of one episode resemble each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def log_softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Log-probabilities (N, V) in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)


def token_agreement(
    policy: npt.NDArray[np.float32], reference: npt.NDArray[np.float32], *, rows: int = 256
) -> dict[str, Floats]:
    """Per token (N,), from logits (N, V): ``argmax_agreement`` (0 or 1), ``kl_policy_reference`` and
    ``kl_reference_policy`` in nats. ``rows`` tokens are worked on at a time, which bounds the memory.

    Raises:
        ValueError: the shapes differ.
    """
    if policy.shape != reference.shape:
        raise ValueError(f"logits of shape {policy.shape} cannot be compared with {reference.shape}")
    out = {name: np.empty(len(policy)) for name in ("argmax_agreement", "kl_policy_reference", "kl_reference_policy")}
    for first in range(0, len(policy), rows):
        part = slice(first, first + rows)
        ours, theirs = log_softmax(policy[part]), log_softmax(reference[part])
        difference = ours - theirs
        out["argmax_agreement"][part] = policy[part].argmax(axis=-1) == reference[part].argmax(axis=-1)
        # Rounding can leave a KL of -1e-17 between equal distributions; it has no other way below zero.
        out["kl_policy_reference"][part] = np.maximum((np.exp(ours) * difference).sum(axis=-1), 0.0)
        out["kl_reference_policy"][part] = np.maximum(-(np.exp(theirs) * difference).sum(axis=-1), 0.0)
    return out


def linear_cka(states: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """Linear CKA of two sets of states (N, D1) and (N, D2), rows paired; NaN if either set is constant or not finite.

    Computed from the smaller of the feature and the sample Gram matrices.
    """
    x, y = (np.asarray(rows, dtype=np.float64) for rows in (states, reference))
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"{x.shape[0]} states cannot be paired with {y.shape[0]}")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    if max(x.shape[1], y.shape[1]) <= x.shape[0]:
        cross, own, other = (np.linalg.norm(a.T @ b) for a, b in ((y, x), (x, x), (y, y)))
        similarity = cross**2
    else:
        gram_x, gram_y = x @ x.T, y @ y.T
        similarity, own, other = (gram_x * gram_y).sum(), np.linalg.norm(gram_x), np.linalg.norm(gram_y)
    scale = float(own * other)
    if not np.isfinite(scale) or scale == 0.0:
        return float("nan")
    return float(similarity / scale)


def episode_interval(
    values: npt.ArrayLike, episode: npt.ArrayLike, weights: npt.NDArray[np.float64], confidence: float
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean over values (N,), whole episodes resampled.

    ``episode`` int (N,) numbers the episodes 0 .. E-1; ``weights`` (draws, E) says how often each is drawn.
    """
    numbers, index = np.asarray(values, dtype=np.float64), np.asarray(episode)
    sums = np.bincount(index, numbers, weights.shape[1])
    counts = np.bincount(index, minlength=weights.shape[1])
    means = (weights @ sums) / (weights @ counts)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)
