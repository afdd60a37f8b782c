"""The task pages of the installed ``miniwob`` package, and what is special about some of them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

EXCLUDED: dict[str, str] = {
    "use-colorwheel": "its page needs core/jscolor, which is GPL",
    "use-colorwheel-2": "its page needs core/jscolor, which is GPL",
}
"""Task pages that are left out, with the reason.

Outside this folder the package also holds the flight.* pages, of another size and an external booking site's code:
they are no MiniWoB++ core task and are not looked at.
"""

REBUILD: frozenset[str] = frozenset(
    {
        "book-flight",
        "book-flight-nodelay",
        "choose-date",
        "choose-date-easy",
        "choose-date-medium",
        "choose-date-nodelay",
        "click-menu-2",
        "focus-text-2",
        "form-sequence",
        "scroll-text",
        "scroll-text-2",
        "search-engine",
        "simon-says",
        "use-autocomplete",
        "use-autocomplete-nodelay",
        "use-slider",
        "use-slider-2",
        "use-spinner",
    }
)
"""Tasks whose page keeps state when it is reset in place: its body and its scripts start again (``rebuild.js``)."""

RELOAD: frozenset[str] = frozenset({"chase-circle", "click-pie", "click-pie-nodelay", "moving-items"})
"""Tasks whose drawing library keeps an animation running: the page is loaded anew for each episode."""


@cache
def page_folder() -> Path:
    """Folder of the task pages, inside the installed ``miniwob`` package."""
    return Path(str(files("miniwob"))) / "html" / "miniwob"


def _loadable() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in page_folder().glob("*.html") if path.stem not in EXCLUDED))


TASKS: tuple[str, ...] = _loadable()
"""Names of all tasks that load, sorted."""
