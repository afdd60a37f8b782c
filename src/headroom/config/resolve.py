"""From three readable files to one small JSON file a job; the bytes of that file decide what reruns.

``config.yaml`` (the scale and the tier) + ``workflow/scales/<scale>.yaml`` (that scale's numbers) +
a run table (``workflow/data/runs.tsv`` or ``dark_room.tsv``) are checked as a whole before any job starts.
A fault is one line: file, key, remedy.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headroom.agent.dialect import dialect_of
from headroom.config.jobs import (
    ContrastJob,
    DarkRoomArm,
    DarkRoomJob,
    DemonstrationsJob,
    Draw,
    EvaluateJob,
    GraftJob,
    GrpoJob,
    OverlapJob,
    ProbeJob,
    ReadingJob,
    SelectJob,
    SftJob,
    dump_job,
)
from headroom.config.load import (
    RUNS_TABLE,
    SETTINGS_FILE,
    SUPERVISED,
    ConfigError,
    check,
    load_runs,
    load_study,
    load_yaml,
    scale_content,
    scale_file,
    settings_of,
)
from headroom.config.mechanism import Chosen, chosen, mechanism_jobs
from headroom.config.models import Arm, EvaluationPlan, Grpo, Resources, Row, Settings, Strict, Study
from headroom.provenance.closure import world_of
from headroom.worlds.seeds import POOLS

__all__ = [
    "RUNS_TABLE",
    "SETTINGS_FILE",
    "SUPERVISED",
    "ConfigError",
    "Resolved",
    "check",
    "grpo_of",
    "load_runs",
    "load_study",
    "load_yaml",
    "resolve",
    "scale_content",
    "scale_file",
    "settings_of",
    "write",
]


@dataclass(frozen=True)
class Resolved:
    """A checked study: what the Snakefile needs to know, and the text of every job's settings."""

    settings: Settings
    study: Study
    runs: tuple[Row, ...]
    inits: tuple[str, ...]
    mechanism: Chosen
    processes: Mapping[str, int]
    """Policy -> processes of its training."""
    adapters: frozenset[str]
    """Policies whose training writes a LoRA adapter beside the merged checkpoint."""
    files: Mapping[str, str]
    """Path relative to the project -> text."""
    worlds: Mapping[str, str] = field(default_factory=dict)
    """Stage -> kind of the world that its settings name, of those that name one."""
    validates: bool = False
    """Whether the runs play validation episodes, and write ``validation.parquet``."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Everything that is evaluated: the SFT jobs, then the runs."""
        return (*self.inits, *(run.run for run in self.runs))

    @property
    def by_vllm(self) -> bool:
        """Whether vLLM samples the rollouts: such jobs need an environment of their own."""
        return self.study.grpo.get("engine") == "vllm"


def grpo_of(run: Row, study: Study, scale: str) -> Grpo:
    """The full settings of one run: the scale's recipe, overridden by the row."""
    values = {**study.grpo, **run.recipe()}
    if not isinstance(run, Arm):
        values |= {
            "learning_rate": study.learning_rates[run.learning_rate],
            "warmup_steps": study.warmup_steps if run.schedule == "cosine" else 0,
        }
    return check(Grpo, values, f"{scale_file(scale)}: grpo", "see Grpo in workflow/schemas/study.schema.json")


def _one_gpu_a_process(scale: str, rule: str, policy: str, processes: int, study: Study) -> None:
    """Whether the jobs of a rule ask for as many GPUs as they start processes; on processors any number will do."""
    asked = study.resources.get(rule) or study.resources.get("default") or Resources()
    if asked.gpu and asked.gpu != processes:
        key = f"sft.{policy}" if rule == "sft" else "grpo"
        raise ConfigError(
            f"{scale_file(scale)}: {key}.trainer.processes: is {processes}, but resources.{rule}.gpu is {asked.gpu}; "
            "give each process one GPU"
        )


def _evaluate(policy: str, plan: EvaluationPlan, study: Study) -> EvaluateJob:
    evaluation = study.evaluation
    if plan.samples is not None:
        ks = tuple(k for k in evaluation.pass_at if k <= plan.samples)
        evaluation = evaluation.model_copy(update={"samples": plan.samples, "pass_at": ks})
    return EvaluateJob(
        policy=policy, world=study.world, evaluation=evaluation, greedy_on=plan.greedy, sampled_on=plan.sampled
    )


