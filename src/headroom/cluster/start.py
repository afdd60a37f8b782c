"""What would make every job fail, or make Snakemake wait for ever, refused before the first one is sent."""

from __future__ import annotations

import shutil
from pathlib import Path

from headroom.cluster.site import WITHOUT_ACCOUNTING, Site
from headroom.config.workflow import VLLM, Workflow


def before_jobs(executor: str, status_command: str | None = None) -> None:
    """Look at the cluster when the workflow starts; any other executor than Slurm's needs nothing.

    Args:
        executor: Name of Snakemake's executor plugin.
        status_command: How the plugin will ask for the state of jobs: ``sacct`` or ``squeue``.

    Raises:
        SystemExit: no Slurm, no answer, or an accounting that does not exist; one line with the remedy.
    """
    if executor != "slurm":
        return
    site = Site()
    if site.absent:
        reason = f"not on the PATH: {', '.join(site.absent)}; work on a login node, or take another profile"
    elif not site.version.ok:
        reason = f"the controller of Slurm does not answer: {site.version.last_line}"
    elif status_command == "sacct" and shutil.which("sacct") and not site.has_accounting:
        reason = f"sacct knows nothing (no slurmdbd), so no job would be seen to end: {WITHOUT_ACCOUNTING}"
    else:
        return
    raise SystemExit(f"headroom: executor slurm: {reason}; `make slurm-check` says what else is missing")


def before_rollouts(study: Workflow, project: Path, *, conda: bool) -> None:
    """Look for vLLM when a workflow starts at a scale whose runs sample by it: supervised training comes hours before.

    Whatever the targets are, as long as one run is not made yet.

    Raises:
        SystemExit: it is not there; one line with the remedy.
    """
    if not study.makes("scratch"):
        return
    there = conda or not study.by_vllm or (project / VLLM / "python").exists()
    made = [project / f"results/{study.scale}/grpo/{run}/manifest.json" for run in study.init_of]
    if not there and not all(path.is_file() for path in made):
        raise SystemExit(
            f"headroom: workflow/scales/{study.scale}.yaml: grpo.engine is vllm, which needs an environment of its "
            "own: type make setup-vllm, or give --sdm conda; or sample by torch, engine: torch"
        )
    plays = study.by_vllm and study.resolved.study.world.kind == "alfworld"
    if plays and not conda and not _has_engine((project / VLLM).parent) and not all(path.is_file() for path in made):
        raise SystemExit(
            f"headroom: workflow/scales/{study.scale}.yaml: world.kind is alfworld, and .venv-vllm, where its runs "
            "play, lacks ALFWorld's engine: type make setup-alfworld, or give --sdm conda"
        )


def _has_engine(environment: Path) -> bool:
    """Whether ALFWorld's engine is installed in a virtual environment."""
    return any(environment.glob("lib/python*/site-packages/textworld"))
