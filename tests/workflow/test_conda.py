"""``snakemake --sdm conda``: environments made, activated and used, with a test double in conda's place.

The double (``conda_stand_in/``) solves and links stubs from a channel on disk, and its pip takes from what the project
has installed. So these tests say that the rules, Snakemake and the environments' files fit together, and that a job has
in its environment what it imports. They do not say that conda-forge has the versions, nor that its builds work.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from headroom.provenance import closure

PROJECT = Path(__file__).parents[2]
DOUBLE = Path(__file__).parent / "conda_stand_in"
RATTLER = PROJECT / ".tools/rattler/bin/python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not RATTLER.is_file(), reason="the double needs py-rattler in .tools/rattler; .ci/run installs it"
    ),
]

STAGES = {
    "worlds": {"train.demonstrations", "measure.overlap", "measure.filmstrip"},
    "train": {
        "train.sft", "train.grpo", "measure.select", "measure.reading", "measure.evaluate", "measure.probe",
        "measure.rank", "measure.graft",
    },
    "analysis": {"measure.contrast", "measure.failures", "measure.mechanism"},
    "figures": {f"present.{path.stem}" for path in (PROJECT / "src/headroom/present").glob("[!_]*.py")},
    "audit": {"provenance.commands", "provenance.verify", "provenance.crate", "provenance.release"},
}  # fmt: skip
"""Kind of job -> the modules that its jobs start."""

ABSENT = {"worlds": "transformers", "analysis": "torch", "figures": "torch", "audit": "matplotlib", "train": "seaborn"}
"""A package that is installed in the project, but is none of the environment's."""

WHERE = """
import os, sys
argv = sys.orig_argv
if "-m" in argv and argv[argv.index("-m") + 1].startswith("headroom."):
    with open(os.environ["WHERE"], "a") as stream:
        print(argv[argv.index("-m") + 1], sys.prefix, os.environ.get("CONDA_PREFIX"), file=stream)
"""
"""Put before the stand-in of the stages: which interpreter, in which environment, each stage runs in."""


