"""Read ``config.yaml``, a scale's numbers and the run table, and check them as a whole.

A fault is one line: file, key, remedy.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from headroom.config.models import (
    AlfWorldSettings,
    Arm,
    HiddenRuleSettings,
    PretrainedModel,
    Row,
    Run,
    Settings,
    Strict,
    Study,
    WorldSettings,
)

RUNS_TABLE = "workflow/data/runs.tsv"
SETTINGS_FILE = "config.yaml"
SUPERVISED = "sft"
"""The SFT job that every contrast refers to and that the grid starts from."""

_ROWS: dict[str, type[Row]] = {"gate": Run, "dark room": Arm}
"""Study -> what a row of its run table is."""

_FROM_THE_TABLE = {
    "gate": frozenset(Run.model_fields) - {"family"} | {"warmup_steps"},
    "dark room": frozenset({"run", "init", "seed", "signal", "auxiliary", "advantage_scale"}),
}
"""Study -> the keys of ``Grpo`` that a row sets, which a scale must not."""

ALFWORLD_TASKS = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of game, as ALFWorld's data names them."""

Model = TypeVar("Model", bound=Strict)


class ConfigError(ValueError):
    """A setting is wrong; the message is one line that names the file, the key and the remedy."""


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key given twice is an error instead of a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if isinstance(key, dict | list | set):
                raise yaml.MarkedYAMLError(problem=f"a key is no name (line {line})")
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is given twice (line {line})")
            seen.add(key)
        return super().construct_mapping(node, deep)


def scale_file(scale: str) -> str:
    """Path of a scale's numbers, relative to the project."""
    return f"workflow/scales/{scale}.yaml"


def check(model: type[Model], value: object, where: str, remedy: str) -> Model:
    """Validate, turning pydantic's report into one line."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(_one_line(error, where, remedy)) from error


def _one_line(error: ValidationError, where: str, remedy: str) -> str:
    first, *others = error.errors()
    key = ".".join(str(part) for part in first["loc"]) or "(file)"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    elif first["type"] == "missing":
        message = "is missing"
    elif not isinstance(first["input"], dict):
        message += f", not {first['input']!r}"
    more = f" (and {len(others)} more)" if others else ""
    return f"{where}: {key}: {message}{more}; {remedy}"


def load_yaml(path: Path, name: str) -> object:
    """Read YAML with unique keys.

    Raises:
        ConfigError: it is missing or not YAML.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror}); restore it with git checkout {name}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no UTF-8; a date or number that is none
        problem = str(error).replace("\n", " ")
        raise ConfigError(f"{name}: not valid YAML: {problem}; correct it") from error


def settings_of(config: Mapping[str, object]) -> Settings:
    """Check ``config.yaml`` as merged with ``--config``."""
    allowed = ", ".join(sorted(Settings.model_fields))
    return check(Settings, dict(config), f"{SETTINGS_FILE} (or --config)", f"its keys are {allowed}")


def scale_content(project: Path, scale: str) -> object:
    """A scale's file; where it says ``extends: OTHER``, on top of the other's: maps are merged, all else is replaced, a
    map of another ``kind`` too.

    Raises:
        ConfigError: a file is wrong, or what it extends extends another.
    """
    name = scale_file(scale)
    content = load_yaml(project / name, name)
    if not isinstance(content, dict) or "extends" not in content:
        return content
    other = content.pop("extends")
    known = [path.stem for path in (project / name).parent.glob("*.yaml") if path.stem != scale]
    _known(name, "extends", [str(other)], known, "scale")
    base = load_yaml(project / scale_file(other), scale_file(other))
    if not isinstance(base, dict) or "extends" in base:
        raise ConfigError(f"{name}: extends: {scale_file(other)} extends another itself; name that one")
    return _merged(base, content)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        below = found.get(key)
        if isinstance(below, dict) and isinstance(value, dict) and value.get("kind") in (None, below.get("kind")):
            value = _merged(below, value)
        found[key] = value
    return found