def _arm(run: Arm, grpo: Grpo) -> DarkRoomArm:
    return DarkRoomArm(arm=run.arm, seed=run.seed, last=grpo.validation.last)


def _worlds(jobs: Mapping[str, Strict]) -> dict[str, str]:
    """Stage -> the kind of world that the settings of its jobs name, or whose dialect they name."""
    found = {}
    for name, job in jobs.items():
        kind = world_of(job.model_dump(include={"world", "dialect"}))
        if kind is not None:
            stage = name.split("/")[0]
            found[f"{'train' if stage in ('demonstrations', 'sft', 'grpo') else 'measure'}.{stage}"] = kind
    return found


def _validation_has_steps(scale: str, study: Study, recipes: Mapping[str, Grpo]) -> None:
    """Whether runs validate policies that were trained, on pages that there are, and predict what can be predicted."""
    for grpo in recipes.values():
        plan, where = grpo.validation, f"{scale_file(scale)}: grpo"
        if plan.every and plan.last > grpo.steps // plan.every:
            raise ConfigError(
                f"{where}.validation: every {plan.every} of {grpo.steps} steps, trained policies are validated "
                f"{grpo.steps // plan.every} times, fewer than last ({plan.last}); lower every or last"
            )
        pages = math.ceil(plan.pages / max(1, len(study.tasks.candidates)))
        if plan.every and pages > POOLS["validation"]:
            raise ConfigError(
                f"{where}.validation.pages: pool 'validation' has {POOLS['validation']} seeds a task, not {pages}; "
                "ask for fewer"
            )
        said = grpo.signal.kind not in ("none", "noise")
        if study.world.kind == "miniwob" and (said or grpo.auxiliary.kind != "none"):
            raise ConfigError(
                f"{where}.{'signal' if said else 'auxiliary'}.kind: pages of MiniWoB++ have nothing to predict, nor to "
                "answer; take a text game"
            )


def _validation_seeds(study: Study, recipes: Iterable[Grpo]) -> dict[str, int]:
    """Seeds a task of the pool ``validation`` that any run plays; no entry where none validates."""
    size = {"mastered": study.tasks.mastered, "headroom": study.tasks.headroom, "all": len(study.tasks.candidates)}
    seeds = [
        math.ceil(job.validation.pages / max(1, size[job.tasks]))
        for job in recipes
        if job.validation.every and job.validation.pages
    ]
    return {"validation": min(max(seeds), POOLS["validation"])} if seeds else {}


def _sets_have_tasks(scale: str, study: Study, jobs: Mapping[str, Strict]) -> None:
    """Whether no job asks for a set that this scale leaves empty (``tasks.mastered``, ``tasks.headroom``)."""
    empty = {name for name in ("mastered", "headroom") if not getattr(study.tasks, name)}
    for name, job in jobs.items():
        asked: list[str] = []
        if isinstance(job, EvaluateJob):
            asked = [*job.greedy_on, *job.sampled_on]
        elif isinstance(job, GrpoJob):
            asked = [job.grpo.tasks]
        elif isinstance(job, ProbeJob | GraftJob):
            asked = [*(job.probe if isinstance(job, ProbeJob) else job.graft).task_sets]
        if wrong := sorted(empty.intersection(asked)):
            raise ConfigError(
                f"{scale_file(scale)}: tasks.{wrong[0]}: is 0, but the job {name} asks for that set; "
                "ask for the set 'all', or give it a size"
            )


