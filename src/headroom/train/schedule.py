"""The learning rate as a pure function of the step (linear warm-up, then constant or cosine)."""

from __future__ import annotations

import math
from typing import Literal


def learning_rate(
    step: int, *, peak: float, schedule: Literal["constant", "cosine"], warmup_steps: int, total_steps: int
) -> float:
    """Return the learning rate of optimiser step ``step``, counted from 0.

    Warm-up rises linearly and reaches ``peak`` at step ``warmup_steps`` (step 0 already moves: its rate is
    ``peak / (warmup_steps + 1)``). The cosine (arXiv 1608.03983, one cycle, floor 0) runs over the steps after the
    warm-up and would be 0 at step ``total_steps``; later steps stay at 0.

    Raises:
        ValueError: a negative step, or a schedule without a single step.
    """
    if step < 0 or warmup_steps < 0 or total_steps <= 0:
        msg = f"no learning rate for step {step} of {total_steps} with {warmup_steps} warm-up steps"
        raise ValueError(msg)
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    if schedule == "constant":
        return peak
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