def load_study(project: Path, scale: str) -> Study:
    """Check the numbers of one scale, names of tasks and of families included."""
    name = scale_file(scale)
    study = check(Study, scale_content(project, scale), name, "see workflow/schemas/study.schema.json")
    if isinstance(study.model, PretrainedModel):
        _known_model(name, study.model, project)
    if SUPERVISED not in study.sft:
        raise ConfigError(f"{name}: sft: has no entry {SUPERVISED!r}; add the supervised policy under that name")
    _known(name, "tasks.candidates", study.tasks.candidates, *_all_tasks(study.world))
    _games_have_a_place(name, study)
    _known(
        name, "demonstrations.episodes_override", study.demonstrations.episodes_override, study.tasks.candidates, "task"
    )
    _pools_suffice(name, study)
    adapted = [job for job, sft in study.sft.items() if sft.trainer.lora is not None]
    if adapted and len(adapted) < len(study.sft):
        raise ConfigError(
            f"{name}: sft.{adapted[0]}.trainer.lora: not every SFT job has one, and all are made by one rule; "
            "give it to all of them, or to none"
        )
    families = _ROWS[study.study].model_fields["family"].annotation.__args__  # type: ignore[union-attr]
    _known(name, "evaluate", study.evaluate, (*study.sft, *families), "SFT job or family of runs")
    if taken := sorted(_FROM_THE_TABLE[study.study] & study.grpo.keys()):
        raise ConfigError(f"{name}: grpo.{taken[0]}: is a column of {study.runs_table}; set it there")
    return study


def _pools_suffice(where: str, study: Study) -> None:
    """Whether the page seeds of the repository suffice for what a scale asks of each pool."""
    from headroom.worlds.seeds import POOLS

    asked = [
        ("tasks.selection_seeds", "selection", study.tasks.selection_seeds),
        ("evaluation.seeds", "evaluation", study.evaluation.seeds),
        ("evaluation.seeds", "reading", study.evaluation.seeds),
        ("demonstrations.episodes_per_task", "train", study.demonstrations.episodes_per_task),
        *(
            (f"demonstrations.episodes_override.{task}", "train", count)
            for task, count in study.demonstrations.episodes_override.items()
        ),
    ]
    for key, pool, count in asked:
        if count > POOLS[pool]:
            raise ConfigError(f"{where}: {key}: pool {pool!r} has {POOLS[pool]} seeds, not {count}; ask for fewer")


def _known_model(where: str, model: PretrainedModel, project: Path) -> None:
    """A folder that is there, or a hub name with the exact commit: a name alone means another model tomorrow."""
    named, revision = model.name_or_path, model.revision
    if (project / named).is_dir():
        if not (project / named / "config.json").is_file():
            raise ConfigError(f"{where}: model.name_or_path: {named} holds no config.json; give a checkpoint folder")
    elif not re.fullmatch(r"[\w.-]+/[\w.-]+", named) or named.startswith("."):
        raise ConfigError(f"{where}: model.name_or_path: there is no folder {named}; correct the path")
    elif not re.fullmatch(r"[0-9a-f]{40}", revision or ""):
        raise ConfigError(
            f"{where}: model.revision: {named} is no folder and not pinned; give the full commit hash of the hub, "
            "or type: headroom pin-models"
        )


def _all_tasks(world: WorldSettings) -> tuple[tuple[str, ...], str]:
    """The tasks of a world, and what one of them is called."""
    if isinstance(world, AlfWorldSettings):
        return ALFWORLD_TASKS, "task of ALFWorld"
    if isinstance(world, HiddenRuleSettings):
        from headroom.worlds.hidden_rule.scenes import TASKS as RULES

        return RULES, "task of HiddenRule"
    from headroom.worlds.miniwob.tasks import TASKS

    return tuple(TASKS), "task of MiniWoB++"


def _games_have_a_place(where: str, study: Study) -> None:
    """Whether scenes have room for their tasks, and released games a folder named.

    Whether it is there is looked up when the first job starts.
    """
    world = study.world
    if isinstance(world, AlfWorldSettings) and world.games == "released" and not world.data:
        raise ConfigError(f"{where}: world.data: is missing; name the folder of the released games")
    if isinstance(world, AlfWorldSettings) and world.games == "generated":
        from headroom.worlds.alfworld.scenes import check_bounds

        try:
            check_bounds(world.receptacles, world.objects)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}; raise it") from error


