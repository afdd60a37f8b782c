"""The command: what it says, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from headroom.cli import app
from headroom.config import resolve
from headroom.config.models import PretrainedModel, TinyModel
from headroom.plan import command, memory
from headroom.plan.architecture import shape_files, shape_of
from headroom.plan.command import size
from headroom.plan.cost import GPUS
from headroom.plan.estimate import by_rule, estimate, extremes, interval
from headroom.policy.tiny import tiny_model

PROJECT = Path(__file__).parents[3]
PAPER = "paper-qwen3-4b"
"""One of the paper scales, of the dark room: the text model of four billion parameters."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("Snakefile", "config.yaml", "workflow/scales", "workflow/data", "workflow/models", "benchmarks"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (PROJECT / name).is_dir() else shutil.copy)(PROJECT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*options: str, scale: str = PAPER):
    return CliRunner().invoke(app, ["plan", "--scale", scale, *options])


def edited(project: Path, scale: str, key: str, **change: object) -> None:
    path = project / f"workflow/scales/{scale}.yaml"
    content = yaml.safe_load(path.read_text())
    table = content.setdefault("resources", {})
    given = {"gpu": 4, "mem_mb": 240000, "runtime": 1440, "disk_mb": 200000}
    table[key] = {**given, **table.get(key, {}), **change}
    path.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize("name", sorted(path.stem for path in (PROJECT / "workflow/models").glob("*.yaml")))
def test_a_model_file_has_the_parameters_of_the_released_checkpoint(name: str) -> None:
    file = shape_files(PROJECT)[name]
    released = {  # as the hub shows them
        "qwen3-1.7b": 1_720_574_976,
        "qwen3-4b": 4_022_468_096,
        "qwen3-8b": 8_190_735_360,
        "qwen3-vl-4b": 4_437_815_808,
        "qwen3-vl-8b": 8_767_123_696,
        "smollm2-135m": 134_515_008,
    }
    from headroom.plan.architecture import count

    assert count(name, file.architecture).parameters == file.parameters == released[name]


def test_a_model_file_that_disagrees_with_itself_is_refused(project: Path) -> None:
    path = project / "workflow/models/qwen3-4b.yaml"
    path.write_text(path.read_text().replace("parameters: 4022468096", "parameters: 4000000000"))
    study = resolve.load_study(project, PAPER)
    with pytest.raises(resolve.ConfigError, match=r"qwen3-4b.yaml: parameters: says 4000000000, but .* 4022468096"):
        shape_of(study.model, project)


def test_a_folder_of_ones_own_is_counted_from_its_config_and_a_wrong_one_is_one_line(project: Path) -> None:
    model = tiny_model(TinyModel(width=32), vocabulary=64, pad_id=0, end_ids=(1,), seed=0)
    (project / "mine").mkdir()
    model.save_pretrained(str(project / "mine"))  # its JSON writes 1e-06, which YAML reads as a text
    own = PretrainedModel(name_or_path="mine")
    assert shape_of(own, project).parameters == sum(parameter.numel() for parameter in model.parameters())
    path = project / "mine/config.json"
    path.write_text(path.read_text().replace('"qwen3"', '"gpt2"'))
    with pytest.raises(resolve.ConfigError, match=r"^model.name_or_path: .*config.json: model_type 'gpt2' is not"):
        shape_of(own, project)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 MB"), (1.5e5, "0.1 MB"), (3.27e6, "3.3 MB"), (412e6, "412 MB"), (1.25e9, "1.2 GB"), (3.456e12, "3.46 TB")],
)
def test_bytes_are_shown_in_the_unit_that_fits(value: float, text: str) -> None:
    assert command.amount(value) == text


def test_a_small_plan_shows_its_disk_and_has_a_row_for_every_rule_that_takes_time(project: Path) -> None:
    found = {job.rule: job for job in estimate(project, "tiny", gpu=GPUS["a100-80gb"], gpus=1).jobs}
    assert found["overlap"].work.world_steps > 1000
    assert found["overlap"].needs == ("select",)
    assert found["figure"].needs == (found["figure_data"].name,)
    assert {"contrast", "overlap"} <= set(found["figure_data"].needs)
    assert "overlap" not in found["contrast"].needs
    done = plan(scale="tiny")
    (line,) = [line for line in done.output.splitlines() if line.startswith("disk ")]
    assert " MB of " in line or " GB of " in line
    assert "0.00" not in line
    rules = {line.split()[0] for line in done.output.splitlines() if line}
    assert {"overlap", "figure_data", "figure"} <= rules


def test_a_plan_that_fits_ends_with_0_and_says_its_error(project: Path) -> None:
    done = plan("--gpus", "16", "--disk", "5TB")
    assert done.exit_code == 0, done.output
    for part in ("4.02 billion parameters", "GPU-hours", "wall time", "on 16 GPUs", "95% within", "is assumed",
                 "AdamW moments", "key-value cache", "activations", "resume states"):  # fmt: skip
        assert part in done.output


