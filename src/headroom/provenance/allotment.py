"""What the workflow asked of the machine for this job, held against what the job finds when it starts.

Rules hand it over in one variable, ``HEADROOM_ASKED=grpo:gpu=4,gpu_mem_mb=75000,disk_mb=200000``. A job without it was
started by hand and takes what there is.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from headroom.provenance.project import relative

VARIABLE = "HEADROOM_ASKED"
MEGABYTE = 10**6


@dataclass(frozen=True)
class Asked:
    """The resources of a rule that its own process must check: Slurm limits time, processors and memory itself."""

    rule: str
    gpu: int = 0
    gpu_mem_mb: int = 0
    disk_mb: int = 0


def asked() -> Asked | None:
    """What the rule asked for; None outside the workflow.

    Raises:
        ValueError: the variable is not of the form that rules write.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    form = re.fullmatch(r"(\w+):((?:(?:gpu|gpu_mem_mb|disk_mb)=\d+,?)+)", text)
    if form is None:
        raise ValueError(f"{VARIABLE}={text}: is not RULE:gpu=N,disk_mb=N; rules write it, nobody else needs to")
    pairs = (pair.split("=") for pair in form[2].split(",") if pair)
    return Asked(form[1], **{name: int(value) for name, value in pairs})


def require(*folders: Path) -> None:
    """Check devices, and free disk where ``folders`` will be; a job that asked for no GPU sees none from here on.

    Raises:
        SystemExit: there is less than was asked for; one line with both numbers and the remedy.
    """
    need = asked()
    if need is None:
        return
    for folder in folders:
        _disk(need, folder)
    if need.gpu:
        _devices(need)
    else:  # not every cluster hides the devices of others
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _disk(need: Asked, folder: Path) -> None:
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free // MEGABYTE
    if free < need.disk_mb:
        raise SystemExit(
            f"asked for {need.disk_mb} MB of free disk, {free} MB are free where {relative(folder)} is to be; free "
            f"some and start the workflow again, it goes on from here; or ask for less: "
            f"--set-resources {need.rule}:disk_mb=N"
        )


def _devices(need: Asked) -> None:
    import torch

    given = torch.cuda.device_count()
    if given < need.gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "a build of torch without CUDA"
        raise SystemExit(
            f"asked for {need.gpu} GPU{'s' if need.gpu > 1 else ''}, torch sees {given} "
            f"({build}, CUDA_VISIBLE_DEVICES {'not set' if visible is None else repr(visible)}); look at nvidia-smi "
            f"on this node, or run it without a GPU on purpose: --set-resources {need.rule}:gpu=0"
        )
    for device in range(need.gpu) if need.gpu_mem_mb else ():
        properties = torch.cuda.get_device_properties(device)
        if properties.total_memory // MEGABYTE < need.gpu_mem_mb:
            raise SystemExit(
                f"asked for {need.gpu_mem_mb} MB on each GPU, {properties.name} has "
                f"{properties.total_memory // MEGABYTE} MB; ask the cluster for a larger one (slurm/config.yaml)"
            )
