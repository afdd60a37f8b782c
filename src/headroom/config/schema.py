"""The committed JSON Schemas, generated from the models so that they cannot drift."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from headroom.config.models import Run, Settings, Study
from headroom.files import write_text
from headroom.provenance.schema import RunRecord

FOLDER = "workflow/schemas"

MODELS: dict[str, type[BaseModel]] = {
    "settings": Settings,
    "study": Study,
    "run": Run,
    "run_record": RunRecord,
}


def schemas() -> dict[str, str]:
    """Path relative to the project -> canonical text of the schema."""
    found = {}
    for name, model in MODELS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        found[f"{FOLDER}/{name}.schema.json"] = json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return found


def drift(project: Path) -> list[str]:
    """Paths whose committed text is not what the models say."""
    return [
        name
        for name, text in schemas().items()
        if not (project / name).is_file() or (project / name).read_text(encoding="utf-8") != text
    ]


def write(project: Path) -> list[str]:
    """Write the schemas that drifted; their paths."""
    changed = drift(project)
    for name in changed:
        write_text(project / name, schemas()[name])
    return changed
