"""One row of a run table: what distinguishes a run from its scale's recipe. A study has one kind of row.

The gate's are in ``workflow/data/runs.tsv`` (:class:`Run`), the dark room's in ``workflow/data/dark_room.tsv``
(:class:`Arm`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from headroom.config.base import NonNegative, Positive, Strict
from headroom.config.training import Auxiliary, Signal

Family = Literal["grid", "replication", "group_size", "headroom", "collapse", "schedule"]
ABSENT = "-"
"""A cell of a run that has no dense signal, or no auxiliary loss."""


def _digits(cell: object) -> object:
    """Refuse what Python alone would read as a whole number: ``+1``, ``1_0``, `` 1``, ``01``."""
    if isinstance(cell, str) and not re.fullmatch(r"0|[1-9][0-9]*", cell):
        raise ValueError("must be written in digits alone")
    return cell


Digits = BeforeValidator(_digits)


class Run(Strict):
    """One row of ``workflow/data/runs.tsv``."""

    run: str = Field(pattern=r"^[a-z][a-z0-9_]*-[0-9]{2,3}$")
    family: Family
    tasks: Literal["mastered", "headroom", "all"]
    init: str = Field(description="Name of the SFT job that the run starts from.")
    learning_rate: str = Field(description="A level; each scale says what it is worth.")
    schedule: Literal["constant", "cosine"]
    kl_beta: float = Field(ge=0)
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    group_size: Annotated[Positive, Digits]
    seed: Annotated[NonNegative, Digits]

    @property
    def cell(self) -> tuple[object, ...]:
        """All that decides what the run does: no two rows share it."""
        return tuple(value for key, value in self.model_dump().items() if key not in ("run", "family"))

    def shown(self, learning_rates: Mapping[str, float]) -> dict[str, str]:
        """The row for a screen, column -> text; ``learning_rates``: level -> rate at a scale."""
        return {
            "run": self.run,
            "tasks": self.tasks,
            "init": self.init,
            "learning rate": f"{self.learning_rate} {learning_rates[self.learning_rate]:g}",
            "schedule": self.schedule,
            "KL": f"{self.kl_beta:g}",
            "clip": f"{self.clip_low:g}/{self.clip_high:g}",
            "group": str(self.group_size),
            "seed": str(self.seed),
        }

    def recipe(self) -> dict[str, Any]:
        """The keys of ``Grpo`` that the row sets, but for the learning rate, which the scale gives its level."""
        return self.model_dump(exclude={"family", "learning_rate"})


class Arm(Strict):
    """One row of ``workflow/data/dark_room.tsv``. A run without a signal has ``-`` where a signal's settings stand,
    one without an auxiliary loss in the place of its weight."""

    run: str = Field(pattern=r"^arm-[0-9]{2,3}$")
    family: Literal["dark_room"]
    arm: str = Field(pattern=r"^[a-z][a-z ,-]*[a-z]$", description="Short name; its rows differ in their seed alone.")
    signal: Literal["none", "prediction", "noise", "confidence", "anchor"]
    form: Literal["potential", "additive", "-"]
    weight: str = Field(pattern=r"^(-|[0-9]{1,4}(\.[0-9]{1,9})?)$", description="lambda.")
    schedule: Literal["constant", "cosine", "-"] = Field(description="Of the weight.")
    channel: Literal["added", "decoupled", "-"]
    advantage_scale: Literal["none", "group_std", "batch_std"]
    auxiliary: Literal["none", "prediction", "shuffled", "random_words"]
    auxiliary_weight: str = Field(pattern=r"^(-|[0-9]{1,4}(\.[0-9]{1,9})?)$")
    seed: Annotated[NonNegative, Digits]

    @model_validator(mode="after")
    def _possible(self) -> Arm:
        given = {name: getattr(self, name) for name in ("form", "weight", "schedule", "channel")}
        for name, value in given.items():
            if (value == ABSENT) != (self.signal == "none"):
                must = f"must be {ABSENT!r}" if self.signal == "none" else "must say which"
                raise ValueError(f"{name}: with signal {self.signal!r} it {must}")
        if self.signal != "none" and float(self.weight) == 0:
            raise ValueError("weight: a signal of weight 0 is none; write signal 'none'")
        if self.channel == "decoupled" and self.advantage_scale == "none":
            raise ValueError("channel: without a scale a decoupled channel is an added one; write 'added'")
        if (self.auxiliary_weight == ABSENT) != (self.auxiliary == "none"):
            must = f"must be {ABSENT!r}" if self.auxiliary == "none" else "must say which"
            raise ValueError(f"auxiliary_weight: with auxiliary {self.auxiliary!r} it {must}")
        if self.auxiliary != "none" and float(self.auxiliary_weight) == 0:
            raise ValueError("auxiliary_weight: a loss of weight 0 is none; write auxiliary 'none'")
        return self

    @property
    def init(self) -> str:
        """Every arm starts from the supervised policy."""
        return "sft"

    @property
    def cell(self) -> tuple[object, ...]:
        """All that decides what the run does: no two rows share it, however they write a weight."""
        written = {name: getattr(self, name) for name in ("weight", "auxiliary_weight")}
        said = self.model_dump() | {name: value if value == ABSENT else float(value) for name, value in written.items()}
        return tuple(value for key, value in said.items() if key not in ("run", "family", "arm"))

    @property
    def setting(self) -> tuple[object, ...]:
        """What the rows of an arm share."""
        return self.cell[:-1]

    def shown(self, learning_rates: Mapping[str, float]) -> dict[str, str]:  # noqa: ARG002
        """The row for a screen, column -> text."""
        return {
            "run": self.run,
            "arm": self.arm,
            "signal": self.signal,
            "form": self.form,
            "weight": self.weight,
            "schedule": self.schedule,
            "channel": self.channel,
            "advantage": self.advantage_scale,
            "auxiliary": self.auxiliary,
            "its weight": self.auxiliary_weight,
            "seed": str(self.seed),
        }

    def recipe(self) -> dict[str, Any]:
        """The keys of ``Grpo`` that the row sets."""
        signal = (
            Signal()
            if self.signal == "none"
            else Signal.model_validate(
                {
                    "kind": self.signal,
                    "form": self.form,
                    "weight": self.weight,
                    "schedule": self.schedule,
                    "channel": self.channel,
                }
            )
        )
        auxiliary = (
            Auxiliary()
            if self.auxiliary == "none"
            else Auxiliary(kind=self.auxiliary, weight=float(self.auxiliary_weight))
        )
        return {
            "run": self.run,
            "init": self.init,
            "seed": self.seed,
            "signal": signal.model_dump(),
            "auxiliary": auxiliary.model_dump(),
            "advantage_scale": self.advantage_scale,
        }


Row = Run | Arm
