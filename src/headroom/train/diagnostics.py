"""What a step reports: one row, from the rollout (rewards and outcomes) and from the update (ratios and gradients).

Numbers that could not be measured (a success rate without a scored episode, a KL without a reference, a loss that is
not finite) are None, which Parquet holds as null; nothing is reported as 0 that was not measured as 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headroom.agent.episode import Ending, Group, Turn
from headroom.config.models import Grpo
from headroom.train.advantage import Floats, Scope
from headroom.train.auxiliary import COLUMNS as AUXILIARY
from headroom.train.checkpoint import shard
from headroom.train.dark_room import FAILING, SPREADS, failing_groups, part_spreads
from headroom.train.loss import TokenLoss
from headroom.train.processes import ALONE, Processes
from headroom.train.reward import Reward, scored
from headroom.worlds.base import Outcome

Row = dict[str, Any]


class Trained(Protocol):
    """A model, or whatever else knows the trained parameters."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """Each parameter once."""
        ...


def outcome_column(outcome: Outcome) -> str:
    """Column that holds the share of turns with this outcome."""
    return "outcome_" + outcome.value.replace(" ", "_")


def larger(a: float, b: float) -> float:
    """The larger of two numbers; NaN if either is: ``max(0.0, nan)`` would report a number that was not measured."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _mean(values: Sequence[float]) -> float | None:
    return _finite(float(np.mean(values))) if len(values) else None


def said_row(turns: Sequence[Turn]) -> Row:
    """Means over the turns that have them: how right predictions and answers to the anchor question are, in [0, 1],
    and the confidence that is said, in [0, 1]; None where no turn has any."""
    names = ("prediction_score", *ASKED)
    values = {name: [value for turn in turns if (value := getattr(turn, name)) is not None] for name in names}
    return {name: _mean(found) for name, found in values.items()}


def rollout_row(
    groups: Sequence[Group],
    rewards: Sequence[Sequence[Reward]],
    advantages: list[list[Floats]],
    scope: Scope = "trajectory",
) -> Row:
    """The columns that are known before the update.

    ``rewards`` and ``advantages`` are those of the scored episodes of each group, in order. ``live_groups`` is the
    share of groups with an advantage other than 0; ``all_fail_groups`` that of groups in which no scored episode
    succeeds. ``reward_spread`` is the mean over groups of the deviation of the episodes' returns inside the group, and
    ``reward_spread_failing`` the same over all-fail groups, where only penalty and dense signal can differ.
    ``spread_failing`` (:func:`part_spreads`, with each part's own) is that of the samples of ``scope``: in
    ``trajectory`` the same number, in ``pooled_step`` that of single turns, which ``group_std`` divides by there.
    ``prediction_score``, ``anchor_score`` and ``confidence`` are means over turns (:func:`said_row`), ``horizon_share``
    is the share of episodes that ran to the turn limit.
    """
    episodes = [episode for group in groups for episode in group.episodes if scored(episode)]
    turns = [turn for episode in episodes for turn in episode.turns]
    outcomes = Counter(turn.outcome for turn in turns)
    flat = [reward for group in rewards for reward in group]
    every_advantage = np.concatenate([np.zeros(0), *(turns for group in advantages for turns in group)])
    live = [any((turns != 0.0).any() for turns in group) for group in advantages]
    failing = [not any(episode.success for episode in group.episodes if scored(episode)) for group in groups]
    spread = [float(np.std([reward.episode_return for reward in group])) if group else 0.0 for group in rewards]
    return {
        "success": _mean([episode.success for episode in episodes]),
        "reward_mean": _mean([reward.episode_return for reward in flat]),
        "reward_success": _mean([reward.success for reward in flat]),
        "reward_penalty": _mean([float(reward.penalty.sum()) for reward in flat]),
        "reward_prediction": _mean([float(reward.prediction.sum()) for reward in flat]),
        "reward_spread": _mean(spread),
        "reward_spread_failing": _mean([value for value, fails in zip(spread, failing, strict=True) if fails]),
        "live_groups": _mean(live),
        "all_fail_groups": _mean(failing),
        "advantage_mean": _mean(every_advantage.tolist()),
        "advantage_max": _finite(float(np.abs(every_advantage).max(initial=0.0))),
        "turns_mean": _mean([len(episode.turns) for episode in episodes]),
        "horizon_share": _mean([episode.ending is Ending.HORIZON for episode in episodes]),
        **said_row(turns),
        **part_spreads(rewards, failing, scope),
        "action_tokens": sum(len(turn.action_ids) for turn in turns),
        "excluded_episodes": sum(not scored(episode) for group in groups for episode in group.episodes),
        "invalid_share": _mean([turn.outcome.invalid for turn in turns]),
        **{outcome_column(kind): outcomes[kind] / len(turns) if turns else None for kind in Outcome},
    }