def resolve(config: Mapping[str, object], project: Path) -> Resolved:
    """Check everything and resolve it.

    Args:
        config: The content of ``config.yaml``, merged with ``--config``.
        project: The folder that holds ``config.yaml``.

    Raises:
        ConfigError: at the first fault.
    """
    settings = settings_of(config)
    scale = settings.scale
    study = load_study(project, scale)
    runs = load_runs(project, study, scale)
    used = {SUPERVISED, *(run.init for run in runs)}
    inits = tuple(name for name in study.sft if name in used)
    world = study.world
    recipes = {run.run: grpo_of(run, study, scale) for run in runs}
    _validation_has_steps(scale, study, recipes)
    jobs: dict[str, Strict] = {
        "demonstrations": DemonstrationsJob(
            world=world, tasks=study.tasks.candidates, demonstrations=study.demonstrations
        ),
        "overlap": OverlapJob(
            world=world,
            demonstrations={
                task: study.demonstrations.episodes_override.get(task, study.demonstrations.episodes_per_task)
                for task in study.tasks.candidates
            },
            runs=tuple(
                Draw(tasks=tasks, seed=seed, steps=steps, pages_per_step=pages)
                for tasks, seed, steps, pages in sorted(
                    {(job.tasks, job.seed, job.steps, job.pages_per_step) for job in recipes.values()}
                )
            ),
            held_out={
                "selection": study.tasks.selection_seeds,
                "reading": study.evaluation.seeds,
                "evaluation": study.evaluation.seeds,
                **_validation_seeds(study, recipes.values()),
            },
        ),
        "select": SelectJob(world=world, tasks=study.tasks, max_new_tokens=study.evaluation.max_new_tokens),
        "reading": ReadingJob(world=world, evaluation=study.evaluation, statistics=study.statistics),
        "contrast": ContrastJob(statistics=study.statistics, learning_rates=study.learning_rates),
    }
    longest = min(study.evaluation.max_new_tokens, *(recipe.max_new_tokens for recipe in recipes.values()))
    for name in inits:
        jobs[f"sft/{name}"] = SftJob(
            name=name, model=study.model, sft=study.sft[name], dialect=dialect_of(world.kind).name, longest=longest
        )
        jobs[f"evaluate/{name}"] = _evaluate(name, study.evaluate.get(name, EvaluationPlan()), study)
    trainers = {name: study.sft[name].trainer for name in inits}
    for run in runs:
        jobs[f"grpo/{run.run}"] = GrpoJob(world=world, grpo=recipes[run.run])
        trainers[run.run] = recipes[run.run].trainer
        jobs[f"evaluate/{run.run}"] = _evaluate(run.run, study.evaluate.get(run.family, EvaluationPlan()), study)
    try:
        apart = chosen(study, runs, inits)
    except ValueError as error:
        raise ConfigError(f"{scale_file(scale)}: {error}") from error
    processes = {policy: trainer.processes for policy, trainer in trainers.items()}
    for policy, count in processes.items():
        _one_gpu_a_process(scale, "sft" if policy in inits else "grpo", policy, count, study)
    adapters = frozenset(policy for policy, trainer in trainers.items() if trainer.lora is not None)
    jobs |= mechanism_jobs(study, apart, SUPERVISED)
    validates = all(recipe.validation.every > 0 for recipe in recipes.values())
    if study.study == "dark room":
        if not validates:
            raise ConfigError(f"{scale_file(scale)}: grpo.validation.every: is 0; an arm's endpoint is its validation")
        jobs["dark_room"] = DarkRoomJob(
            arms={run.run: _arm(run, recipes[run.run]) for run in runs if isinstance(run, Arm)},
            statistics=study.statistics,
        )
    _sets_have_tasks(scale, study, jobs)
    files = {f"results/{scale}/config/{name}.json": dump_job(job) for name, job in jobs.items()}
    return Resolved(
        settings, study, runs, inits, apart, processes, adapters, files, worlds=_worlds(jobs), validates=validates
    )


def write(resolved: Resolved, project: Path) -> list[str]:
    """Write the files whose bytes differ and remove those of jobs that no longer exist.

    Returns:
        The paths that changed, so that an unchanged study touches nothing.
    """
    changed: list[str] = []
    for name, text in resolved.files.items():
        path = project / name
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            # Moved into place, but not flushed to the disk: what a crash of the machine takes is written again by the
            # next start, and a thousand flushes take ten seconds.
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(path)
            changed.append(name)
    folder = project / f"results/{resolved.settings.scale}/config"
    for path in folder.rglob("*.json"):
        if path.relative_to(project).as_posix() not in resolved.files:
            path.unlink()
            changed.append(path.relative_to(project).as_posix())
    return sorted(changed)
