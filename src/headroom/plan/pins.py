"""The exact commit of a model: asked of the hub, written into the scale's file, nothing else of it touched.

One request a model, ``GET /api/models/<name>/revision/main``; the answer's ``sha`` is the commit. No code and no weight
is fetched.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from headroom.config.resolve import load_yaml, scale_file
from headroom.files import write_text

SECONDS = 20.0
LARGEST = 10_000_000
"""Bytes of an answer that are read."""


def current(hub: str, name: str) -> str:
    """The commit of a model's main branch, 40 hexadecimal digits.

    Raises:
        ValueError: the hub cannot be asked, or gives no commit.
    """
    address = f"{hub.rstrip('/')}/api/models/{urllib.parse.quote(name)}/revision/main"
    if urllib.parse.urlsplit(address).scheme not in ("https", "http"):
        raise ValueError(f"--hub {hub}: is no web address; give one that starts with https://")
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310  the scheme is checked above
            content = json.loads(answer.read(LARGEST))
    except urllib.error.HTTPError as error:
        raise ValueError(f"{address}: answers {error.code} {error.reason}; correct model.name_or_path") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{address}: cannot be asked ({error}); try where the hub can be reached") from error
    sha = content.get("sha") if isinstance(content, dict) else None
    if not isinstance(sha, str) or not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise ValueError(f"{address}: gives no commit; is --hub a model hub?")
    return sha


def pin(project: Path, hub: str, *, only: str = "", update: bool = False) -> Iterator[str]:
    """Pin the models of the scales, all asked before anything is written; one line a file.

    Raises:
        ValueError: a file has no line to write to, there is no such scale, or the hub gives no answer.
    """
    paths = [project / scale_file(only)] if only else sorted((project / "workflow/scales").glob("*.yaml"))
    asked: dict[str, str] = {}
    changed: list[tuple[Path, str, str]] = []
    for path in paths:
        where = path.relative_to(project).as_posix()
        content = load_yaml(path, where)
        model = content.get("model") if isinstance(content, dict) else None
        name = model.get("name_or_path") if isinstance(model, dict) else None
        if not isinstance(name, str) or (project / name).is_dir():
            continue
        if isinstance(model, dict) and model.get("revision") and not update:
            yield f"{where}: {name} is pinned to {model['revision']}; --update asks for a newer one"
            continue
        text = path.read_text(encoding="utf-8")
        line = re.compile(r"^(  revision:)[^\n#]*", re.MULTILINE)
        if len(line.findall(text)) != 1:
            raise ValueError(f"{where}: model.revision: has no line of its own; write one, as `  revision: null`")
        if name not in asked:
            asked[name] = current(hub, name)
        changed.append((path, line.sub(rf"\g<1> {asked[name]}", text), f"{where}: {name} pinned to {asked[name]}"))
    for path, text, said in changed:
        write_text(path, text)
        yield said
