"""What would make every job fail, or make Snakemake wait for ever, refused before the first one is sent."""

from __future__ import annotations

import shutil

from headroom.cluster.site import WITHOUT_ACCOUNTING, Site


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
