"""The world that settings describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headroom.config.worlds import AlfWorldSettings, HiddenRuleSettings, MiniWobSettings
from headroom.worlds.base import CountingWorld, World

if TYPE_CHECKING:
    from headroom.config.worlds import WorldSettings


@contextmanager
def open_world(settings: WorldSettings, notes: dict[str, Any] | None = None) -> Iterator[World]:
    """A world for the length of a context.

    Args:
        settings: say which, and how it is played.
        notes: of the job's record; at the end they receive ``world``, what answering took, where a world says it.

    Raises:
        ValueError: what the world needs (a browser, an engine, released games) is not there; the message says what to
            install, or which setting to correct.
    """
    world = _world(settings)
    try:
        yield world
    finally:
        if notes is not None and (counts := world.counts()):
            notes["world"] = counts
        world.close()


def _world(settings: WorldSettings) -> CountingWorld:
    if isinstance(settings, MiniWobSettings):
        from headroom.worlds.miniwob.world import MiniWob

        return MiniWob(settings)
    if isinstance(settings, HiddenRuleSettings):
        from headroom.worlds.hidden_rule.world import HiddenRule

        return HiddenRule(settings)
    assert isinstance(settings, AlfWorldSettings)
    from headroom.worlds.alfworld.world import AlfWorld

    return AlfWorld(settings)
