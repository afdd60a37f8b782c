"""Find a Chromium to drive; never download one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

NAMES = (
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)


class ChromiumNotFound(RuntimeError):  # noqa: N818 - reads as the sentence it says
    """No Chromium on this machine; the message says what to type."""

    def __init__(self, looked: str = "") -> None:
        super().__init__(
            f"no Chromium found{looked}. Type one of:\n"
            "  make setup                                   (installs one into .tools/)\n"
            "  sudo apt-get install chromium-headless-shell (Debian, Ubuntu)\n"
            "  export HEADROOM_CHROMIUM=/path/to/chrome     (one you have)"
        )


def find_chromium() -> Path:
    """The browser to use: ``HEADROOM_CHROMIUM``, the PATH, ``.tools/`` in the project, Playwright's cache.

    Raises:
        ChromiumNotFound: none of them has one, or the environment variable names no executable file.
    """
    if named := os.environ.get("HEADROOM_CHROMIUM"):
        path = Path(named)
        if _executable(path):
            return path
        raise ChromiumNotFound(f": HEADROOM_CHROMIUM={named} is not an executable file")
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    for path in (*_in_tools(), *_in_playwright_cache()):
        if _executable(path):
            return path
    raise ChromiumNotFound


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _in_tools() -> list[Path]:
    """Browsers that the project's set-up unpacked, found from the working directory upwards."""
    here = Path.cwd()
    roots = [folder / ".tools" for folder in (here, *here.parents, *Path(__file__).resolve().parents)]
    return [path for root in roots if root.is_dir() for name in NAMES for path in sorted(root.rglob(name))]


def _in_playwright_cache() -> list[Path]:
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")) if os.environ.get("PLAYWRIGHT_BROWSERS_PATH") else None
    root = root or Path.home() / ".cache" / "ms-playwright"
    patterns = (
        "chromium_headless_shell-*/*/headless_shell",
        "chromium_headless_shell-*/*/*shell*",
        "chromium-*/*/chrome",
    )
    return [path for pattern in patterns for path in sorted(root.glob(pattern), reverse=True)]
