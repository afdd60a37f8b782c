"""Settings of the worlds that an agent acts in: one model a world, told apart by ``kind``."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from headroom.config.base import NonNegative, Positive, Strict

LISTING = "games.sha256"
"""In the folder of the released games, the SHA-256 of each: what decides which games a study plays."""


class MiniWobSettings(Strict):
    """MiniWoB++ in Chromium."""

    kind: Literal["miniwob"] = "miniwob"
    tabs: Positive = Field(48, description="Pages kept open in one browser, about 4 MB each.")
    horizon: Positive = Field(10, description="Turns after which an episode ends as a failure.")
    success_above: float = Field(0.99, ge=-1.0, le=1.0, description="Success is done and raw reward above this.")
    memo_megabytes: NonNegative = Field(256, description="Bound on remembered observations; 0 turns the memo off.")
    share_memory: bool = Field(
        False,
        description="Remember observations on disk for the other jobs of the study, where all run on one machine. No "
        "result depends on it: one in 256 is played all the same and compared.",
    )
    tries: Positive = 3
    call_timeout_seconds: float = Field(20.0, gt=0)


class AlfWorldSettings(Strict):
    """ALFWorld's text engine, on scenes that are generated here or on the released games."""

    kind: Literal["alfworld"] = "alfworld"
    horizon: Positive = Field(50, description="Turns after which an episode ends as a failure.")
    success_above: float = Field(0.5, ge=-1.0, le=1.0, description="Success is done and raw reward above this.")
    games: Literal["generated", "released"] = Field(
        "generated", description="generated: synthetic scenes, never called ALFWorld; released: the published games."
    )
    data: Annotated[str, AfterValidator(os.path.expanduser)] | None = Field(
        None, description="Folder of the released games, ~ for home; required for games: released."
    )
    receptacles: Positive = Field(8, description="Receptacles of a generated scene, at most.")
    objects: Positive = Field(8, description="Objects of a generated scene, at most.")
    list_commands: bool = Field(True, description="The observation lists the commands that the game would accept.")
    memo_megabytes: NonNegative = Field(256, description="Bound on remembered observations; 0 turns the memo off.")


class HiddenRuleSettings(Strict):
    """Our HiddenRule: rooms, devices, and a rule that is not told. It needs nothing installed."""

    kind: Literal["hidden_rule"] = "hidden_rule"
    horizon: Positive = Field(30, description="Turns after which an episode ends as a failure; 2 a room at least.")
    success_above: float = Field(0.5, ge=-1.0, le=1.0, description="Success is done and raw reward above this.")
    rooms: int = Field(5, ge=3, le=10, description="Rooms of a scene.")
    devices: int = Field(6, ge=3, le=12, description="Devices of a scene, the goal's included.")
    list_commands: bool = Field(True, description="The observation lists the commands that the game accepts.")
    memo_megabytes: NonNegative = Field(64, description="Bound on remembered observations; 0 turns the memo off.")

    @model_validator(mode="after")
    def _can_be_won(self) -> Self:
        # Across the house to the rule's device, back to the goal's, and a command at each.
        if self.horizon < 2 * self.rooms:
            raise ValueError(
                f"horizon: is {self.horizon}, but a scene of {self.rooms} rooms may take {2 * self.rooms} turns; "
                "raise it, or lower rooms"
            )
        return self


WorldSettings = Annotated[MiniWobSettings | AlfWorldSettings | HiddenRuleSettings, Field(discriminator="kind")]
"""The settings of any world."""