@pytest.mark.parametrize(("scale", "images"), [("paper", "0.42"), ("paper-qwen3-vl-8b", "0.58")])
def test_the_seeing_models_of_the_gate_fit_and_their_towers_are_neither_loaded_nor_trained(
    project: Path, scale: str, images: str
) -> None:
    done = plan("--gpus", "16", "--disk", "5TB", scale=scale)
    assert done.exit_code == 0, done.output
    assert f"{images} of them for images" in done.output
    found = estimate(project, scale, gpu=GPUS["a100-80gb"], gpus=16)
    shape = found.shape
    assert shape.language + shape.vision == shape.parameters
    jobs = {job.name: job for job in found.jobs}
    sft = jobs["sft sft"]
    assert sft.moments["load"]["float32 weights"] == 4 * shape.language
    assert sft.moments["update"]["AdamW moments"] == 8 * shape.language / sft.processes
    assert sft.kept == 4 * shape.language + 2 * shape.vision
    assert jobs["select"].moments["rollout"]["weights"] == 4 * shape.language


def test_a_device_that_is_too_small_is_refused_before_anything_runs(project: Path) -> None:
    done = plan("--gpu-memory", "24GB")
    assert done.exit_code == 3
    assert re.search(r"does not fit: reading: needs \d+ GB of each GPU \(rollout\), it has 24; --gpu", done.output)
    assert re.search(r"does not fit: grpo arm-\d+: needs \d+ GB .*; more trainer.processes", done.output)
    assert not (project / "results").exists()


WITH_GPUS = (
    "small", "paper", "paper-qwen3-vl-8b", "paper-qwen3-1.7b", "paper-qwen3-4b", "paper-qwen3-8b",
    "paper-hidden-rule-qwen3-4b",
)  # fmt: skip


def filled(project: Path, scale: str) -> str:
    """The scale with some revision where it has none."""
    path = project / f"workflow/scales/{scale}.yaml"
    path.write_text(path.read_text().replace("revision: null", f"revision: {'0' * 40!r}"))
    return scale


@pytest.mark.parametrize("scale", WITH_GPUS)
def test_a_scale_asks_for_the_memory_that_its_widest_jobs_need_of_a_gpu_and_not_for_much_more(
    project: Path, scale: str
) -> None:
    found = estimate(project, filled(project, scale), gpu=GPUS["a100-80gb"], gpus=16)
    assert found.problems == []
    checked = set()
    for rule, jobs in by_rule(found.jobs).items():
        if jobs[0].resources.gpu:
            needed = max(memory.peak(job.moments)[1] for job in jobs) / 1e6
            assert needed <= jobs[0].resources.gpu_mem_mb < 1.05 * needed + 1000, rule
            checked.add(rule)
    # The dark room trains on every task, so its selection plays nothing.
    played = {"select"} if scale in ("small", "paper", "paper-qwen3-vl-8b") else set()
    assert checked == {"sft", "reading", "grpo", "evaluate", "graft"} | played


def test_every_scale_with_gpus_is_among_those_that_are_held_to_the_plan() -> None:
    scales = {path.stem: resolve.scale_content(PROJECT, path.stem) for path in PROJECT.glob("workflow/scales/*.yaml")}
    asks = {
        name for name, content in scales.items() if any(r.get("gpu") for r in content.get("resources", {}).values())
    }
    assert asks == set(WITH_GPUS)


@pytest.mark.parametrize("asked", [0, 61000])
def test_a_rule_that_could_land_on_a_gpu_too_small_for_its_widest_job_is_refused(project: Path, asked: int) -> None:
    edited(project, PAPER, "grpo", gpu_mem_mb=asked)
    done = plan("--gpus", "16")
    assert done.exit_code == 3
    fault = rf"resources\.grpo\.gpu_mem_mb: asks for {asked}, grpo arm-\d+ needs 61\d\d\d \(update\)"
    assert len(re.findall("does not fit", done.output)) == 1
    assert re.search(fault, done.output), done.output


def test_a_cache_that_holds_no_prompt_of_the_longest_size_is_refused(project: Path) -> None:
    path = project / f"workflow/scales/{PAPER}.yaml"
    path.write_text(path.read_text().replace("cache_mb: 8192", "cache_mb: 1151"))
    assert "grpo.vllm.cache_mb: is 1151, one prompt of grpo.vllm.longest 8192 tokens needs 1152" in plan().output
    path.write_text(path.read_text().replace("cache_mb: 1151", "cache_mb: 1152"))
    assert "cache_mb" not in plan().output


