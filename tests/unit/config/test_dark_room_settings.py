"""The dark room's settings: its run table, its sets of tasks, and what resolution makes of them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from headroom.config import load, resolve
from headroom.config.models import Arm
from headroom.config.workflow import FIGURES_TABLE, before_games, environment, load_figures
from headroom.config.workflow import load as load_workflow

PROJECT = Path(__file__).parents[3]
TABLE = "workflow/data/dark_room.tsv"
SMOKE = "dark-room-smoke"
DARK = (SMOKE, "dark-room-tiny", "paper-qwen3-1.7b", "paper-qwen3-4b", "paper-qwen3-8b")
RULES = ("hidden-rule-smoke", "hidden-rule-tiny", "paper-hidden-rule-qwen3-4b")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("config.yaml", "workflow/scales", "workflow/data"):
        source = PROJECT / name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return tmp_path


def edit(project: Path, scale: str = SMOKE, **changes: object) -> None:
    path = project / f"workflow/scales/{scale}.yaml"
    content = yaml.safe_load(path.read_text())
    for dotted, value in changes.items():
        target = content
        *parents, last = dotted.split("__")
        for key in parents:
            target = target.setdefault(key, {})
        target[last] = value
    path.write_text(yaml.safe_dump(content))


def cell(project: Path, line: int, **changes: str) -> None:
    """Change cells of a line of the run table; the head is line 1."""
    rows = [row.split("\t") for row in (project / TABLE).read_text().splitlines()]
    for column, value in changes.items():
        rows[line - 1][rows[0].index(column)] = value
    (project / TABLE).write_text("\n".join("\t".join(row) for row in rows) + "\n")


def fault(project: Path, scale: str = SMOKE) -> str:
    with pytest.raises(resolve.ConfigError) as error:
        resolve.resolve({"scale": scale}, project)
    assert "\n" not in str(error.value)
    return str(error.value)


def arms() -> dict[str, list[Arm]]:
    study = resolve.load_study(PROJECT, "paper-qwen3-4b")
    found: dict[str, list[Arm]] = {}
    for run in resolve.load_runs(PROJECT, study, "paper-qwen3-4b"):
        assert isinstance(run, Arm)
        found.setdefault(run.arm, []).append(run)
    return found


def test_the_table_has_the_papers_arms_and_the_noise_that_decides_three_seeds_of_those_that_claims_need() -> None:
    found = arms()
    assert set(found) == {
        "baseline", "baseline, centred", "prediction", "prediction, annealed", "prediction, centred",
        "prediction, decoupled", "prediction, additive", "noise", "noise, centred", "confidence", "anchor",
        "auxiliary", "auxiliary, shuffled", "auxiliary, random words",
    }  # fmt: skip
    thrice = {name for name, runs in found.items() if [run.seed for run in runs] == [0, 1, 2]}
    assert thrice == {
        "baseline", "prediction", "prediction, centred", "noise", "auxiliary", "auxiliary, shuffled",
    }  # fmt: skip
    for name, runs in found.items():
        assert name in thrice or [run.seed for run in runs] == [0]
        assert (runs[0].auxiliary == "none") == ("auxiliary" not in name)
        assert {run.advantage_scale for run in runs} == {"none" if "centred" in name else "group_std"}


def test_the_paper_scales_have_the_papers_values() -> None:
    for scale in DARK[2:]:
        found = resolve.resolve({"scale": scale}, PROJECT)
        assert found.study.world.horizon == 50
        assert found.study.world.games == "released"
        grpo = resolve.grpo_of(found.runs[3], found.study, scale)
        assert (grpo.pages_per_step, grpo.group_size, grpo.steps, grpo.temperature) == (8, 4, 150, 1.0)
        assert (grpo.learning_rate, grpo.schedule, grpo.warmup_steps) == (1e-6, "constant", 0)
        assert (grpo.optimiser.weight_decay, grpo.optimiser.gradient_clip) == (0.01, 1.0)
        assert (grpo.clip_low, grpo.clip_high, grpo.kl_beta, grpo.entropy_bonus) == (0.2, 0.2, 0.01, 0.001)
        assert (grpo.reward_success, grpo.reward_failure, grpo.reward_invalid_action) == (10, 0, -0.1)
        assert (grpo.advantage_scope, grpo.advantage_epsilon) == ("pooled_step", 1e-6)
        assert grpo.signal.model_dump() == {
            "kind": "prediction", "form": "potential", "weight": 0.1, "schedule": "constant", "channel": "added",
        }  # fmt: skip
        assert grpo.validation.model_dump() == {"every": 5, "pages": 32, "temperature": 0.4, "last": 6}
        assert grpo.trainer.lora is None
        assert grpo.tasks == "all"


def test_a_run_has_the_signal_of_its_row_and_everything_else_of_its_scale() -> None:
    found = resolve.resolve({"scale": "paper-qwen3-4b"}, PROJECT)
    sft = json.loads(found.files["results/paper-qwen3-4b/config/sft/sft.json"])
    assert sft["longest"] == found.study.evaluation.max_new_tokens, "no demonstration is longer than what may be said"
    jobs = {
        run.run: json.loads(found.files[f"results/paper-qwen3-4b/config/grpo/{run.run}.json"])["grpo"]
        for run in found.runs
    }
    assert jobs["arm-01"]["signal"]["kind"] == "none"
    assert jobs["arm-07"]["signal"]["schedule"] == "cosine"
    assert jobs["arm-07"]["schedule"] == "constant", "of the learning rate"
    assert jobs["arm-12"]["signal"]["channel"] == "decoupled"
    assert jobs["arm-17"]["signal"]["form"] == "additive"
    assert [jobs[run]["signal"]["kind"] for run in ("arm-18", "arm-19")] == ["confidence", "anchor"]
    assert jobs["arm-01"]["auxiliary"]["kind"] == "none"
    assert [jobs[f"arm-{n}"]["auxiliary"] for n in (20, 23, 26)] == [
        {"kind": kind, "weight": 0.1} for kind in ("prediction", "shuffled", "random_words")
    ]
    distinct = {"run", "seed", "signal", "auxiliary", "advantage_scale"}
    rest = {json.dumps({k: v for k, v in job.items() if k not in distinct}, sort_keys=True) for job in jobs.values()}
    assert len(rest) == 1


@pytest.mark.parametrize("scale", [*DARK, *RULES])
def test_every_job_of_the_dark_room_that_names_a_world_names_its_own_and_none_draws_pages(scale: str) -> None:
    found = resolve.resolve({"scale": scale}, PROJECT)
    kind = "hidden_rule" if scale in RULES else "alfworld"
    assert set(found.worlds.values()) == {kind}
    assert set(found.worlds) == {
        "train.demonstrations", "train.grpo", "measure.overlap", "measure.select", "measure.reading",
        "measure.evaluate", "measure.probe", "measure.graft", "train.sft",
    }  # fmt: skip
    names = {Path(name).stem for name in found.files}
    assert "dark_room" in names
    assert "filmstrip" not in names
    assert found.validates
    job = json.loads(found.files[f"results/{scale}/config/dark_room.json"])
    assert list(job["arms"]) == sorted(run.run for run in found.runs)


def test_the_gates_jobs_name_its_own_world_and_validate_nothing() -> None:
    found = resolve.resolve({"scale": "smoke"}, PROJECT)
    assert set(found.worlds.values()) == {"miniwob"}
    assert not found.validates
    assert "results/smoke/config/dark_room.json" not in found.files


@pytest.mark.parametrize(
    ("line", "changes", "words"),
    [
        (2, {"signal": "surprise"}, ["line 2", "signal", "'none', 'prediction', 'noise', 'confidence' or 'anchor'"]),
        (2, {"signal": "confidence"}, ["line 2", "form: with signal 'confidence' it must say which"]),
        (2, {"weight": "0.1"}, ["weight: with signal 'none' it must be '-'"]),
        (5, {"form": "-"}, ["line 5", "form: with signal 'prediction' it must say which"]),
        (5, {"weight": "0"}, ["a signal of weight 0 is none"]),
        (5, {"weight": "-0.1"}, ["weight"]),
        (9, {"channel": "decoupled"}, ["without a scale a decoupled channel is an added one"]),
        (2, {"auxiliary": "gold"}, ["line 2", "auxiliary", "'none', 'prediction', 'shuffled' or 'random_words'"]),
        (2, {"auxiliary_weight": "0.1"}, ["auxiliary_weight: with auxiliary 'none' it must be '-'"]),
        (21, {"auxiliary_weight": "-"}, ["line 21", "auxiliary_weight: with auxiliary 'prediction' it must say which"]),
        (21, {"auxiliary_weight": "0"}, ["a loss of weight 0 is none; write auxiliary 'none'"]),
        (21, {"auxiliary_weight": "-1"}, ["auxiliary_weight"]),
        (22, {"seed": "0", "auxiliary_weight": "0.10"}, ["repeats the settings of arm-20"]),
        (3, {"run": "arm-01"}, ["line 3", "'arm-01' is given twice"]),
        (3, {"run": "grid-02"}, ["line 3", "run"]),
        (3, {"family": "grid"}, ["family", "dark_room"]),
        (3, {"seed": "0"}, ["repeats the settings of arm-01"]),
        (6, {"seed": "0", "weight": "0.10"}, ["repeats the settings of arm-04"]),
        (6, {"weight": "9" * 400}, ["line 6", "weight"]),
        (6, {"form": "additive"}, ["arm: 'prediction' has the name of arm-04", "differ in their seed alone"]),
        (6, {"arm": "other"}, ["arm: 'other' has the settings of arm-04", "'prediction'"]),
        (1, {"signal": "signals"}, ["signal"]),
    ],
)
def test_a_wrong_row_is_one_line_with_file_line_and_remedy(
    project: Path, line: int, changes: dict[str, str], words: list[str]
) -> None:
    cell(project, line, **changes)
    message = fault(project)
    for word in [TABLE, *words]:
        assert word in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grpo__signal": {"kind": "noise"}}, ["grpo.signal", f"is a column of {TABLE}"]),
        ({"grpo__auxiliary": {"kind": "shuffled"}}, ["grpo.auxiliary", f"is a column of {TABLE}"]),
        ({"grpo__advantage_scale": "none"}, ["grpo.advantage_scale", TABLE]),
        ({"grpo__validation": {"every": 0}}, ["grpo.validation.every", "is 0"]),
        ({"grpo__validation": {"every": 1, "pages": 500, "last": 2}}, ["grpo.validation.pages", "pool 'validation'"]),
        ({"grpo__validation": {"every": 1, "pages": "500", "last": 2}}, ["grpo.validation.pages", "pool 'validation'"]),
        ({"grpo__validation": {"every": 100}}, ["grpo.validation: every 100 of 3 steps", "lower every or last"]),
        ({"world__receptacles": 2}, ["world.receptacles: 2 is too few", "at least 3"]),
        ({"world__objects": 1}, ["world.objects: 1 is too few", "at least 2"]),
        ({"runs": []}, ["runs: names no run"]),
        ({"runs": ["arm-01", "arm-01"]}, ["runs: names no run, or one twice"]),
        ({"tasks__candidates": []}, ["tasks", "names no task"]),
        (
            {"world": {"kind": "miniwob"}, "tasks__candidates": ["click-button", "click-link"]},
            ["grpo.signal.kind", "nothing to predict"],
        ),
        (
            {
                "world": {"kind": "miniwob"},
                "tasks__candidates": ["click-button", "click-link"],
                "runs": ["arm-26"],
                "mechanism__regimes": {"words": ["arm-26"]},
                "mechanism__graft_regimes": ["words"],
            },
            ["grpo.auxiliary.kind", "nothing to predict"],
        ),
        (
            {
                "world": {"kind": "miniwob"},
                "tasks__candidates": ["click-button", "click-link"],
                "runs": ["arm-19"],
                "mechanism__regimes": {"anchor": ["arm-19"]},
                "mechanism__graft_regimes": ["anchor"],
            },
            ["grpo.signal.kind", "nor to answer"],
        ),
        ({"grpo__tasks": "mastered"}, ["tasks.mastered: is 0", "grpo/arm-01", "'all'"]),
        ({"evaluate__sft": {"greedy": ["headroom"]}}, ["tasks.headroom: is 0", "evaluate/sft"]),
        ({"mechanism__probe": {"task_sets": ["mastered"]}}, ["tasks.mastered: is 0", "probe"]),
        ({"evaluate__grid": {}}, ["evaluate", "'grid'", "SFT job or family"]),
        ({"tasks__candidates": ["click-button"]}, ["tasks.candidates", "task of ALFWorld", "'click-button'"]),
        ({"world__games": "released"}, ["world.data: is missing"]),
        ({"runs": ["arm-99"]}, ["'arm-99'", TABLE]),
        ({"mechanism__rank_families": ["grid"]}, ["mechanism.rank_families", "'grid'", f"family of runs in {TABLE}"]),
        ({"study": "light room"}, ["study", "'gate' or 'dark room'"]),
    ],
)
def test_a_wrong_setting_of_the_dark_room_is_one_line(
    project: Path, changes: dict[str, object], words: list[str]
) -> None:
    edit(project, **changes)
    message = fault(project)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"world__rooms": 2}, ["world.hidden_rule.rooms", "greater than or equal to 3, not 2"]),
        ({"world__devices": 13}, ["world.hidden_rule.devices", "less than or equal to 12, not 13"]),
        ({"world__horizon": 5}, ["world.hidden_rule", "horizon: is 5", "3 rooms may take 6 turns", "lower rooms"]),
        ({"world__objects": 4}, ["world.hidden_rule.objects", "unknown key"]),
        ({"tasks__candidates": ["odrer"]}, ["tasks.candidates", "no task of HiddenRule 'odrer'", "mean 'order'"]),
        ({"grpo__validation": {"every": 0}}, ["grpo.validation.every", "is 0"]),
    ],
)
def test_a_wrong_setting_of_hidden_rule_is_one_line(
    project: Path, changes: dict[str, object], words: list[str]
) -> None:
    edit(project, "hidden-rule-smoke", **changes)
    message = fault(project, "hidden-rule-smoke")
    for word in ["workflow/scales/hidden-rule-smoke.yaml", *words]:
        assert word in message


def test_the_papers_size_of_hidden_rule_has_the_papers_numbers() -> None:
    own, games = (resolve.resolve({"scale": scale}, PROJECT) for scale in (RULES[2], "paper-qwen3-4b"))
    world = own.study.world
    assert (world.kind, world.rooms, world.devices, world.horizon) == ("hidden_rule", 5, 6, 30)
    assert [resolve.grpo_of(run, own.study, RULES[2]) for run in own.runs] == [
        resolve.grpo_of(run, games.study, "paper-qwen3-4b") for run in games.runs
    ]
    assert own.study.model == games.study.model


def test_the_kinds_of_game_are_those_that_the_world_plays() -> None:
    scenes = pytest.importorskip("headroom.worlds.alfworld.scenes", reason="needs ALFWorld: ./setup.sh --alfworld")
    assert sorted(load.ALFWORLD_TASKS) == sorted(scenes.TASKS)


def test_a_missing_folder_of_games_is_one_line_when_jobs_start_and_no_fault_of_a_dry_run(project: Path) -> None:
    study = load_workflow({"scale": "paper-qwen3-4b"}, project)
    with pytest.raises(SystemExit, match=r"paper-qwen3-4b.yaml: world.data: there is no folder alfworld-data; put"):
        before_games(study, project)
    data = project / "alfworld-data"
    data.mkdir()
    with pytest.raises(SystemExit, match=r"paper-qwen3-4b.yaml: world.data: .* has no json_2.1.1/; type: alfworld"):
        before_games(study, project)
    game = data / "json_2.1.1/train/a/b/game.tw-pddl"
    game.parent.mkdir(parents=True)
    with pytest.raises(SystemExit, match=r"has no games.sha256, which fixes the games; type: python -m headroom"):
        before_games(study, project)
    (data / "games.sha256").write_bytes(b"\xff")
    with pytest.raises(SystemExit, match=r"games.sha256: cannot be read \(not UTF-8\); write it again"):
        before_games(study, project)
    (data / "games.sha256").write_text(f"{'0' * 64}  {game.relative_to(data).as_posix()}\n")
    with pytest.raises(SystemExit, match=r"is listed in games.sha256 and missing; fetch the release again"):
        before_games(study, project)
    game.touch()
    before_games(study, project)
    before_games(load_workflow({"scale": SMOKE}, project), project)
    before_games(load_workflow({"scale": "smoke"}, project), project)


def test_the_home_folder_of_released_games_is_written_out_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    edit(project, world__games="released", world__data="~/games")
    settings = json.loads(resolve.resolve({"scale": SMOKE}, project).files[f"results/{SMOKE}/config/reading.json"])
    assert settings["world"]["data"] == f"{tmp_path}/games"


def test_the_listing_of_released_games_is_an_input_of_the_rules_that_play(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    edit(project, world__games="released", world__data="games")
    assert load_workflow({"scale": SMOKE}, project).games == []
    (project / "games").mkdir()
    (project / "games/games.sha256").touch()
    assert load_workflow({"scale": SMOKE}, project).games == ["games/games.sha256"]
    edit(project, world__games="generated")
    assert load_workflow({"scale": SMOKE}, project).games == []
    rules = "".join(path.read_text() for path in sorted((PROJECT / "workflow/rules").glob("*.smk")))
    for block in re.split(r"(?m)^(?=rule )", rules):
        assert ("games=WORKFLOW.games" in block) == ("environment=WORKFLOW.environment(" in block)


def test_pages_of_the_validation_are_held_against_those_of_training_where_runs_validate(project: Path) -> None:
    def held_out(scale: str) -> dict[str, int]:
        text = resolve.resolve({"scale": scale}, project).files[f"results/{scale}/config/overlap.json"]
        return dict(json.loads(text)["held_out"])

    assert "validation" not in held_out("tiny")
    edit(project, grpo__validation={"every": 1, "pages": 7, "last": 2}, tasks__candidates=list(load.ALFWORLD_TASKS[:3]))
    assert held_out(SMOKE)["validation"] == 3


def test_each_study_draws_its_own_figures(project: Path) -> None:
    gate, dark = load_figures(project, "gate"), load_figures(project, "dark room")
    assert list(dark) == ["dark_room"]
    assert "gate" in gate
    assert not gate.keys() & dark.keys()
    assert load_figures(project).keys() == gate.keys() | dark.keys()
    path = project / FIGURES_TABLE
    path.write_text(path.read_text().replace("\tdark room\t", "\tdark\t"))
    with pytest.raises(resolve.ConfigError, match=r"dark_room: study: is one of gate, dark room"):
        load_figures(project)


def test_jobs_that_open_another_world_have_another_environment() -> None:
    assert environment("train", "miniwob") == "envs/train.yaml"
    assert environment("train", "miniwob", by_vllm=True) == "envs/rollout.yaml"
    assert environment("train", "alfworld", by_vllm=True) == "envs/rollout-alfworld.yaml"
    assert environment("worlds", "alfworld") == "envs/worlds-alfworld.yaml"
    assert environment("worlds", "hidden_rule") == "envs/worlds.yaml"
    assert environment("train", "hidden_rule", by_vllm=True) == "envs/rollout.yaml"


def test_the_run_tables_of_both_studies_can_be_shown() -> None:
    for scale, columns in (("tiny", ["learning rate", "KL", "group"]), (SMOKE, ["arm", "signal", "advantage"])):
        study = resolve.load_study(PROJECT, scale)
        shown = [run.shown(study.learning_rates) for run in resolve.load_runs(PROJECT, study, scale)]
        assert len({tuple(row) for row in shown}) == 1
        assert set(columns) <= set(shown[0])
        assert len({tuple(row.values()) for row in shown}) == len(shown)
