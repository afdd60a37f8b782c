"""Our HiddenRule needs nothing installed."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _chromium() -> None:
    """In place of the other worlds' browser."""
