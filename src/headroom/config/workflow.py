"""What the rules look up: the runs, the policies, the resources, the figures. The Snakefile itself holds no logic."""

from __future__ import annotations

import csv
import gc
import io
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from headroom.config.judging import JUDGED_BY
from headroom.config.models import AlfWorldSettings, Resources, model_files
from headroom.config.resolve import SUPERVISED, ConfigError, Resolved, resolve, write
from headroom.config.worlds import LISTING
from headroom.provenance.release import Release, for_tier

FIGURES_TABLE = "workflow/data/figures.tsv"

STUDIES = ("gate", "dark room")

TIERS = ("scratch", "checkpoints", "evals", "tables")
"""From the one that makes everything to the one that only draws."""

PRELUDE = (
    "set -euo pipefail; "
    "export PYTHONPATH=src PYTHONHASHSEED=0 TOKENIZERS_PARALLELISM=false MPLBACKEND=agg SOURCE_DATE_EPOCH=1783987200; "
)
"""Before every shell command: the sources that a rule declares are what runs, and nothing depends on the date."""

VLLM = ".venv-vllm/bin"
"""Where ``make setup-vllm`` puts what such jobs run in; with ``--sdm conda`` they have envs/rollout.yaml instead."""

ACTIVATED = (
    'if [ "$CONDA_PREFIX" = {outer} ] || [ "$(command -v python)" != "$CONDA_PREFIX/bin/python" ]; then '
    'echo "headroom: the conda environment of this job was not activated: python would be $(command -v python). '
    'The line above says why; conda info --json must name the folder that holds bin/activate" >&2; exit 1; fi; '
)
"""Snakemake goes on with its own interpreter, and its packages, where it could not activate a job's environment."""


@dataclass(frozen=True)
class Figure:
    """One row of ``workflow/data/figures.tsv``."""

    name: str
    study: str
    module: str
    tables: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class Workflow:
    """Everything the rules look up, by plain indexing: Snakemake's ``lookup`` searches a table from its start."""

    resolved: Resolved
    figures: Mapping[str, Figure]
    released: Release = field(default_factory=Release)
    """What the tier takes from the release; nothing at tier scratch, or where no archive is."""

    @property
    def scale(self) -> str:
        """Name of the scale."""
        return self.resolved.settings.scale

    def makes(self, tier: str) -> bool:
        """Whether the rules that produce this tier's files exist."""
        return TIERS.index(self.resolved.settings.tier) <= TIERS.index(tier)

    @property
    def study(self) -> str:
        """Which of the two papers' studies the scale is of."""
        return self.resolved.study.study

    @property
    def filmed(self) -> bool:
        """Whether there are pages to replay and draw: a text game has none."""
        return f"results/{self.scale}/config/filmstrip.json" in self.resolved.files

    @property
    def judges(self) -> bool:
        """Whether the tables that the study's claims are judged by are made, or released."""
        first = "contrast/contrasts.csv" if self.study == "gate" else "dark_room/failing_groups.csv"
        return self.makes("evals") or f"results/{self.scale}/{first}" in self.released.files

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The tables that the study's claims are judged by, as ``workflow/rules/figures.smk`` names them."""
        return JUDGED_BY[self.study]

    @cached_property
    def model_files(self) -> list[str]:
        """The files of the checkpoint folder that a scale's model is read from."""
        return [str(path) for path in model_files(self.resolved.study.model)]

    @cached_property
    def games(self) -> list[str]:
        """The listing of the released games that the scale's world plays, once it is there."""
        world = self.resolved.study.world
        if not isinstance(world, AlfWorldSettings) or world.games != "released" or not world.data:
            return []
        path = Path(world.data) / LISTING
        return [str(path)] if path.is_file() else []

    @cached_property
    def init_of(self) -> dict[str, str]:
        """Run -> the SFT job it starts from."""
        return {run.run: run.init for run in self.resolved.runs}

    @cached_property
    def stage_of(self) -> dict[str, str]:
        """Policy -> the folder of the stage that trains it."""
        return {policy: "sft" if policy in self.resolved.inits else "grpo" for policy in self.resolved.policies}

    @cached_property
    def launcher_of(self) -> dict[str, str]:
        """Policy -> what starts its training: python, or torchrun, which starts a process a GPU."""
        return {
            policy: "python" if count == 1 else f"torchrun --standalone --nproc-per-node={count}"
            for policy, count in self.resolved.processes.items()
        }

    @property
    def by_vllm(self) -> bool:
        """Whether vLLM samples the rollouts: such jobs need an environment of their own."""
        return self.resolved.by_vllm

    def environment(self, kind: str, *, samples: bool = False) -> str:
        """The environment of a rule whose jobs open a world; ``samples``: by vLLM where the runs do."""
        return environment(kind, self.resolved.study.world.kind, by_vllm=samples and self.by_vllm)

    def conda(self, kind: str, *, samples: bool = False) -> str:
        """:meth:`environment` as ``conda:`` reads it, from the folder of the rules."""
        return f"../../{self.environment(kind, samples=samples)}"

    def adapters(self, rule: str) -> bool:
        """Whether every job of ``sft`` or ``grpo`` trains a LoRA adapter: a rule declares the same outputs for all."""
        policies = [policy for policy, stage in self.stage_of.items() if stage == rule]
        return bool(policies) and self.resolved.adapters.issuperset(policies)

    @cached_property
    def weights_of(self) -> dict[str, str]:
        """Policy -> the folder of its training that its insides are read from: a run's adapter, if it trained one.

        An SFT job is its own reference, so it is read merged.
        """
        return {
            policy: "adapter" if stage == "grpo" and policy in self.resolved.adapters else "checkpoint"
            for policy, stage in self.stage_of.items()
        }

    @property
    def first_on_path(self) -> str:
        """What stands before the command of a job that samples: vLLM's folder, where jobs have no environment by conda.

        The text is the same with conda and without, so that neither makes a result of the other stale.
        """
        return 'PATH="${{HEADROOM_VLLM:+$HEADROOM_VLLM:}}$PATH" ' if self.by_vllm else ""

    @cached_property
    def reference_of(self) -> dict[str, str]:
        """Policy -> the SFT job that it is compared with inside: the one it started from, an SFT job with itself."""
        return {policy: self.init_of.get(policy, policy) for policy in self.resolved.policies}

    @cached_property
    def taken_apart(self) -> list[str]:
        """The supervised policy, then every run of a regime."""
        return [SUPERVISED, *(run for runs in self.resolved.mechanism.regimes.values() for run in runs)]

    def resources(self, rule: str) -> Resources:
        """What a rule's jobs ask for at this scale."""
        table = self.resolved.study.resources
        return table.get(rule) or table.get("default") or Resources()


