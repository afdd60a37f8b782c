"""Without the engine, one line says what to type."""

from __future__ import annotations

import importlib.util

import pytest

from headroom.config.worlds import AlfWorldSettings
from headroom.worlds.alfworld import package
from headroom.worlds.alfworld.world import AlfWorld
from headroom.worlds.base import World
from headroom.worlds.open import open_world


def test_a_missing_package_is_one_line_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    absent = ("textworld", "fast_downward")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in absent else there(name, *more))
    with pytest.raises(ValueError) as caught, open_world(AlfWorldSettings()):
        pass
    assert str(caught.value) == (
        "world.kind: alfworld needs textworld, fast_downward, not installed here; "
        "type ./setup.sh --alfworld (or make setup-alfworld)"
    )
    assert isinstance(caught.value, package.EngineMissingError)


def test_the_settings_open_the_world(engine_here: None) -> None:
    with open_world(AlfWorldSettings()) as world:
        assert isinstance(world, AlfWorld)
        assert isinstance(world, World)
