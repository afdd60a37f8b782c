"""A test double of ``python -m pip``: links what the project's own environment has installed, at exactly that version.

``channel.py`` ships it as the package ``pip`` of the stub channel, with the line below filled in. A job in a stub
environment therefore imports what its environment pins and nothing else.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

INSTALLED = "@INSTALLED@"
"""The folder of installed packages that stands for the index."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[0] != "install" or "-r" not in arguments:
        raise SystemExit(f"pip stand-in: does not know {arguments}")
    index = {canonical(item.metadata["Name"]): item for item in distributions(path=[INSTALLED])}
    site = Path(sys.prefix, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    site.mkdir(parents=True, exist_ok=True)
    for line in Path(arguments[arguments.index("-r") + 1]).read_text().split():
        name, _, version = line.partition("==")
        found = index.get(canonical(name))
        if found is None or found.version.partition("+")[0] != version:
            have = f"only {found.version}" if found else "no version"
            raise SystemExit(f"ERROR: No matching distribution found for {line}: here is {have}")
        for top in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.is_symlink():
                link.symlink_to(Path(INSTALLED, top))


main()
