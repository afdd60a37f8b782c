"""A test double of the program ``conda``: the calls that Snakemake makes, with a real solver and a channel of stubs.

It is not conda. Packages come from the folder that ``CONDA_STAND_IN_CHANNEL`` names in place of conda-forge, solved and
linked by py-rattler; ``channel.py`` fills that folder with stubs of exactly the pinned versions. So it shows that
Snakemake makes, activates and uses the environments of the rules, and never that a version exists on conda-forge.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "24.7.1"
"""The oldest that Snakemake takes, so that nothing newer is relied on."""


def option(*names: str) -> str:
    """The value behind the first of ``names`` on the command line."""
    for name in names:
        if name in sys.argv:
            return sys.argv[sys.argv.index(name) + 1].strip()
    raise SystemExit(f"conda stand-in: {' or '.join(names)} is missing: {sys.argv[1:]}")


def channel() -> str:
    return os.environ["CONDA_STAND_IN_CHANNEL"]


async def install(prefix: Path, specs: list[str]) -> list[str]:
    """Solve ``specs`` in the channel and link the packages into ``prefix``; their addresses."""
    from rattler import Gateway, VirtualPackage, solve
    from rattler import install as link

    cache = Path(channel()).parent / "cache"
    records = await solve(
        sources=[Path(channel()).as_uri()],
        specs=specs,
        gateway=Gateway(cache_dir=cache),
        platforms=["linux-64", "noarch"],
        virtual_packages=VirtualPackage.detect(),
    )
    prefix.mkdir(parents=True, exist_ok=True)
    await link(records, prefix, cache_dir=cache, show_progress=False)
    return [str(record.url) for record in records]


def create(prefix: Path, file: Path) -> None:
    """``conda env create`` from a yaml, or ``conda create`` from an explicit list, which has no pip part."""
    pip: list[str] = []
    if file.suffix == ".yaml":
        import yaml

        content = yaml.safe_load(file.read_text())
        if content["channels"] != ["conda-forge", "nodefaults"]:
            raise ValueError(f"{file}: the stand-in has conda-forge alone, not {content['channels']}")
        specs = [item for item in content["dependencies"] if isinstance(item, str)]
        pip = [line for item in content["dependencies"] if isinstance(item, dict) for line in item["pip"]]
        asyncio.run(install(prefix, specs))
    else:
        wanted = [line.partition("#")[0] for line in file.read_text().splitlines() if "://" in line]
        packages = [re.fullmatch(r".*/([\w.-]+)-([^-/]+)-([^-/]+)\.tar\.bz2", url) for url in wanted]
        urls = asyncio.run(
            install(prefix, [f"{found[1]}[version='=={found[2]}', build='{found[3]}']" for found in packages if found])
        )
        if sorted(urls) != sorted(wanted):
            raise ValueError(f"{file}: asks for {wanted}, the channel has {urls}")
    if pip:
        listed = prefix / "pip.txt"
        listed.write_text("\n".join(pip) + "\n")
        subprocess.run([prefix / "bin/python", "-m", "pip", "install", "-r", listed], check=True)


def main() -> int:
    call = sys.argv[1:]
    if call == ["--version"]:
        print(f"conda {VERSION}")
    elif call[:1] == ["info"]:
        root = Path(sys.argv[0]).parent.parent
        print(json.dumps({"conda_prefix": str(root), "platform": "linux-64", "conda_version": VERSION}))
    elif call[:1] == ["clean"]:
        pass
    elif call[:1] == ["config"]:
        print(json.dumps({"get": {"channel_priority": "strict"}}))
    elif call[:2] == ["list", "--explicit"]:
        records = [json.loads(path.read_text()) for path in Path(option("--prefix")).glob("conda-meta/*.json")]
        print("@EXPLICIT")
        print("\n".join(sorted(f"{record['url']}#{record['md5']}" for record in records)))
    elif call[:2] == ["env", "create"] or call[:1] == ["create"]:
        prefix = Path(option("--prefix", "-p"))
        try:
            create(prefix, Path(option("--file", "-f")))
        except Exception as error:
            shutil.rmtree(prefix, ignore_errors=True)
            print(f"{type(error).__name__}: {error}")
            return 1
    else:
        print(f"conda stand-in: does not know {call}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # py-rattler may abort when the interpreter ends
