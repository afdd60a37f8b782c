"""Where a browser is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.worlds.miniwob.chromium import ChromiumNotFound, find_chromium


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any browser."""
    monkeypatch.delenv("HEADROOM_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    monkeypatch.setattr("headroom.worlds.miniwob.chromium._in_tools", list)
    return tmp_path


def test_the_environment_variable_comes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = executable(bare / "bin" / "chromium")
    assert find_chromium() == on_path
    named = executable(bare / "my-chrome")
    monkeypatch.setenv("HEADROOM_CHROMIUM", str(named))
    assert find_chromium() == named


def test_the_headless_shell_comes_before_a_full_browser(bare: Path) -> None:
    executable(bare / "bin" / "google-chrome")
    shell = executable(bare / "bin" / "chromium-headless-shell")
    assert find_chromium() == shell


def test_playwrights_browser_is_found(bare: Path) -> None:
    shell = executable(bare / "playwright" / "chromium_headless_shell-1200" / "chrome-linux" / "headless_shell")
    assert find_chromium() == shell


def test_a_browser_unpacked_by_the_set_up_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADROOM_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    shell = executable(tmp_path / ".tools" / "chromium" / "chrome-headless-shell")
    monkeypatch.chdir(tmp_path)
    assert find_chromium() == shell


def test_a_wrong_variable_is_said_and_not_silently_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(bare / "bin" / "chromium")
    monkeypatch.setenv("HEADROOM_CHROMIUM", str(bare / "absent"))
    with pytest.raises(ChromiumNotFound, match="HEADROOM_CHROMIUM"):
        find_chromium()


def test_without_a_browser_the_message_says_what_to_type(bare: Path) -> None:
    with pytest.raises(ChromiumNotFound, match="make setup") as raised:
        find_chromium()
    assert "HEADROOM_CHROMIUM" in str(raised.value)
