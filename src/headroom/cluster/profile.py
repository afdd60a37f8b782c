"""The Snakemake profile for Slurm, as far as it says where jobs go and what they ask for."""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from headroom.config.models import Resources

EXECUTOR = "slurm"


class ProfileError(ValueError):
    """The profile cannot be used; one line with the file, the key and the remedy."""


class _Asked(dict[str, Any]):
    """A job's resources, as the plugin reads them: by key and by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


@dataclass(frozen=True)
class Profile:
    """``<folder>/config.yaml``."""

    folder: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """``default-resources``: account, partition, constraint, GPU type."""
    partitions: Mapping[str, Any] = field(default_factory=dict)
    """The table that the plugin chooses from; empty where the profile does not use one."""
    status_command: str | None = None
    first_check: int = 40
    """Seconds before a job's state is asked for."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def partition_of(self, job: SimpleNamespace) -> str | None:
        """Where the plugin would send the job; None: the site's default partition."""
        from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file

        if named := job.resources.get("slurm_partition"):
            return str(named)
        if not self.partitions:
            return None
        quiet = logging.getLogger("headroom.cluster")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        table = read_partition_file(self.folder / self.options["slurm-partition-config"])
        chosen: str | None = get_best_partition(table, job, quiet)
        return chosen

    def job(self, rule: str, resources: Resources) -> SimpleNamespace:
        """A job of a rule, with what the plugin reads of it."""
        asked = _Asked(self.defaults)
        for name, value in resources.model_dump().items():
            if name != "threads":
                asked[name] = value
        return SimpleNamespace(name=rule, threads=resources.threads, resources=asked)

    def submission(self, job: SimpleNamespace, project: Path) -> list[str]:
        """The ``sbatch`` command that the plugin would give for this job, without the job itself."""
        import shlex

        from snakemake_executor_plugin_slurm.submit_string import get_submit_command
        from snakemake_executor_plugin_slurm.utils import set_gres_string

        partition = self.partition_of(job)
        account = job.resources.get("slurm_account")
        parameters = {
            "run_uuid": "headroom-slurm-check",
            "slurm_logfile": "/dev/null",
            "comment_str": f"rule_{job.name}",
            "account": f"-A {shlex.quote(str(account).split(',')[0])}" if account else "",
            "partition": f"-p {shlex.quote(partition)}" if partition else "",
            "workdir": str(project),
        }
        settings = SimpleNamespace(
            requeue=bool(self.options.get("slurm-requeue")),
            no_requeue=False,
            qos=self.options.get("slurm-qos"),
            reservation=self.options.get("slurm-reservation"),
        )
        return shlex.split(get_submit_command(job, parameters, settings) + set_gres_string(job))


def load(folder: Path) -> Profile:
    """Read a profile folder.

    Raises:
        ProfileError: it is missing, no mapping, not for Slurm, or names a table that is not there.
    """
    path = folder / "config.yaml"
    name = f"{folder.name}/config.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise ProfileError(f"{name}: there is no such profile; the one of this project is --profile slurm") from None
    except yaml.YAMLError as error:
        raise ProfileError(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ProfileError(f"{name}: holds no keys; git checkout {name} brings the committed one back")
    if content.get("executor") != EXECUTOR:
        raise ProfileError(f"{name}: executor: {content.get('executor')!r} is not 'slurm'")
    defaults = content.get("default-resources") or {}
    if not isinstance(defaults, dict):
        raise ProfileError(f"{name}: default-resources: write it as NAME: VALUE, one a line")
    table: dict[str, Any] = {}
    if config := content.get("slurm-partition-config"):
        try:
            table = yaml.safe_load((folder / config).read_text(encoding="utf-8")).get("partitions") or {}
        except (OSError, yaml.YAMLError, AttributeError):
            table = {}
        if not table:
            raise ProfileError(f"{name}: slurm-partition-config: {config} has no table `partitions`")
    return Profile(
        folder=folder,
        defaults={key: _value(value) for key, value in defaults.items()},
        partitions=table,
        status_command=content.get("slurm-status-command"),
        first_check=int(content.get("slurm-init-seconds-before-status-checks", 40)),
        options=content,
    )


def _value(written: object) -> object:
    """A default resource as Snakemake reads it: a Python literal, or the text itself."""
    if not isinstance(written, str):
        return written
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return written
