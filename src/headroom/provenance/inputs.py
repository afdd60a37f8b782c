"""The inputs of a job: digested, checked against the manifests that made them, traced to the runs that made them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headroom.config.worlds import LISTING
from headroom.provenance import manifest
from headroom.provenance.digest import sha256_file
from headroom.provenance.manifest import MANIFEST, RECORD, FileEntry
from headroom.provenance.project import absolute, relative, root
from headroom.provenance.schema import Config, Input, Parent, parse


def flat(inputs: Mapping[str, Path | Sequence[Path]]) -> Iterator[tuple[str, Path]]:
    """Name each path: a list of inputs becomes name.0, name.1, ..."""
    for name, value in inputs.items():
        if isinstance(value, Path):
            yield name, value
        else:
            yield from ((f"{name}.{index}", path) for index, path in enumerate(value))


def read_config(path: Path) -> Config:
    """The resolved settings as the record holds them."""
    try:
        content = path.read_bytes()
        return Config(path=relative(path), sha256=sha256_file(path), content=json.loads(content))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as JSON ({error}); run snakemake, which writes it") from error


def games_of(config: Config | None) -> dict[str, Path]:
    """The listing of the released games that a job's world plays, as an input; the world holds each game against it."""
    world = config.content.get("world") if config is not None and isinstance(config.content, dict) else None
    if not isinstance(world, dict) or world.get("games") != "released" or not isinstance(world.get("data"), str):
        return {}
    path = Path(world["data"]) / LISTING
    return {"games": path} if path.is_file() else {}


def read_input(name: str, path: Path) -> Input:
    """Digest one input, and refuse a directory that no longer is what its manifest says."""
    if path.is_file():
        found = manifest.entry(path)
        return Input(name=name, path=relative(path), kind="file", sha256=found.sha256, size=found.size, files={})
    if not path.is_dir():
        raise SystemExit(
            f"{path}: does not exist, and --{name.partition('.')[0]} needs it; run snakemake, which makes it"
        )
    files = manifest.build(path)
    declared = _declared(path)
    if declared is not None and (lines := manifest.differences(declared, files)):
        whole = relative(_owner(path) or path)  # a part alone would not be made again
        raise SystemExit(f"{path}: is not what its manifest says ({lines[0]}); delete {whole} and run snakemake")
    size = sum(item.size for item in files.values())
    return Input(
        name=name, path=relative(path), kind="directory", sha256=manifest.digest(files), size=size, files=files
    )


def _owner(path: Path) -> Path | None:
    """The result directory that ``path`` lies in: the nearest folder, itself included, with a manifest."""
    for folder in (path, *list(path.absolute().parents)[:4]):
        if (folder / MANIFEST).is_file():
            return folder
    return None


def _declared(path: Path) -> dict[str, FileEntry] | None:
    owner = _owner(path)
    if owner is None:
        return None
    try:
        declared = manifest.load(owner / MANIFEST)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    inside = absolute(path).relative_to(absolute(owner)).as_posix()
    prefix = "" if inside == "." else f"{inside}/"
    return {name.removeprefix(prefix): item for name, item in declared.items() if name.startswith(prefix)}


def _record_of(path: Path) -> Path | None:
    """The run record that belongs to an input, if one is there."""
    owner = _owner(path)
    if owner is not None:
        return owner / RECORD if (owner / RECORD).is_file() else None
    beside = path.parent.parent / "records" / f"{path.stem}.data.run.json"
    return beside if path.parent.name == "data" and beside.is_file() else None


def parents(inputs: Sequence[Input]) -> list[Parent]:
    """The runs that made the inputs, sorted by the path of their record."""
    found: dict[str, Parent] = {}
    for item in inputs:
        record = _record_of(root() / item.path)
        if record is None or relative(record) in found:
            continue
        try:
            run = parse(record.read_bytes(), relative(record))
        except ValueError as error:
            raise SystemExit(f"{error}; delete the folder and run snakemake") from error
        name = relative(record)
        found[name] = Parent(record=name, stage=run.stage, attempt=run.attempt, manifest_sha256=run.manifest_sha256)
    return [found[name] for name in sorted(found)]