def _known(where: str, key: str, names: Iterable[str], known: Iterable[str], what: str) -> None:
    import difflib

    known = tuple(known)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known)[:12])}"
            raise ConfigError(f"{where}: {key}: there is no {what} {name!r}; {hint}")


def _rows(rows: csv.DictReader[str], table: str) -> Iterator[dict[str, Any]]:
    try:
        yield from rows
    except csv.Error as error:
        raise ConfigError(f"{table}: after line {rows.line_num}: {error}; correct the line") from error


def load_runs(project: Path, study: Study, scale: str) -> tuple[Row, ...]:
    """Check the run table against a scale, and pick the runs which that scale makes."""
    table = study.runs_table
    path = project / table
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(f"{table}: cannot be read ({reason}); restore it with git checkout") from error
    rows = csv.DictReader(io.StringIO(text), delimiter="\t", restkey="(extra cell)")
    found: dict[str, Row] = {}
    cells: dict[tuple[object, ...], str] = {}
    arms: dict[str, Arm] = {}
    for row in _rows(rows, table):
        where = f"{table}: line {rows.line_num}"
        run = check(_ROWS[study.study], {k: v for k, v in row.items() if v is not None}, where, "correct the cell")
        if run.run in found:
            raise ConfigError(f"{where}: run: {run.run!r} is given twice; give each run its own id")
        if run.cell in cells:
            raise ConfigError(f"{where}: repeats the settings of {cells[run.cell]}; remove one or change its seed")
        if isinstance(run, Arm):
            _one_setting(where, run, arms)
        else:
            if run.run.rpartition("-")[0] != run.family:
                raise ConfigError(f"{where}: run: {run.run!r} is not of family {run.family!r}; name it {run.family}-NN")
            _known(where, "learning_rate", [run.learning_rate], study.learning_rates, f"level in {scale_file(scale)}")
        _known(where, "init", [run.init], study.sft, f"SFT job in {scale_file(scale)}")
        found[run.run], cells[run.cell] = run, run.run
    if not found:
        raise ConfigError(f"{table}: has no rows; restore it with git checkout")
    for regime, members in study.mechanism.regimes.items():
        _known(scale_file(scale), f"mechanism.regimes.{regime}", members, found, f"run in {table}")
    families = {run.family for run in found.values()}
    _known(
        scale_file(scale),
        "mechanism.rank_families",
        study.mechanism.rank_families,
        families,
        f"family of runs in {table}",
    )
    if study.runs is None:
        return tuple(found.values())
    _known(scale_file(scale), "runs", study.runs, found, f"run in {table}")
    if not study.runs or len(set(study.runs)) != len(study.runs):
        raise ConfigError(
            f"{scale_file(scale)}: runs: names no run, or one twice; name each once, or leave the key out"
        )
    for regime, members in study.mechanism.regimes.items():
        for name in members:
            if name not in study.runs:
                raise ConfigError(
                    f"{scale_file(scale)}: mechanism.regimes.{regime}: {name!r} is not made, for the key runs leaves "
                    "it out; take it off the regime, or add it to runs"
                )
    return tuple(run for run in found.values() if run.run in study.runs)


def _one_setting(where: str, run: Arm, arms: dict[str, Arm]) -> None:
    """Whether a name stands for one setting, and a setting has one name: the rows of an arm are its training seeds."""
    for other in arms.values():
        if (other.arm == run.arm) != (other.setting == run.setting):
            same = "name" if other.arm == run.arm else "settings"
            raise ConfigError(
                f"{where}: arm: {run.arm!r} has the {same} of {other.run} ({other.arm!r}) and not its "
                f"{'settings' if same == 'name' else 'name'}; rows of an arm differ in their seed alone"
            )
    arms.setdefault(run.arm, run)
