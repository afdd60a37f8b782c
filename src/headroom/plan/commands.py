"""The subcommands ``headroom plan`` and ``headroom pin-models``. What they need is imported when one of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST = 10**6
"""No episode, prompt or action is longer; beyond it seconds are no numbers."""

PLAN_EXITS = "Exit codes: 0 it fits; 1 a setting is wrong; 2 wrong usage; 3 the plan does not fit, and says where."


def _here(scale: str) -> tuple[Path, str]:
    from headroom.provenance.commands import default_scale, open_project

    project = open_project(cache=False)
    return project.folder, default_scale(project, scale)


def plan(
    scale: Annotated[str, typer.Option(help="A name in workflow/scales/; default: the one of config.yaml.")] = "",
    gpus: Annotated[int, typer.Option(min=1, help="How many GPUs there are.")] = 8,
    gpu: Annotated[str, typer.Option(help="a100-40gb, a100-80gb, h100-80gb or h200-141gb.")] = "a100-80gb",
    gpu_memory: Annotated[str, typer.Option(help="Of one GPU, as 80GB; default: the data sheet's.")] = "",
    cores: Annotated[int, typer.Option(min=1, help="Of the machine, for a study that asks for no GPU.")] = 2,
    disk: Annotated[str, typer.Option(help="What there is for results, as 2TB; default: not checked.")] = "",
    turns: Annotated[float | None, typer.Option(min=1, max=MOST, help="Turns an episode.")] = None,
    prompt_tokens: Annotated[float | None, typer.Option(min=1, max=MOST, help="Tokens a prompt.")] = None,
    action_tokens: Annotated[float | None, typer.Option(min=1, max=MOST, help="Tokens an action.")] = None,
    machine: Annotated[bool, typer.Option("--json", help="Everything, for a machine.")] = False,
) -> None:
    """What a study would cost: jobs, GPU-hours, memory, disk, wall time; refused if it does not fit. Nothing runs."""
    folder, scale = _here(scale)
    from headroom.plan.command import run

    try:
        text, problems = run(
            folder, scale, gpu=gpu, gpu_memory=gpu_memory, gpus=gpus, cores=cores, disk=disk, turns=turns,
            prompt_tokens=prompt_tokens, action_tokens=action_tokens, machine=machine,
        )  # fmt: skip
    except ValueError as error:
        raise SystemExit(f"headroom: {error}") from error
    typer.echo(text)
    if problems:
        typer.echo("\n".join(f"headroom: does not fit: {problem}" for problem in problems), err=True)
        raise typer.Exit(3)


def pin_models(
    scale: Annotated[str, typer.Option(help="Only this scale; default: every scale that names a hub model.")] = "",
    update: Annotated[bool, typer.Option("--update", help="Also replace revisions that are pinned already.")] = False,
    hub: Annotated[str, typer.Option(envvar="HF_ENDPOINT", help="Address of the hub.")] = "https://huggingface.co",
) -> None:
    """Ask the hub for the current commit of every model that a scale names, and write it into workflow/scales/."""
    folder, _ = _here("tiny")
    from headroom.plan.pins import pin

    try:
        for line in pin(folder, hub, only=scale, update=update):
            typer.echo(line)
    except ValueError as error:
        raise SystemExit(f"headroom: {error}") from error


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(epilog=PLAN_EXITS)(plan)
    app.command()(pin_models)
