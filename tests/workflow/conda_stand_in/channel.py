"""Fill a folder with stubs of conda packages: ``channel.py FOLDER INTERPRETER INSTALLED ENVIRONMENT...``.

There is one of each package that an environment pins. ``python`` is INTERPRETER under another prefix, so its version
is that of this machine, whatever is pinned; ``pip`` is ``pip_stand_in.py``; any other is a file with its name.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import yaml
from rattler.index import index_fs

HERE = Path(__file__).parent


def pack(folder: Path, name: str, version: str, files: dict[str, str], links: dict[str, str]) -> None:
    """Write ``name-version-0.tar.bz2`` with ``files`` (path -> text) and symbolic ``links`` (path -> target)."""
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": [], "subdir": folder.name}
    index |= {"noarch": "generic"} if folder.name == "noarch" else {"arch": "x86_64", "platform": "linux"}
    paths = [
        {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(text.encode()).hexdigest(),
         "size_in_bytes": len(text.encode())}
        for path, text in files.items()
    ] + [
        {"_path": path, "path_type": "softlink", "sha256": hashlib.sha256(b"").hexdigest(), "size_in_bytes": 0}
        for path in links
    ]  # fmt: skip
    about = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "".join(f"{path}\n" for path in (*files, *links)),
    }
    with tarfile.open(folder / f"{name}-{version}-0.tar.bz2", "w:bz2") as archive:
        for path, text in {**about, **files}.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for path, target in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)


def main(channel: Path, interpreter: Path, installed: Path, *environments: str) -> None:
    for subdir in ("noarch", "linux-64"):
        (channel / subdir).mkdir(parents=True, exist_ok=True)
    pinned = set()
    for name in environments:
        content = yaml.safe_load(Path(name).read_text())
        pinned |= {tuple(item.split("=")) for item in content["dependencies"] if isinstance(item, str)}
    for name, version in sorted(pinned):
        files, links, subdir = {f"share/stubs/{name}.txt": f"stub of {name} {version}\n"}, {}, "noarch"
        if name == "python":
            files["pyvenv.cfg"] = f"home = {interpreter.parent}\ninclude-system-site-packages = false\n"
            links, subdir = {"bin/python": str(interpreter), "bin/python3": str(interpreter)}, "linux-64"
        elif name == "pip":
            text = (HERE / "pip_stand_in.py").read_text().replace("@INSTALLED@", str(installed))
            files[f"lib/{installed.parent.name}/site-packages/pip/__main__.py"] = text
        pack(channel / subdir, name, version, files, links)
    asyncio.run(index_fs(channel))


if __name__ == "__main__":
    main(*(Path(name) for name in sys.argv[1:4]), *sys.argv[4:])
    sys.stdout.flush()
    os._exit(0)  # py-rattler may abort when the interpreter ends
