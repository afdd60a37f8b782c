"""The world that settings describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom.config.worlds import AlfWorldSettings, MiniWobSettings
from headroom.worlds.base import OpenWorld

if TYPE_CHECKING:
    from headroom.config.worlds import WorldSettings


def open_world(settings: WorldSettings) -> OpenWorld:
    """A world; use it as a context, which releases what it holds.

    Raises:
        ValueError: what the world needs (a browser, an engine, released games) is not there; the message says what to
            install, or which setting to correct.
    """
    if isinstance(settings, MiniWobSettings):
        from headroom.worlds.miniwob.world import MiniWob

        return MiniWob(settings)
    assert isinstance(settings, AlfWorldSettings)
    from headroom.worlds.alfworld.world import AlfWorld

    return AlfWorld(settings)
