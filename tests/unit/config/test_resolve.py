"""Resolution: one file a job, and every fault is one line before any job starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from headroom.agent.dialect import dialect_of
from headroom.config import jobs, resolve
from headroom.config.models import Run
from headroom.config.schema import drift
from headroom.config.workflow import FIGURES_TABLE, Workflow, load_figures

PROJECT = Path(__file__).parents[3]
SCALES = sorted(path.stem for path in (PROJECT / "workflow/scales").glob("*.yaml"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("config.yaml", "workflow/scales", "workflow/data"):
        source = PROJECT / name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return tmp_path


def edit(project: Path, scale: str = "tiny", **changes: object) -> None:
    path = project / f"workflow/scales/{scale}.yaml"
    content = yaml.safe_load(path.read_text())
    for dotted, value in changes.items():
        target = content
        *parents, last = dotted.split("__")
        for key in parents:
            target = target.setdefault(key, {})
        target[last] = value
    path.write_text(yaml.safe_dump(content))


def rows(project: Path) -> list[list[str]]:
    return [line.split("\t") for line in (project / resolve.RUNS_TABLE).read_text().splitlines()]


def write_rows(project: Path, table: list[list[str]]) -> None:
    (project / resolve.RUNS_TABLE).write_text("\n".join("\t".join(row) for row in table) + "\n")


def fault(project: Path, **config: object) -> str:
    with pytest.raises(resolve.ConfigError) as error:
        resolve.resolve({"scale": "tiny", **config}, project)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_resolves_into_files_that_their_stages_can_read(project: Path, scale: str) -> None:
    if (
        yaml.safe_load((project / f"workflow/scales/{scale}.yaml").read_text()).get("model", {}).get("kind")
        == "pretrained"
    ):
        edit(project, scale, model__revision="0" * 40)
    resolved = resolve.resolve({"scale": scale}, project)
    resolve.write(resolved, project)
    folder = project / f"results/{scale}/config"
    for run in resolved.runs:
        job = jobs.load_job(folder / "grpo" / f"{run.run}.json", jobs.GrpoJob)
        assert job.grpo.run == run.run
        if resolved.study.study == "gate":
            assert job.grpo.learning_rate == resolved.study.learning_rates[run.learning_rate]
            assert (job.grpo.warmup_steps > 0) == (run.schedule == "cosine")
    for policy in resolved.policies:
        assert jobs.load_job(folder / "evaluate" / f"{policy}.json", jobs.EvaluateJob).policy == policy
    for init in resolved.inits:
        job_of_init = jobs.load_job(folder / "sft" / f"{init}.json", jobs.SftJob)
        assert job_of_init.dialect == dialect_of(resolved.study.world.kind).name
    for name, model in (("demonstrations", jobs.DemonstrationsJob), ("select", jobs.SelectJob)):
        jobs.load_job(folder / f"{name}.json", model)


def test_the_grid_has_eighteen_cells_and_both_replicated_levels_six_seeds() -> None:
    study = resolve.load_study(PROJECT, "tiny")
    runs = resolve.load_runs(PROJECT, study, "tiny")
    grid = [run for run in runs if run.family == "grid"]
    assert len(grid) == 18
    assert {run.learning_rate for run in grid} == {"lowest", "low", "middle", "high"}
    assert {run.kl_beta for run in grid} == {0.0, 0.05, 0.1}
    assert {run.init for run in grid} == {"sft", "base"}
    assert {run.clip_high for run in grid} == {0.2, 0.28}
    recipe = Run(
        run="grid-01", family="grid", tasks="mastered", init="sft", learning_rate="low", schedule="constant",
        kl_beta=0.05, clip_low=0.2, clip_high=0.28, group_size=8, seed=0,
    )  # fmt: skip
    for level in ("low", "middle"):
        same = [
            run
            for run in runs
            if run.model_copy(update={"run": "grid-01", "family": "grid", "seed": 0})
            == recipe.model_copy(update={"learning_rate": level})
        ]
        assert sorted(run.seed for run in same) == [0, 1, 2, 3, 4, 5], level
    assert {run.group_size for run in runs if run.learning_rate == "low"} == {8, 16, 32}


def test_the_headroom_control_differs_from_the_grid_in_its_tasks_alone() -> None:
    study = resolve.load_study(PROJECT, "tiny")
    runs = resolve.load_runs(PROJECT, study, "tiny")
    control = [run for run in runs if run.family == "headroom"]
    assert {run.tasks for run in control} == {"headroom"}
    grid = {
        run.model_copy(update={"run": "grid-01", "family": "grid", "seed": 0})
        for run in runs
        if run.tasks == "mastered"
    }
    for run in control:
        assert run.model_copy(update={"run": "grid-01", "family": "grid", "seed": 0, "tasks": "mastered"}) in grid


def test_resolving_again_writes_nothing_and_a_changed_number_writes_its_jobs_only(project: Path) -> None:
    first = resolve.resolve({"scale": "tiny"}, project)
    assert len(resolve.write(first, project)) == len(first.files)
    assert resolve.write(resolve.resolve({"scale": "tiny"}, project), project) == []
    edit(project, learning_rates__high=0.005)
    changed = resolve.write(resolve.resolve({"scale": "tiny"}, project), project)
    high = {run.run for run in first.runs if run.learning_rate == "high"}
    stems = {Path(name).stem for name in changed if "/grpo/" in name}
    assert stems == high
    assert not [name for name in changed if "/sft/" in name or "demonstrations" in name or "/evaluate/" in name]


def test_the_file_of_a_run_that_is_no_longer_made_is_removed(project: Path) -> None:
    resolve.write(resolve.resolve({"scale": "tiny"}, project), project)
    edit(project, runs=["grid-01"], mechanism__regimes={})
    resolve.write(resolve.resolve({"scale": "tiny"}, project), project)
    assert [path.name for path in (project / "results/tiny/config/grpo").iterdir()] == ["grid-01.json"]


def test_the_plan_of_a_family_overrides_samples_and_drops_the_pass_at_k_it_cannot_have(project: Path) -> None:
    edit(project, evaluate__grid={"greedy": ["mastered"], "sampled": ["mastered"], "samples": 2})
    job = json.loads(resolve.resolve({"scale": "tiny"}, project).files["results/tiny/config/evaluate/grid-01.json"])
    assert job["evaluation"]["samples"] == 2
    assert max(job["evaluation"]["pass_at"]) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grpo__step": 3}, ["tiny.yaml: grpo: step", "unknown key"]),
        ({"tasks__candidate": []}, ["tasks.candidate", "unknown key"]),
        ({"grpo__steps": -1}, ["grpo: steps", "greater than 0", "-1"]),
        ({"grpo__seed": 1}, ["grpo.seed", "column of workflow/data/runs.tsv"]),
        ({"learning_rates": {"low": 1e-4}}, ["runs.tsv: line 2", "lowest", "level in workflow/scales/tiny.yaml"]),
        ({"sft": {}}, ["sft: has no entry 'sft'"]),
        ({"sft__base__trainer": {"lora": {}}}, ["sft.base.trainer.lora: not every SFT job has one", "all of them"]),
        ({"model__context": 64}, ["model", "context", "greater than 64"]),
        ({"evaluate__gird": {}}, ["evaluate", "'gird'", "did you mean 'grid'?"]),
        ({"runs": ["grid-99"]}, ["runs", "'grid-99'", "runs.tsv"]),
        ({"demonstrations__episodes_override": {"click-nothing": 3}}, ["episodes_override", "'click-nothing'"]),
        ({"evaluation__seeds": 500}, ["tiny.yaml: evaluation.seeds", "pool 'evaluation' has 100 seeds, not 500"]),
        ({"demonstrations__episodes_per_task": 5000}, ["episodes_per_task", "pool 'train' has 2000 seeds"]),
        ({"model__key_value_heads": 2}, ["model", "multiple of model.key_value_heads"]),
        ({"evaluation__temperature": float("nan")}, ["evaluation.temperature"]),
        ({"grpo__engine": "sglang"}, ["tiny.yaml: grpo: engine", "'torch' or 'vllm'"]),
        ({"grpo__vllm": {"cache": 1}}, ["tiny.yaml: grpo: vllm.cache", "unknown key"]),
        ({"grpo__trainer": {"precision": "half"}}, ["tiny.yaml: grpo: trainer.precision", "bfloat16_masters"]),
        (
            {"resources": {"sft": {"gpu": 1}, "grpo": {"gpu": 4}}},
            ["tiny.yaml: grpo.trainer.processes: is 1, but resources.grpo.gpu is 4", "one GPU"],
        ),
    ],
)
def test_a_wrong_setting_of_a_scale_is_one_line_with_file_key_and_remedy(
    project: Path, changes: dict[str, object], words: list[str]
) -> None:
    edit(project, **changes)
    message = fault(project)
    for word in words:
        assert word in message


def test_training_in_several_processes_is_started_by_torchrun_and_other_training_by_python(project: Path) -> None:
    edit(project, grpo__trainer={"processes": 2})
    found = Workflow(resolve.resolve({"scale": "tiny"}, project), {}).launcher_of
    assert found["sft"] == found["base"] == "python"
    assert found["grid-01"] == "torchrun --standalone --nproc-per-node=2"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"name_or_path": "Qwen/Qwen3-0.6B"}, ["model.revision", "full commit hash"]),
        ({"name_or_path": "Qwen/Qwen3-0.6B", "revision": "main"}, ["model.revision", "full commit hash"]),
        ({"name_or_path": "./checkpoints/mine"}, ["model.name_or_path", "no folder ./checkpoints/mine"]),
        ({"name_or_path": "/a/b/c"}, ["model.name_or_path", "no folder /a/b/c"]),
        ({"name_or_path": "workflow/scales"}, ["holds no config.json"]),
    ],
)
def test_a_missing_checkpoint_or_an_unpinned_model_is_refused(project: Path, model: dict, words: list[str]) -> None:
    edit(project, model={"kind": "pretrained", **model})
    message = fault(project)
    for word in words:
        assert word in message


def test_a_checkpoint_folder_of_ones_own_needs_no_revision(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine/config.json").write_text("{}")
    edit(project, model={"kind": "pretrained", "name_or_path": "mine"})
    assert resolve.resolve({"scale": "tiny"}, project).runs


def test_an_unknown_task_gets_a_suggestion(project: Path) -> None:
    study = yaml.safe_load((project / "workflow/scales/tiny.yaml").read_text())
    edit(project, tasks__candidates=[*study["tasks"]["candidates"][1:], "click-buton"])
    assert "did you mean 'click-button'?" in fault(project)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("learning_rate", "lowish", ["learning_rate", "'lowish'", "did you mean 'low"]),
        ("init", "bass", ["init", "'bass'", "did you mean 'base'?"]),
        ("tasks", "every", ["tasks", "'mastered', 'headroom' or 'all'"]),
        ("group_size", "0", ["group_size", "greater than 0"]),
        ("kl_beta", "-0.1", ["kl_beta"]),
        ("kl_beta", "nan", ["kl_beta"]),
        ("seed", "+1", ["seed", "digits alone", "'+1'"]),
        ("seed", "1_0", ["seed", "digits alone", "'1_0'"]),
        ("seed", "01", ["seed", "digits alone", "'01'"]),
        ("group_size", "1_6", ["group_size", "digits alone"]),
        ("run", "grid-01", ["line 3", "given twice"]),
        ("run", "group_size-77", ["not of family 'grid'"]),
        ("kl_beta", "0", ["repeats the settings of grid-01"]),
    ],
)
def test_a_wrong_cell_of_the_run_table_is_one_line_with_its_line(
    project: Path, column: str, value: str, words: list[str]
) -> None:
    table = rows(project)
    table[2][table[0].index(column)] = value
    write_rows(project, table)
    message = fault(project)
    for word in ["workflow/data/runs.tsv: line 3", *words]:
        assert word in message


@pytest.mark.parametrize("cut", [lambda row: row[:-1], lambda row: [*row, "more"]])
def test_a_row_with_too_few_or_too_many_cells_is_named(project: Path, cut) -> None:
    table = rows(project)
    table[2] = cut(table[2])
    write_rows(project, table)
    assert "line 3" in fault(project)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"scale": "huge"}, ["config.yaml", "scale", "'tiny'", "huge"]),
        ({"tire": "evals"}, ["tire", "unknown key", "scale, tier"]),
        ({"tier": "everything"}, ["tier", "scratch"]),
    ],
)
def test_a_wrong_key_of_config_yaml_is_one_line(project: Path, config: dict[str, object], words: list[str]) -> None:
    message = fault(project, **config)
    for word in words:
        assert word in message


@pytest.mark.parametrize("text", ["a: [1", "grpo: {steps: 1, steps: 2}", "\xff\xfe", "[]", ""])
def test_a_damaged_scale_is_one_line(project: Path, text: str) -> None:
    (project / "workflow/scales/tiny.yaml").write_text(text, encoding="latin-1")
    assert fault(project).startswith("workflow/scales/tiny.yaml: ")


def test_a_missing_file_says_how_to_restore_it(project: Path) -> None:
    (project / "workflow/scales/tiny.yaml").unlink()
    assert "git checkout" in fault(project)


def test_the_committed_schemas_are_what_the_models_say() -> None:
    assert drift(PROJECT) == []


def test_a_scale_may_extend_another_and_change_what_it_names_alone(project: Path) -> None:
    base, over = (resolve.load_study(project, name) for name in ("paper", "paper-qwen3-vl-8b"))
    assert over.model.name_or_path == "Qwen/Qwen3-VL-8B-Instruct"
    assert over.sft["sft"].trainer == base.sft["sft"].trainer.model_copy(update={"processes": 8})
    assert over.sft["sft"].steps == base.sft["sft"].steps
    assert over.resources["grpo"].gpu == 8
    assert over.resources["probe"] == base.resources["probe"]
    assert over.tasks == base.tasks


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("papr", "extends: there is no scale 'papr'; did you mean 'paper'"),
        ("paper-qwen3-8b", "extends: workflow/scales/paper-qwen3-8b.yaml extends another itself"),
    ],
)
def test_a_scale_that_extends_nothing_or_too_much_is_one_error(project: Path, extends: str, message: str) -> None:
    (project / "workflow/scales/paper-qwen3-4b.yaml").write_text(f"extends: {extends}\n")
    with pytest.raises(resolve.ConfigError, match=message):
        resolve.load_study(project, "paper-qwen3-4b")


@pytest.mark.parametrize("scale", SCALES)
def test_the_paper_scales_sample_by_vllm_with_a_canary_and_truncated_importance_weights(
    project: Path, scale: str
) -> None:
    if scale == "small":
        edit(project, scale, model__revision="0" * 40)
    found = resolve.resolve({"scale": scale}, project)
    assert found.by_vllm == scale.startswith("paper")
    for run in found.runs if found.by_vllm else ():
        grpo = resolve.grpo_of(run, found.study, scale)
        assert grpo.engine == "vllm"
        assert grpo.vllm.canary_tolerance == 0.5, "nats, of bfloat16"
        assert grpo.vllm.importance_cap == 2
        assert grpo.vllm.longest >= found.study.model.context


@pytest.mark.parametrize("text", ["{{a: 1}: 2}: 3", "? [a]\n: 1\n", "x: 2024-99-99\n", "x: 0x_\n", "[" * 5000])
def test_yaml_that_no_reader_takes_is_one_line(project: Path, text: str) -> None:
    (project / "workflow/scales/tiny.yaml").write_text(text)
    assert fault(project).startswith("workflow/scales/tiny.yaml: not valid YAML: ")


def test_a_cell_without_end_is_one_line(project: Path) -> None:
    with (project / resolve.RUNS_TABLE).open("a") as stream:
        stream.write("a" * 200_000)
    assert fault(project).startswith(f"{resolve.RUNS_TABLE}: after line ")


def test_the_mark_that_some_editors_write_first_is_passed_over(project: Path) -> None:
    before = resolve.resolve({"scale": "tiny"}, project)
    for name in (resolve.RUNS_TABLE, FIGURES_TABLE):
        path = project / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert resolve.resolve({"scale": "tiny"}, project).files == before.files
    assert load_figures(project) == load_figures(PROJECT)


def test_a_table_of_figures_in_another_encoding_is_one_line(project: Path) -> None:
    (project / FIGURES_TABLE).write_bytes(b"\xe9\n")
    with pytest.raises(resolve.ConfigError, match="not UTF-8"):
        load_figures(project)