def test_a_disk_a_runtime_and_devices_that_do_not_suffice_are_refused_once_a_rule(project: Path) -> None:
    edited(project, PAPER, "grpo", runtime=5, disk_mb=1000, mem_mb=2000)
    done = plan("--disk", "100GB")
    assert done.exit_code == 3
    faults = [line for line in done.output.splitlines() if "does not fit" in line]
    assert len(faults) == 4, faults
    assert "resources.grpo.mem_mb: asks for 2000" in faults[0] + faults[1] + faults[2]
    assert any("resources.grpo.disk_mb: asks for 1000" in line for line in faults)
    assert any("resources.grpo.runtime: allows 5 min" in line for line in faults)
    assert any("disk: needs" in line and "there are 0.10" in line for line in faults)
    done = plan("--gpus", "2")
    assert "resources.sft.gpu: asks for 4 GPUs, 2 are there" in done.output


def test_an_architecture_that_no_job_could_run_is_refused(project: Path) -> None:
    from headroom.policy.files import ARCHITECTURES

    path = project / "workflow/models/qwen3-4b.yaml"
    path.write_text(path.read_text().replace("model_type: qwen3", "model_type: olmo2").replace("head_dim: 128", ""))
    assert "olmo2" not in ARCHITECTURES
    path.write_text(path.read_text().replace("parameters: 4022468096", f"parameters: {_olmo(path)}"))
    done = plan()
    assert done.exit_code == 3
    assert "is of model_type 'olmo2', which headroom.policy cannot run" in done.output


def _olmo(path: Path) -> int:
    from headroom.plan.architecture import count

    return count("olmo", yaml.safe_load(path.read_text())["architecture"]).parameters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu-memory", "80"], "--gpu-memory '80': is no size; write it as 80GB"),
        (["--disk", "lots"], "--disk 'lots': is no size"),
        (["--gpu", "tpu"], "--gpu 'tpu': is not known; known are a100-40gb"),
        (["--scale", "papr"], "scale"),
    ],
)
def test_a_wrong_option_is_one_line_with_exit_code_1(project: Path, options: list[str], message: str) -> None:
    done = plan(*options)
    assert done.exit_code == 1
    assert message in str(done.output) + str(done.exception)


def test_the_json_holds_every_job_with_its_bytes_and_interval(project: Path) -> None:
    done = plan("--json")
    found = json.loads(done.stdout)
    jobs = {job["job"]: job for job in found["jobs"]}
    resolved = resolve.resolve({"scale": PAPER}, project)
    assert {f"grpo {run.run}" for run in resolved.runs} | {f"evaluate {name}" for name in resolved.policies} <= set(
        jobs
    )
    for job in jobs.values():
        assert job["seconds_low"] <= job["seconds"] <= job["seconds_high"]
        assert set(job["needs"]) <= set(jobs)
    assert found["gpu_hours"] == pytest.approx(sum(job["seconds"] * job["gpus"] for job in jobs.values()) / 3600)
    low, high = found["wall_seconds_interval"]
    assert low < found["wall_seconds"] < high
    assert found["critical_path_seconds"] <= found["wall_seconds"]


def test_finished_jobs_of_a_scale_correct_its_prediction(project: Path) -> None:
    options = {"gpu": GPUS["a100-80gb"], "gpus": 8}
    before = {job.name: job.seconds for job in estimate(project, PAPER, **options).jobs}
    for run in ("arm-01", "arm-04", "arm-05"):
        folder = project / f"results/{PAPER}/grpo/{run}"
        folder.mkdir(parents=True)
        usage = {"cpu_seconds": 1.0, "wall_seconds": 3 * before[f"grpo {run}"], "peak_memory_bytes": 1}
        record = {"stage": "train.grpo", "ending": "finished", "usage": usage, "earlier_attempts": []}
        (folder / "run.json").write_text(json.dumps(record))
    after = estimate(project, PAPER, **options)
    assert {job.name: job.seconds for job in after.jobs}["grpo arm-11"] == pytest.approx(3 * before["grpo arm-11"])
    assert "grpo: 3 finished jobs of this scale took 3 times the prediction" in after.notes[0]


def test_a_study_without_a_gpu_is_planned_on_cores(project: Path) -> None:
    done = plan("--cores", "2", scale="tiny")
    assert done.exit_code == 0, done.output
    assert "on 2 cores" in done.output
    assert "whole runs, left-one-out" in done.output
    found = estimate(project, "tiny", gpu=GPUS["a100-80gb"], gpus=1)
    assert found.gpu_hours == 0
    assert extremes(found)[0][1] < found.timetable.wall < extremes(found)[1][1]
    assert all(interval(found, job)[0] <= job.seconds for job in found.jobs)
    assert memory.peak(found.jobs[1].moments)[1] < 2e9


def test_sizes_are_decimal() -> None:
    assert size("80GB", "--x") == 80e9
    assert size("1.5 tb", "--x") == 1.5e12


@pytest.mark.parametrize("option", ["--turns", "--prompt-tokens", "--action-tokens"])
@pytest.mark.parametrize("value", ["inf", "1e308"])
def test_a_number_that_no_episode_has_is_refused(project: Path, option: str, value: str) -> None:
    done = plan(option, value, scale="smoke")
    assert done.exit_code == 2
    assert option in done.output