def load(config: Mapping[str, object], project: Path) -> Workflow:
    """Check and resolve the study, write what changed, and prepare this process for the jobs.

    Raises:
        ConfigError: a setting is wrong.
    """
    # Thousands of jobs are built and none is dropped: looking for garbage at the usual pace is a sixth of the time.
    gc.set_threshold(200_000, 50, 100)
    resolved = resolve(config, project)
    write(resolved, project)
    # Jobs run the interpreter that lies beside snakemake; inside a conda environment that environment's comes first.
    beside = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != beside:
        os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", "")])
    try:
        released = for_tier(project, resolved.settings.scale, resolved.settings.tier)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return Workflow(resolved, load_figures(project, resolved.study.study), released)


def environment(kind: str, world: str, *, by_vllm: bool = False) -> str:
    """The environment file of a kind of job in a world, relative to the project: ALFWorld's engine alone adds to it."""
    base = "rollout" if by_vllm else kind
    return f"envs/{base}-alfworld.yaml" if world == "alfworld" else f"envs/{base}.yaml"


def before_games(study: Workflow, project: Path) -> None:
    """Look for the released games when a workflow starts, before a job finds none.

    Raises:
        SystemExit: their folder or their listing is not there, or a listed game; one line with the remedy.
    """
    world = study.resolved.study.world
    if not isinstance(world, AlfWorldSettings) or world.games != "released" or not study.makes("checkpoints"):
        return
    where, folder = f"headroom: workflow/scales/{study.scale}.yaml: world.data", project / (world.data or "")
    if not folder.is_dir():
        raise SystemExit(
            f"{where}: there is no folder {world.data}; put the "
            "released games there (alfworld-download), or name the folder that holds them"
        )
    from headroom.worlds.alfworld.listing import WRITE, check_games

    try:
        listed = check_games(folder)
    except ValueError as error:
        raise SystemExit(f"headroom: workflow/scales/{study.scale}.yaml: {error}") from error
    if not listed:
        raise SystemExit(f"{where}: {world.data} has no {LISTING}, which fixes the games; type: {WRITE} {world.data}")


def prelude(scale: str, *, conda: bool) -> str:
    """What stands before every shell command; ``conda``: each job has an environment of its own (``--sdm conda``)."""
    always = f'{PRELUDE}export HEADROOM_PAGES="$PWD/results/{scale}/.pages"; '
    if not conda:
        return f'{always}export HEADROOM_VLLM="$PWD/{VLLM}"; '
    outer = shlex.quote(os.environ.get("CONDA_PREFIX", ""))
    return ACTIVATED.format(outer=outer).replace("{", "{{").replace("}", "}}") + always


def load_figures(project: Path, study: str | None = None) -> dict[str, Figure]:
    """The figures of a study (None: of both), in the order of the table; none when there is no table yet."""
    path = project / FIGURES_TABLE
    if not path.is_file():
        return {}
    found = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(f"{FIGURES_TABLE}: cannot be read ({reason}); restore it with git checkout") from error
    with io.StringIO(text) as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            try:
                tables = tuple(part.strip() for part in row["tables"].split(",") if part.strip())
                figure = Figure(row["figure"], row["study"], row["module"], tables, row["title"])
            except (KeyError, AttributeError) as error:
                raise ConfigError(f"{FIGURES_TABLE}: needs the columns figure, study, module, tables, title") from error
            if figure.study not in STUDIES:
                raise ConfigError(f"{FIGURES_TABLE}: {figure.name}: study: is one of {', '.join(STUDIES)}")
            if study is None or figure.study == study:
                found[figure.name] = figure
    return found


def any_of(names: Iterable[str]) -> str:
    """A regular expression that matches exactly these names.

    Common beginnings are written once: a flat alternation of a thousand runs is tried name by name, a thousand times.
    """
    by_first: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        by_first.setdefault(name[:1], []).append(name[1:])
    parts = [re.escape(first) + (any_of(rest) if first else "") for first, rest in by_first.items()]
    # The longer alternative first; a name that is the beginning of another ends in an empty one.
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(reversed(parts))})" if parts else ""


def options(named: Mapping[str, str | Sequence[str]]) -> str:
    """Inputs as command-line options: ``{"steps": [a, b]}`` becomes ``--steps a --steps b``."""
    return " ".join(
        f"--{name.replace('_', '-')} '{path}'"
        for name, value in named.items()
        for path in ([value] if isinstance(value, str) else value)
    )
