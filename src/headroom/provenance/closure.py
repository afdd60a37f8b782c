"""The source files that can change a stage's result: its module, everything it imports from this package, and the
data files beside them.

Every stage's rule has its closure as input, so an edit reruns exactly the stages that read the edited file. It is one
input, a list of digests (:class:`Lists`): the sources of a thousand jobs would be most of what Snakemake looks at.
Imports are read from the syntax tree, those inside functions and ``if TYPE_CHECKING`` included: the closure is static
and may only be too large. A package on the way (``headroom/train/__init__.py``) belongs to it too.

One thing is known beforehand: a job whose settings name a world (``world.kind``) opens no other. So the modules that
only another kind has (:data:`WORLDS`) are left out of its closure, though ``headroom.worlds.open`` imports them all.
"""

from __future__ import annotations

import ast
import secrets
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from headroom.provenance.digest import sha256_file, sha256_text

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the package ``headroom``."""

DATA_FILES = {"headroom.worlds.seeds": ("workflow/data/seeds.tsv",)}
"""Project files that a module reads although they do not lie beside it."""

WORLDS: Mapping[str, tuple[str, ...]] = {
    "miniwob": ("headroom.worlds.miniwob.",),
    "alfworld": ("headroom.worlds.alfworld.", "headroom.agent.text_game."),
    "hidden_rule": ("headroom.worlds.hidden_rule.", "headroom.agent.text_game."),
}
"""Kind of world -> beginnings of the names of what only its jobs can load, or those of worlds that name it too, a dot
behind each."""

ENGINES: Mapping[str, tuple[str, ...]] = {
    "miniwob": ("miniwob",),
    "alfworld": ("alfworld", "fast-downward-textworld", "textworld"),
}
"""Kind of world -> the packages that play it."""

DIALECTS = {"web pages": "miniwob", "text game": "alfworld", "hidden rule": "hidden_rule"}
"""What an agent is taught to read and write -> the kind of world that it is for; a test holds it to the agent's own."""

WITHOUT_EFFECT = ("headroom.config.", "headroom.provenance.")
"""Modules that cannot change a result. Records say how it was made; the settings' models reach a job only through the
bytes of its resolved file, which is an input of its own. An edit there reruns nothing."""


@cache
def _module_file(name: str, source: Path) -> Path | None:
    base = source.joinpath(*name.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache
def _imports(path: Path, name: str, is_package: bool) -> frozenset[str]:
    """Names of this package that ``path`` imports: modules, and members that may be modules."""
    found: set[str] = set()
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return frozenset(item for item in found if item.split(".")[0] == "headroom")


def world_of(content: object) -> str | None:
    """The kind of the world that a job's settings (their JSON) name, or the one whose dialect they name; None without
    either, or where it is not known."""
    if isinstance(content, dict) and content.get("dialect") in DIALECTS:
        return DIALECTS[content["dialect"]]
    world = content.get("world") if isinstance(content, dict) else None
    kind = world.get("kind") if isinstance(world, dict) else None
    return kind if kind in WORLDS else None


def _others(world: str | None) -> tuple[str, ...]:
    """Beginnings of the modules that a job in this world cannot load."""
    if world is None:
        return ()
    return tuple(begin for begins in WORLDS.values() for begin in begins if begin not in WORLDS[world])


def modules(stage: str, source: Path = SOURCE, world: str | None = None) -> dict[str, Path]:
    """Modules that ``headroom.<stage>`` reaches, itself included: dotted name -> file, sorted.

    Args:
        stage: A module without the package's name.
        source: The folder that holds the package.
        world: The kind of world that the job's settings name; what only others load is left out. None: nothing is.

    Raises:
        ValueError: there is no such module.
    """
    start = f"headroom.{stage}"
    if _module_file(start, source) is None:
        raise ValueError(f"there is no module {start} under {source}")
    found: dict[str, Path] = {}
    waiting, others = [start], _others(world)
    while waiting:
        name = waiting.pop()
        path = _module_file(name, source)
        if path is None or name in found or (others and f"{name}.".startswith(others)):
            continue
        found[name] = path
        waiting.extend(_imports(path, name, path.name == "__init__.py"))
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append(parent)
    return dict(sorted(found.items()))


def files(stage: str, source: Path = SOURCE, world: str | None = None) -> list[Path]:
    """Files of the closure, sorted: modules, data files beside them, and declared project files."""
    found: set[Path] = set()
    for name, path in modules(stage, source, world).items():
        if f"{name}.".startswith(WITHOUT_EFFECT):
            continue
        found.add(path)
        found.update(source.parent / extra for extra in DATA_FILES.get(name, ()))
        if path.name != "__init__.py":
            found.update(
                beside
                for beside in path.parent.iterdir()
                if beside.is_file() and beside.suffix not in (".py", ".pyc", ".typed", ".md") and beside.name[0] != "."
            )
    return sorted(found)


def digests(stage: str, source: Path = SOURCE, world: str | None = None) -> dict[str, str]:
    """Relative path -> sha256 of every file of the closure."""
    return {path.relative_to(source.parent).as_posix(): sha256_file(path) for path in files(stage, source, world)}


def listing(of: Mapping[str, str]) -> str:
    """A closure as ``sha256sum --check`` reads it: one line a file, sorted by path."""
    return "".join(f"{value}  {name}\n" for name, value in sorted(of.items()))


def digest(of: Mapping[str, str]) -> str:
    """One sha256 for a closure: that of its listing."""
    return sha256_text(listing(of))


class Lists:
    """Closures as Snakemake inputs: one small file a stage, written where the sources are no longer what it says.

    Snakemake compares it by content, so an edit that is taken back makes nothing stale, and neither does a touch. A job
    that started in between is the exception: its record has the edited sources, which ``headroom stale`` sees. The
    sha256 of a list is the ``sources.sha256`` of the records that the stage writes.
    """

    def __init__(self, project: Path, folder: str, worlds: Mapping[str, str] | None = None) -> None:
        """``folder``: where the lists lie, relative to the project, with ``/``; ``worlds``: stage -> the kind of world
        that its jobs' settings name, of those that name one."""
        self.project, self.folder, self.worlds = project, folder, dict(worlds or {})
        self.sources = cache(self._sources)
        """Stage -> its list, relative to the project. Read once, as the rules are."""

    def _sources(self, stage: str) -> str:
        name = f"{self.folder}/{stage}.sha256"
        path = self.project / name
        text = listing(digests(stage, self.project / "src", self.worlds.get(stage)))
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            # Moved into place: the jobs of a cluster read the rules too, many at a time.
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(path)
        return name
