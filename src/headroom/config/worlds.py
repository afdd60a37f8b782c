"""Settings of the worlds that an agent acts in: one model a world, told apart by ``kind``."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

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


WorldSettings = Annotated[MiniWobSettings | AlfWorldSettings, Field(discriminator="kind")]
"""The settings of any world."""
