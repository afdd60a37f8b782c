"""The ``headroom`` command. Nothing heavy is imported before a subcommand needs it: ``--help`` answers at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from headroom.plan import commands as planning
from headroom.provenance import commands
from headroom.provenance.project import making

app = typer.Typer(
    help="Will GRPO add skill to a supervised agent, or only reshape or break it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Scale = Annotated[str, typer.Option(help="The name of a file in workflow/scales/; default: the one of config.yaml.")]


def _project() -> Path:
    from headroom.provenance.project import root

    folder = root()
    if not (folder / "Snakefile").is_file():
        raise SystemExit(
            "headroom: this folder is not inside the project; change into the one that holds the Snakefile"
        )
    return folder


def _scale(named: str) -> str:
    from headroom.config.resolve import SETTINGS_FILE, ConfigError, load_yaml, settings_of

    try:
        content = load_yaml(_project() / SETTINGS_FILE, SETTINGS_FILE)
        settings = settings_of(
            {**(content if isinstance(content, dict) else {}), **({"scale": named} if named else {})}
        )
    except ConfigError as error:
        raise SystemExit(f"headroom: {error}") from error
    return settings.scale


@app.command()
def reading(
    checkpoint: Annotated[Path, typer.Argument(help="A Hugging Face checkpoint folder of a supervised agent.")],
    tasks: Annotated[str, typer.Option(help="Names of MiniWoB++ tasks, with commas between them.")],
    seeds: Annotated[int, typer.Option(min=1, help="Pages a task.")] = 25,
    samples: Annotated[int, typer.Option(min=1, help="Samples a page at temperature 1.")] = 8,
    output: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
) -> None:
    """The headroom reading: what to expect of GRPO, before any training."""
    from headroom.config.models import Evaluation

    if not (checkpoint / "config.json").is_file():
        raise SystemExit(f"headroom: {checkpoint} holds no config.json; give the folder of a Hugging Face checkpoint")
    ks = tuple(k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples)
    names = [name.strip() for name in tasks.split(",") if name.strip()]

    from rich.console import Console

    from headroom.files import write_csv
    from headroom.measure.reading import run
    from headroom.measure.reading_text import show

    try:
        result = run(checkpoint, names, evaluation=Evaluation(seeds=seeds, samples=samples, pass_at=ks))
    except ValueError as error:
        raise SystemExit(f"headroom: {error}") from error
    show(result.table, result.sentences, Console())
    if output is not None:
        write_csv(output, result.table)
        typer.echo(f"wrote {output}")


@app.command()
def graft(
    base: Annotated[Path, typer.Argument(help="The checkpoint folder that gives everything that is not grafted.")],
    donor: Annotated[Path, typer.Argument(help="The checkpoint or LoRA adapter folder that gives the groups.")],
    output: Annotated[Path, typer.Argument(help="New folder for the result.")],
    groups: Annotated[str, typer.Option(help="Parameter groups with commas between them: attention,mlp.")],
    bands: Annotated[int, typer.Option(min=1, help="Number of depth bands that groups may name.")] = 3,
    control: Annotated[
        int | None, typer.Option(min=0, help="Write this draw of the random control of equal size instead.")
    ] = None,
) -> None:
    """Parameter groups of one checkpoint in another, written tensor by tensor."""
    from headroom.measure.graft_build import build

    names = [name.strip() for name in groups.split(",") if name.strip()]
    try:
        made = build(base, donor, names, output, bands=bands, control_draw=control)
    except (ValueError, OSError) as error:
        raise SystemExit(f"headroom: {error}") from error
    typer.echo(json.dumps(made, sort_keys=True))


@app.command()
def runs(scale: Scale = "") -> None:
    """The run table of a scale, and what became of each run: every attempt, killed and failed ones included."""
    from headroom.config.resolve import ConfigError, load_runs, load_study
    from headroom.provenance import attempts, record

    project, scale = _project(), _scale(scale)
    try:
        study = load_study(project, scale)
        rows = load_runs(project, study, scale)
    except ConfigError as error:
        raise SystemExit(f"headroom: {error}") from error
    lines: list[tuple[str, ...]] = [(*row.shown(study.learning_rates), "state") for row in rows[:1]]
    log = project / "results" / scale / attempts.NAME
    for run in rows:
        output = f"results/{scale}/grpo/{run.run}"
        tried = attempts.of_output(log, output)
        state = str(tried[-1]["ending"]) if tried else "not run"
        if record.running(project / output):
            state = "running"
        if state in ("finished", "diverged") and not (project / output / "manifest.json").is_file():
            state += ", removed"
        tries = f" ({len(tried)} attempts)" if len(tried) > 1 else ""
        lines.append((*run.shown(study.learning_rates).values(), state + tries))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@app.command()
def summary(scale: Scale = "") -> None:
    """What a finished study made, and where to look."""
    from headroom.config.workflow import load_figures
    from headroom.provenance.walk import read_record

    project, scale = _project(), _scale(scale)
    results, figures = project / "results" / scale, project / "figures" / scale
    made = [name for name in load_figures(project) if (figures / f"{name}.pdf").is_file()]
    if not (results / "contrast").is_dir() and not made:
        raise SystemExit(f"headroom: nothing was made at scale {scale} yet; type: {making(scale)}")
    endings: dict[str, int] = {}
    for record in sorted((results / "grpo").glob("*/run.json")):
        run, _ = read_record(record.read_bytes(), record.name)
        ending = run.ending if run is not None else "with a damaged record"
        endings[ending] = endings.get(ending, 0) + 1
    lines = [f"GRPO runs   {sum(endings.values())} ({', '.join(f'{n} {name}' for name, n in endings.items())})"]
    if scale.endswith("smoke"):
        lines.append("            smoke scale: it shows that every rule works, and is evidence of nothing")
    titles = load_figures(project)
    lines += [f"figure      figures/{scale}/{name}.pdf   {titles[name].title}" for name in made]
    lines += [f"numbers     figures/{scale}/data/, results/{scale}/contrast/contrasts.csv"] if made else []
    text = results / "reading" / "reading.txt"
    if text.is_file():
        lines += [f"reading     {line}" for line in text.read_text(encoding="utf-8").splitlines()]
    lines.append(f"runs        headroom runs --scale {scale}")
    typer.echo("\n".join(lines))


@app.command()
def claims(
    scale: Scale = "",
    readme: Annotated[
        bool, typer.Option("--readme", help="Rewrite the tables of README.md from those of the tiny scales.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Those of the other study, too.")] = False,
) -> None:
    """The verdict on every claim of the scale's paper, and what it rests on."""
    import pandas as pd

    from headroom.config.load import scale_content
    from headroom.files import write_text
    from headroom.present import claims_page

    project, scale = _project(), _scale(scale)
    folder = project / "figures" / scale / "data"
    try:
        table = pd.read_csv(folder / "claims.csv")
        if readme:
            path = project / "README.md"
            write_text(path, claims_page.readme(path.read_text(encoding="utf-8"), project / "figures"))
    except OSError as error:
        raise SystemExit(f"headroom: figures/{scale}/data: {error}; type: {making(scale)}") from error
    except ValueError as error:
        raise SystemExit(f"headroom: README.md {error}") from error
    content = scale_content(project, scale)
    study = content.get("study", "gate") if isinstance(content, dict) else "gate"
    own = table if every else table[table["study"] == study]
    typer.echo(claims_page.plain(own))
    if len(own) < len(table):
        typer.echo(
            f"{len(table) - len(own)} claims are about the other study and judged at its scales; see them: --all"
        )