def signal_row(
    groups: Sequence[Group], rewards: Sequence[Sequence[Reward]], advantages: list[list[Floats]], settings: Grpo
) -> Row:
    """The columns :data:`FAILING` of a run with a dense signal; none of a run without."""
    if settings.signal.kind == "none":
        return {}
    failing = [not any(episode.success for episode in group.episodes if scored(episode)) for group in groups]
    scope, scale, epsilon = settings.advantage_scope, settings.advantage_scale, settings.advantage_epsilon
    return dict(failing_groups(rewards, advantages, failing, scope=scope, scale=scale, epsilon=epsilon))


@dataclass
class TokenStatistics:
    """Sums over the agent's tokens of the microbatches of a step, all its updates together.

    ``approx_kl`` is k3 between the policy and the one that collected (joschu.net/blog/kl-approx.html, as in CleanRL);
    ``kl`` is k3 to the reference. Clip shares are of all tokens. ``sampler_gap`` is the largest distance between a
    log-probability of the sampler and the trainer's before the first update: rounding, or a bug. Of the truncated
    importance weights, mean and share at the cap are reported; without another engine there are none. ``auxiliary`` are
    the nats of the auxiliary loss, which ``loss`` does not contain.
    """

    tokens: int = 0
    loss: float = 0.0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    ratio_max: float = 0.0
    sampler_gap: float = 0.0
    auxiliary: float = 0.0

    def add(
        self,
        result: TokenLoss,
        entropy: Tensor,
        mask: Tensor,
        *,
        with_reference: bool,
        importance: Tensor | None = None,
        cap: float | None = None,
    ) -> None:
        """Add one microbatch: ``entropy`` and ``importance`` float (B, A), ``mask`` bool (B, A)."""
        self.tokens += int(mask.sum())
        self.loss += float(result.loss.detach())
        self.ratio_max = larger(self.ratio_max, float(result.ratio[mask].max()))
        parts = {
            "ratio_mean": result.ratio,
            "approx_kl": result.log_ratio.expm1() - result.log_ratio,
            "clip_low_share": result.clipped_low,
            "clip_high_share": result.clipped_high,
            "entropy": entropy,
        }
        if with_reference:
            parts["kl"] = result.kl
        if importance is not None and cap is not None:
            parts |= {"importance_mean": importance, "importance_capped_share": importance >= cap}
        for name, values in parts.items():
            self.sums[name] += float(values[mask].sum(dtype=torch.float64))

    def merge(self, other: TokenStatistics) -> None:
        """Add the microbatches of another process."""
        self.tokens, self.loss = self.tokens + other.tokens, self.loss + other.loss
        self.ratio_max = larger(self.ratio_max, other.ratio_max)
        self.sampler_gap = larger(self.sampler_gap, other.sampler_gap)
        self.auxiliary += other.auxiliary
        for name, value in other.sums.items():
            self.sums[name] += value

    def row(self, updates: int) -> Row:
        """The columns of the update; ``updates`` passes over the rollout were added."""
        names = (
            "ratio_mean", "clip_low_share", "clip_high_share", "approx_kl", "kl", "entropy", "importance_mean",
            "importance_capped_share",
        )  # fmt: skip
        means = {name: _finite(self.sums[name] / self.tokens) if name in self.sums else None for name in names}
        return {
            **means,
            "ratio_max": _finite(self.ratio_max) if self.tokens else None,
            "sampler_gap": _finite(self.sampler_gap) if self.tokens else None,
            "loss": _finite(self.loss / updates) if updates else None,
        }


