"""Every setting that was ours to choose, with the value that the jobs of a scale really read.

``workflow/data/deviations.yaml`` holds the words; the values come from the resolved settings, ``file#key`` under
``results/<scale>/config``, so that the table cannot say anything else than what ran.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import yaml
from pydantic import Field, TypeAdapter, ValidationError

from headroom.config.models import Strict

ABSENT = "(not part of this scale)"
COLUMNS = ["setting", "paper", "ours", "reason", "read_from"]


class Deviation(Strict):
    """One row: what the paper says, what this project does, why, and where the values stand."""

    setting: str
    paper: str
    ours: str
    reason: str
    study: Literal["gate", "dark room"] | None = Field(None, description="The only study that it is about; none: any.")
    values: dict[str, str] = Field(default_factory=dict, description="name in `ours` -> file#key, or a product of two")


def read_deviations(path: Path) -> tuple[Deviation, ...]:
    """The rows of the file.

    Raises:
        SystemExit: the file cannot be read or is not such a list.
    """
    try:
        return TypeAdapter(tuple[Deviation, ...]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise SystemExit(f"{path}: not a list of deviations ({str(error).splitlines()[0]})") from error


def settings_files(rows: Sequence[Deviation]) -> list[str]:
    """Every settings file that the values stand in, without its ending, each once."""
    found = [place.strip() for row in rows for value in row.values.values() for place in value.split("*")]
    return list(dict.fromkeys(place.partition("#")[0] for place in found))


def look_up(folder: Path, place: str) -> Any:
    """The value at ``file#key`` under the folder of resolved settings; ``a * b`` is the product of two numbers.

    A job that the scale does not have gives :data:`ABSENT`.

    Raises:
        SystemExit: the file has no such key.
    """
    if "*" in place:
        factors = [look_up(folder, part.strip()) for part in place.split("*")]
        return ABSENT if ABSENT in factors else math.prod(factors)
    name, _, key = place.partition("#")
    path = folder / f"{name}.json"
    if not path.is_file():
        return ABSENT
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list) else value[part]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SystemExit(f"{path}: has no setting {key}; correct workflow/data/deviations.yaml") from error
    return value


def said(value: Any) -> str:
    """A value in words: lists by their length, but by their members inside a mapping; mappings as name and value."""
    if isinstance(value, dict):
        if not value:
            return "none"
        order = sorted(value.items(), key=lambda item: (isinstance(item[1], str), item[1] if _number(item[1]) else 0))
        return ", ".join(f"{name.replace('_', ' ')} {_member(part)}" for name, part in order if name != "kind")
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")


def _member(value: Any) -> str:
    return " and ".join(map(said, value)) if isinstance(value, list) else said(value)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def table(rows: Sequence[Deviation], folder: Path, study: str = "gate") -> pd.DataFrame:
    """The table of deviations at one scale of a study, with the columns :data:`COLUMNS`."""
    found = []
    for row in rows:
        if row.study not in (None, study):
            continue
        values = {name: said(look_up(folder, place)) for name, place in row.values.items()}
        alone = bool(values) and set(values.values()) == {ABSENT}
        ours = ABSENT if alone else row.ours.format(**values)
        found.append((row.setting, row.paper, ours, row.reason, "; ".join(row.values.values())))
    return pd.DataFrame(found, columns=COLUMNS)