@app.command()
def schema(check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 on drift.")] = False) -> None:
    """Write the JSON Schemas of all settings and of the run record into workflow/schemas/."""
    from headroom.config import schema as schemas

    project = _project()
    names = schemas.drift(project) if check else schemas.write(project)
    for name in names:
        typer.echo(f"{'differs' if check else 'wrote'}: {name}")
    if check and names:
        raise SystemExit("headroom: the schemas are not what the models say; type: headroom schema")


@app.command(
    "slurm-check", epilog="Exit codes: 0 nothing is missing; 1 not in a project; 2 wrong usage; 3 something is."
)
def slurm_check(
    scale: Scale = "",
    profile: Annotated[str, typer.Option(help="Folder of the Snakemake profile.")] = "slurm",
) -> None:
    """What this site lacks for `snakemake --profile slurm`, before any job is sent."""
    from headroom.cluster.check import check

    project, scale = _project(), _scale(scale)
    missing = 0
    for finding in check(project, scale, project / profile):
        missing += finding.state == "missing"
        remedy = f"  ->  {finding.remedy}" if finding.remedy else ""
        typer.echo(f"{finding.state:<8} {finding.about:<14} {finding.text}{remedy}")
    if missing:
        typer.echo(f"{missing} thing{'s are' if missing > 1 else ' is'} missing; no job was sent", err=True)
        raise SystemExit(3)
    typer.echo(f"ready: snakemake --profile {profile} --config scale={scale}")


planning.register(app)
commands.register(app)


def main() -> None:
    """Entry point."""
    try:
        app()
    except BrokenPipeError:  # the reader of a pipe left early
        sys.stderr.close()


if __name__ == "__main__":
    main()