def snapshot(model: Trained) -> list[Tensor]:
    """A copy of the trained parameters (of this process's shards), each once, in the model's order; on the processor,
    where a large model's does not crowd out training."""
    return [shard(value).detach().clone().cpu() for value in model.parameters() if value.requires_grad]


def weight_change(model: Trained, initial: list[Tensor], processes: Processes = ALONE) -> float | None:
    """The norm of (weights - initial weights) over the norm of the initial weights; None if it is not finite."""
    current = [shard(value).detach() for value in model.parameters() if value.requires_grad]
    moved = sum(float((a - b.to(a.device)).double().square().sum()) for a, b in zip(current, initial, strict=True))
    size = sum(float(b.double().square().sum()) for b in initial)
    moved, size = (sum(parts) for parts in zip(*processes.gather((moved, size)), strict=True))
    return _finite(math.sqrt(moved / size))


COLUMNS: dict[str, str] = {
    "step": "int64",
    "learning_rate": "float64",
    **dict.fromkeys(
        (
            "success", "reward_mean", "reward_success", "reward_penalty", "reward_prediction", "reward_spread",
            "reward_spread_failing", "live_groups", "all_fail_groups", "advantage_mean", "advantage_max", "ratio_mean",
            "ratio_max", "clip_low_share", "clip_high_share", "kl", "approx_kl", "entropy", "loss", "gradient_norm",
            "sampler_gap", "canary_gap", "importance_mean", "importance_capped_share", "weight_change", "turns_mean",
            "invalid_share",
        ),
        "float64",
    ),
    **{outcome_column(kind): "float64" for kind in Outcome},
    "action_tokens": "int64",
    "excluded_episodes": "int64",
    "updates": "int64",
    "skipped": "bool",
    "skip_reason": "str",
    **dict.fromkeys((*SPREADS, "prediction_score", "horizon_share"), "float64"),
    "early_warning": "bool",
}  # fmt: skip
"""Columns of ``steps.parquet`` and their types."""

ASKED = ("anchor_score", "confidence")
"""Further columns, float64, of a run in a world that asks for them; elsewhere the table is without."""

TIMES = ("seconds_world", "seconds_sync", "seconds_generate", "seconds_score", "seconds_backward", "seconds_step")
"""Columns of ``timing.parquet`` beside ``step``: wall seconds of a step by phase; the only part that no seed fixes."""


def steps_table(rows: Sequence[Row]) -> pd.DataFrame:
    """``steps.parquet`` of a run; every row has every column. A run with an auxiliary loss has its columns too; those
    of :data:`ASKED` that no step measured are left out; the lists of a run with a signal stand last."""
    asked = {name: "float64" for name in ASKED if any(row.get(name) is not None for row in rows)}
    columns = COLUMNS | asked | (AUXILIARY if rows and AUXILIARY.keys() <= rows[0].keys() else {})
    table = pd.DataFrame({name: [row[name] for row in rows] for name in columns}).astype(columns)
    lists = [name for name in FAILING if rows and name in rows[0]]
    return table.assign(**{name: [row[name] for row in rows] for name in lists})


def timing_table(rows: Sequence[Row]) -> pd.DataFrame:
    """``timing.parquet`` of a run."""
    names = ("step", *TIMES)
    return pd.DataFrame({name: [row[name] for row in rows] for name in names}).astype({"step": "int64"})


def step_line(row: Row, times: Sequence[Row], steps: int) -> str:
    """One line for the screen: where the run is, how it does, and when it will be done."""
    recent = [time["seconds_step"] for time in times[-10:]]
    left = (steps - len(times)) * sum(recent) / len(recent)

    def number(name: str) -> str:
        return "-" if row[name] is None else f"{row[name]:.3g}"

    names = ["success", "live_groups", "invalid_share", "entropy", "kl", "gradient_norm", "weight_change"]
    names += ["auxiliary_loss"] if "auxiliary_loss" in row else []
    shown = "  ".join(f"{name.replace('_', ' ')} {number(name)}" for name in names)
    skipped = f"  skipped: {row['skip_reason']}" if row["skipped"] else ""
    return f"step {len(times)}/{steps}  {shown}  {recent[-1]:.2f} s  ETA {left:.0f} s{skipped}"
