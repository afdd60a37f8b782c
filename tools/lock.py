"""Write the locks from what is installed: ``requirements/{main,dev}.txt`` and ``envs/<kind>.yaml``.

    python tools/lock.py           write them
    python tools/lock.py --check   exit 1 when a lock is not what is installed

Every file is a complete, exact freeze: the named packages of pyproject.toml and everything that they need. A job's rule
lists its environment's file as input, so a new seaborn redraws figures and a new torch trains again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11.11"
"""The interpreter of the conda environments."""

MARKERS = {"python_version": "3.11", "python_full_version": PYTHON, "sys_platform": "linux", "extra": ""}


def canonical(name: str) -> str:
    """The name by which an index knows a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(names: Iterable[str]) -> dict[str, str]:
    """Packages that ``names`` need, themselves included: canonical name -> installed version without a local part."""
    found: dict[str, str] = {}
    waiting = [Requirement(name) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        key = (canonical(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        installed = distribution(wanted.name)
        found[key[0]] = installed.version.partition("+")[0]
        for text in installed.requires or ():
            needed = Requirement(text)
            marker = needed.marker
            extras = ("", *wanted.extras)
            if marker is None or any(marker.evaluate({**MARKERS, "extra": extra}) for extra in extras):
                waiting.append(needed)
    return dict(sorted(found.items()))


def lines(packages: dict[str, str], indent: str = "") -> str:
    """One exact pin a line."""
    return "".join(f"{indent}{name}=={version}\n" for name, version in packages.items())


def locks() -> dict[str, str]:
    """Path relative to the project -> text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    main = closure(project["project"]["dependencies"])
    dev = closure(project["project"]["optional-dependencies"]["dev"])
    head = "# Written by tools/lock.py from what is installed. To change it: pyproject.toml, install, run it.\n"
    found = {
        "requirements/main.txt": head + lines(main),
        "requirements/dev.txt": head + lines({name: version for name, version in dev.items() if name not in main}),
    }
    for kind, names in project["tool"]["headroom"]["environments"].items():
        pins = lines(closure(names), "      - ")
        found[f"envs/{kind}.yaml"] = (
            f"{head}name: headroom-{kind}\nchannels:\n  - conda-forge\n  - nodefaults\n"
            f"dependencies:\n  - python={PYTHON}\n  - pip=26.2\n  - pip:\n{pins}"
        )
    return found


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    check = parser.parse_args().check
    drifted = []
    for name, text in locks().items():
        path = ROOT / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            drifted.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{'differs' if check else 'wrote'}: {name}\n" for name in drifted))
    sys.exit(1 if check and drifted else 0)


if __name__ == "__main__":
    main()