class Conda:
    """The double on the PATH, and where Snakemake keeps its environments."""

    def __init__(self, folder: Path) -> None:
        self.environments = folder / "environments"
        self.root = folder / "conda"
        (self.root / "bin").mkdir(parents=True)
        program = self.root / "bin/conda"
        program.write_text(f'#!/bin/sh\nexec "{RATTLER}" "{program}.py" "$@"\n')
        program.chmod(0o755)
        for name in ("activate", "conda.py"):
            shutil.copy2(DOUBLE / name, self.root / "bin" / name)
        files = sorted((PROJECT / "envs").glob("*.yaml"))
        here = (Path(sys.executable).resolve(), sysconfig.get_path("purelib"))
        subprocess.run([RATTLER, DOUBLE / "channel.py", folder / "channel", *here, *files], check=True)
        self.variables = {
            "PATH": os.pathsep.join([str(self.root / "bin"), os.environ["PATH"]]),
            "CONDA_STAND_IN_CHANNEL": str(folder / "channel"),
        }

    def kinds(self) -> dict[str, str]:
        """Environment's folder -> its kind, from the copies of their files that Snakemake leaves."""
        copies = self.environments.glob("*.yaml")
        named = {path.with_suffix(""): yaml.safe_load(path.read_text())["name"] for path in copies}
        return {str(folder): name.removeprefix("headroom-") for folder, name in named.items()}

    def python(self, kind: str) -> Path:
        """The interpreter of an environment; made now if no rule of the study has had it made."""
        folders = [folder for folder, name in self.kinds().items() if name == kind]
        folder = Path(folders[0]) if folders else self.environments / kind
        if not folder.is_dir():
            done = self.run("conda", "env", "create", "--file", f"envs/{kind}.yaml", "--prefix", folder)
            assert done.returncode == 0, done.stdout
        return folder / "bin/python"

    def run(self, *command: str | Path, folder: Path = PROJECT) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, **self.variables, "PYTHONPATH": "src"}
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)

    def snakemake(self, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
        ours = ("--sdm", "conda", "--conda-prefix", str(self.environments), "--cores", "2", "--config", "scale=smoke")
        return self.run(sys.executable, "-m", "snakemake", *ours, *options, folder=folder)


@pytest.fixture(scope="module")
def conda(tmp_path_factory: pytest.TempPathFactory) -> Conda:
    return Conda(tmp_path_factory.mktemp("conda"))


def test_every_job_of_the_study_runs_in_the_environment_of_its_rule(
    conda: Conda, study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = type(study)(tmp_path / "project")
    made = shutil.ignore_patterns("results", "figures", ".snakemake", "__pycache__")
    shutil.copytree(study.folder, copy.folder, ignore=made)
    stages = copy.folder / "src/sitecustomize.py"
    stages.write_text(WHERE + stages.read_text())
    for name, value in {**conda.variables, "WHERE": str(tmp_path / "where")}.items():
        monkeypatch.setenv(name, value)
    done = copy.snakemake("--sdm", "conda", "--conda-prefix", str(conda.environments))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]

    kinds = conda.kinds()
    found: dict[str, set[str]] = {}
    for line in (tmp_path / "where").read_text().splitlines():
        module, prefix, activated = line.split()
        assert prefix == activated, f"{module} ran in {prefix}, not in the activated environment"
        found.setdefault(kinds[prefix], set()).add(module.removeprefix("headroom."))
    assert "present.claims" in found["figures"]
    assert found.pop("figures") <= STAGES["figures"]
    assert found == {kind: STAGES[kind] for kind in ("worlds", "train", "analysis")}


def test_real_jobs_run_in_their_environments_and_record_nothing_else_as_installed(
    conda: Conda, copy_project: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_project(tmp_path / "project")
    targets = ["results/smoke/sft/sft/manifest.json", "results/smoke/overlap/manifest.json"]
    done = conda.snakemake(folder, "--", *targets)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    synthetic = "from pathlib import Path; from synthetic_study import write_study; write_study(Path('results/smoke'))"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", str(PROJECT / "tests/unit/present")])}
    subprocess.run([sys.executable, "-c", synthetic], cwd=folder, env=variables, check=True)
    rules = ("--allowed-rules", "figure_data", "figure")
    done = conda.snakemake(folder, *rules, "--", "figures/smoke/training_curves.pdf")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for record, kind in {
        "results/smoke/demonstrations/run.json": "worlds",
        "results/smoke/overlap/run.json": "worlds",
        "results/smoke/sft/sft/run.json": "train",
        "figures/smoke/records/training_curves.data.run.json": "figures",
        "figures/smoke/records/training_curves.draw.run.json": "figures",
    }.items():
        installed = json.loads((folder / record).read_text())["packages"]["installed"]
        pins = yaml.safe_load((folder / f"envs/{kind}.yaml").read_text())["dependencies"][-1]["pip"]
        assert {f"{name}=={version.partition('+')[0]}" for name, version in installed.items()} == set(pins), record


ELSEWHERE = {
    "headroom.provenance.allotment",  # imports torch for a job that asked for GPUs
    "headroom.policy.vllm_engine",  # imports vLLM for a job whose samples it draws, in the environment rollout
    "headroom.policy.vllm_language",  # likewise
}


@pytest.mark.parametrize("kind", STAGES)
def test_all_that_a_kind_of_job_can_import_is_in_its_environment(conda: Conda, kind: str) -> None:
    python = conda.python(kind)
    names = set()
    for stage in STAGES[kind]:
        for module, path in closure.modules(stage, world="miniwob").items():  # the other kind has its own
            names.add(module)
            if module not in ELSEWHERE:
                names |= third_party(path)
    everything = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    done = conda.run(python, "-c", everything, *sorted(names))
    assert done.returncode == 0, done.stderr[-2000:]
    done = conda.run(python, "-c", f"import {ABSENT[kind]}")
    assert "ModuleNotFoundError" in done.stderr, "the environment is not closed: this test would show nothing"


def third_party(path: Path) -> set[str]:
    """Modules of others that a source file imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] != "headroom"}


def test_a_job_whose_environment_is_not_activated_fails_and_says_so(
    conda: Conda, copy_project: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_project(tmp_path / "project")
    activate = conda.root / "bin/activate"
    activate.rename(conda.root / "kept")
    try:
        done = conda.snakemake(folder, "--", "results/smoke/overlap/manifest.json")
    finally:
        (conda.root / "kept").rename(activate)
    assert done.returncode != 0
    assert "headroom: the conda environment of this job was not activated" in done.stderr
    assert not (folder / "results/smoke/overlap").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("python=3.11.11", "python=3.11.99", r"python 3\.11\.99"),
        ("pandas==", "pandas==9.", r"No matching distribution found for pandas==9\."),
    ],
)
def test_a_version_that_is_not_to_be_had_stops_before_any_job(
    conda: Conda, copy_project: Callable[[Path], Path], tmp_path: Path, old: str, new: str, said: str
) -> None:
    folder = copy_project(tmp_path / "project")
    path = folder / "envs/worlds.yaml"
    path.write_text(path.read_text().replace(old, new))
    done = conda.snakemake(folder, "--", "results/smoke/overlap/manifest.json")
    assert done.returncode != 0
    assert "Could not create conda environment from" in done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert "rule overlap" not in done.stderr


def test_pins_are_made_from_the_environments_and_used_with_their_pip_part(
    conda: Conda, copy_project: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_project(tmp_path / "project")
    done = conda.run(sys.executable, "tools/pins.py", folder=folder)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (folder / "envs").glob("*.linux-64.pin.txt")}
    own = [path.stem for path in (folder / "envs").glob("*.yaml") if "-" not in path.stem]  # not of another world
    assert made == {f"{kind}.linux-64.pin.txt" for kind in own}
    done = conda.snakemake(folder, "--conda-create-envs-only", "--", "results/smoke/overlap/manifest.json")
    assert done.returncode == 0, done.stderr
    assert "Failed to install conda environment from pin file" not in done.stderr
    pinned = sorted(conda.environments.glob("*.pin.txt"))
    assert len(pinned) == 2  # of the kinds worlds and train: the overlap follows the choice of tasks
    for path in pinned:
        done = conda.run(path.with_name(path.name.replace(".pin.txt", "")) / "bin/python", "-c", "import miniwob")
        assert done.returncode == 0, done.stderr
