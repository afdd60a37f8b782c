"""Write ``envs/<kind>.linux-64.pin.txt``: the exact builds of every conda package of each environment.

    python tools/pins.py           solve with conda (it needs the channel conda-forge) and write
    python tools/pins.py --check   exit 1 when a pin file does not agree with its environment; none at all is no fault

Where a pin file is, Snakemake installs its packages and leaves the pip part out; so a script is written beside it,
``envs/<kind>.post-deploy.sh``, which Snakemake runs then, and which installs that part.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PLATFORM = "linux-64"

SCRIPT = """#!/usr/bin/env bash
# Written by tools/pins.py. From {pin} come conda packages alone: this adds the pip part.
set -euo pipefail
[ -f {name} ] || {{ echo "{name} is not in $PWD: start snakemake where it is" >&2; exit 1; }}
sed -n 's/^      - //p' {name} >"$CONDA_PREFIX/pip.txt"
python -m pip install --no-deps -r "$CONDA_PREFIX/pip.txt"
"""


def wanted(environment: Path) -> dict[str, str]:
    """The conda packages of an environment: name -> version."""
    content = yaml.safe_load(environment.read_text(encoding="utf-8"))
    return dict(item.split("=") for item in content["dependencies"] if isinstance(item, str))


def pinned(text: str) -> dict[str, str]:
    """The packages of an explicit list: name -> version."""
    return dict(re.findall(r"^\S+/([\w.-]+)-([^-/\s]+)-[^-/\s]+\.(?:conda|tar\.bz2)(?:#\w+)?$", text, re.MULTILINE))


def script(environment: Path) -> str:
    """What Snakemake runs after it has installed a pin file."""
    pin = environment.with_suffix(f".{PLATFORM}.pin.txt").name
    return SCRIPT.format(pin=pin, name=f"{environment.parent.name}/{environment.name}")


def faults(folder: Path) -> list[str]:
    """What is wrong with the pin files and scripts of ``folder``, one line each."""
    found = []
    for pin in sorted(folder.glob("*pin.txt")):
        environment = folder / f"{pin.name.partition('.')[0]}.yaml"
        if pin.name != f"{environment.stem}.{PLATFORM}.pin.txt" or not environment.is_file():
            found.append(f"{pin.name}: Snakemake looks for <environment>.{PLATFORM}.pin.txt beside <environment>.yaml")
            continue
        text = pin.read_text(encoding="utf-8")
        if "@EXPLICIT" not in text.splitlines():
            found.append(f"{pin.name}: has no line @EXPLICIT, so conda would solve it anew")
        packages = pinned(text)
        found.extend(
            f"{pin.name}: has {name} {packages.get(name, 'not at all')}, {environment.name} wants {version}"
            for name, version in wanted(environment).items()
            if packages.get(name) != version
        )
        deploy = environment.with_suffix(".post-deploy.sh")
        if not deploy.is_file() or deploy.read_text(encoding="utf-8") != script(environment):
            found.append(f"{deploy.name}: is not what installs the pip part of {environment.name}")
    alone = [
        deploy.name
        for deploy in sorted(folder.glob("*.post-deploy.sh"))
        if "-" not in deploy.name.partition(".")[0]  # of another world: written by tools/lock.py
        and not (folder / deploy.name.replace(".post-deploy.sh", f".{PLATFORM}.pin.txt")).is_file()
    ]
    return found + [f"{name}: there is no pin file that it belongs to" for name in alone]


def solve(packages: dict[str, str], channels: list[str]) -> str:
    """The explicit list that conda solves ``packages`` to.

    Raises:
        SystemExit: conda cannot; its own last lines say why.
    """
    with tempfile.TemporaryDirectory() as folder:
        file, prefix = Path(folder, "environment.yaml"), Path(folder, "prefix")
        content = {"channels": channels, "dependencies": [f"{name}={version}" for name, version in packages.items()]}
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        create = ["conda", "env", "create", "--quiet", "--file", str(file), "--prefix", str(prefix)]
        listing = ["conda", "list", "--explicit", "--md5", "--prefix", str(prefix)]
        for command in (create, listing):
            done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
            if done.returncode:
                said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
                raise SystemExit(f"pins: conda could not solve {packages} from {channels}; nothing was written\n{said}")
    return done.stdout


def write() -> None:
    """Every pin file and its script; each is written only when all could be solved."""
    if shutil.which("conda") is None:
        sys.exit("pins: there is no conda on the PATH: https://conda-forge.org/download, then type it again")
    info = json.loads(subprocess.run(["conda", "info", "--json"], capture_output=True, check=True).stdout)  # noqa: S607
    if info["platform"] != PLATFORM:
        sys.exit(f"pins: this is {info['platform']}; the environments are pinned for {PLATFORM}, on such a machine")
    solved: dict[tuple[tuple[str, str], ...], str] = {}
    files = {}
    for environment in sorted((ROOT / "envs").glob("*.yaml")):
        if "-" in environment.stem:  # of another world: its script is tools/lock.py's, and would be lost
            continue
        packages = wanted(environment)
        key = tuple(sorted(packages.items()))
        channels = yaml.safe_load(environment.read_text(encoding="utf-8"))["channels"]
        solved[key] = solved.get(key) or solve(packages, channels)
        files[environment.with_suffix(f".{PLATFORM}.pin.txt")] = solved[key]
        files[environment.with_suffix(".post-deploy.sh")] = script(environment)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote: {path.relative_to(ROOT)}\n")


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    if not parser.parse_args().check:
        write()
    found = faults(ROOT / "envs")
    sys.stderr.write("".join(f"pins: {line}\n" for line in found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
