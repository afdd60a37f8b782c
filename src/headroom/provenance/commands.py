"""The audit's subcommands of ``headroom``. What they need is imported when one of them runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom.provenance.project import making

if TYPE_CHECKING:
    from headroom.provenance.walk import Project

AUDIT_EXITS = "Exit codes: 0 all as recorded; 1 the target is not known; 2 wrong usage; 3 something is not as recorded."
VERIFY_EXITS = (
    "Exit codes: 0 everything is as recorded; 1 there is nothing to check, or the path is none of ours; "
    "2 wrong usage; 3 a file, a record or a chain is not as recorded; 4 all files are, but runs are absent, failed "
    "or not in the run table."
)

DIFF_EXITS = "Exit codes: 0 same bytes, made in the same way; 1 a target is not known; 2 wrong usage; 3 they differ."
STALE_EXITS = "Exit codes: 0 nothing is stale; 1 the settings are wrong; 2 wrong usage; 3 something would run."

ScaleOption = Annotated[str, typer.Option("--scale", help="A file of workflow/scales/; default: see config.yaml.")]
TierOption = Annotated[str, typer.Option(help="scratch, checkpoints, evals or tables: which rules exist.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Everything, for a machine.")]


def open_project(*, cache: bool) -> Project:
    """The project around the working directory."""
    from headroom.provenance import cache as digests
    from headroom.provenance.project import root
    from headroom.provenance.walk import Project

    folder = root()
    if not (folder / "Snakefile").is_file():
        raise SystemExit("headroom: this folder is not inside the project; change into the one with the Snakefile")
    return Project(folder, digests.Hasher(folder / "results" / digests.NAME if cache else None))


def default_scale(project: Project, named: str) -> str:
    """The scale that is meant."""
    if "/" in named or named in (".", ".."):  # a name is a part of paths
        raise SystemExit(f"headroom: --scale {named}: is no name of a scale; here are {', '.join(project.scales())}")
    if named or not (project.folder / "config.yaml").is_file():
        return named or "tiny"
    from headroom.config.resolve import SETTINGS_FILE, ConfigError, load_yaml

    try:
        content = load_yaml(project.folder / SETTINGS_FILE, SETTINGS_FILE)
    except ConfigError as error:
        raise SystemExit(f"headroom: {error}") from error
    return str(content.get("scale", "tiny")) if isinstance(content, dict) else "tiny"


def _unwritten(error: OSError) -> str:
    """One line for a disk that is full, or a place that takes no file."""
    place = error.filename2 or error.filename
    return (
        f"headroom: {place or 'the output'}: cannot be written ({error.strerror or error}); mend it, then start again"
    )


def audit(
    target: Annotated[str, typer.Argument(help="A figure, table, checkpoint, claim or run: its path or its name.")],
    row: Annotated[int | None, typer.Option(help="Only what this line of the table rests on, from 1.")] = None,
    scale: ScaleOption = "",
    full: Annotated[
        bool, typer.Option("--full", help="Show every run, also those that are like the one shown.")
    ] = False,
    cache: Annotated[
        bool, typer.Option(help="Trust digests of files whose size, times and inode did not change.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Walk from a result back to what made it, every file hashed on the way."""
    from headroom.provenance.audit import Audit, claim_files, find_target
    from headroom.provenance.tree import render

    project = open_project(cache=cache)
    size = default_scale(project, scale)
    try:
        claim = claim_files(project, target, size)
        names = claim[1] if claim else [find_target(project, target, size)]
        audits = [Audit(project, name, row) for name in names]
        if as_json:
            documents = [item.as_json() for item in audits]
            document = {"claim": claim[0], "files": documents} if claim else documents[0]
            typer.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
        else:
            if claim:
                typer.echo("\n".join(f"{key}: {value}" for key, value in claim[0].items() if value))
            typer.echo("\n".join(render(item, full=full) for item in audits), nl=False)
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    if any(item.faults() for item in audits):
        raise typer.Exit(3)


def verify(
    path: Annotated[str, typer.Argument(help="A result; default: everything of every scale that is here.")] = "",
    scale: Annotated[str, typer.Option(help="Only this scale.")] = "",
    cache: Annotated[
        bool, typer.Option(help="Trust digests of files whose size, times and inode did not change.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read everything that was recorded again; say what is wrong, missing, undeclared, absent or failed."""
    from headroom.provenance import verify as checking
    from headroom.provenance.audit import find_target

    project = open_project(cache=cache)
    try:
        if path:
            reports = [checking.verify_path(project, find_target(project, path, default_scale(project, scale)))]
        else:
            # A dry run leaves the settings of its scale; that alone is nothing to check.
            named = [default_scale(project, scale)] if scale else checking.recorded_scales(project)
            reports = [checking.verify_scale(project, name) for name in named]
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    findings = [finding for report in reports for finding in report.findings]
    runs, files = sum(report.runs for report in reports), sum(report.files for report in reports)
    code = max((report.exit_code for report in reports if report.exit_code), default=0, key=lambda c: (c == 3, c))
    if not runs and all(finding.kind == "note" for finding in findings):  # also where no scale has that name
        where = f"at scale {scale}" if scale else "here"
        raise SystemExit(f"headroom: nothing was recorded {where} yet; type: make reproduce")
    if as_json:
        document = {"runs": runs, "files": files, "exit_code": code, "findings": [vars(item) for item in findings]}
        typer.echo(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        for finding in findings:
            typer.echo(finding.line())
        faults = sum(finding.kind != "note" for finding in findings)
        typer.echo(f"{runs} runs, {files} files: {f'{faults} faults' if faults else 'everything is as recorded'}")
    if code:
        raise typer.Exit(code)


def diff(
    a: Annotated[str, typer.Argument(help="A result: path or name.")],
    b: Annotated[str, typer.Argument(help="Another one, also of another copy of the project.")],
    scale: ScaleOption = "",
    as_json: JsonOption = False,
) -> None:
    """Why two results differ: the first stage where their chains part, and what is different there."""
    from headroom.provenance import diff as differences
    from headroom.provenance.audit import find_target

    sides = []
    try:
        for text in (a, b):
            project = project_of(text)
            name = find_target(project, text, default_scale(project, scale))
            node = project.owner(name)
            if node is None:
                raise LookupError(f"{name}: no record knows it")
            sides.append((project, node))
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    steps = differences.compare(sides[0], sides[1])
    if as_json:
        typer.echo(json.dumps([vars(step) for step in steps], indent=2, sort_keys=True, ensure_ascii=False))
    else:
        typer.echo(differences.render(steps), nl=False)
    if any(step.parts for step in steps):
        raise typer.Exit(3)


def project_of(text: str) -> Project:
    """The project that a path lies in; the one around the working directory for a name."""
    from headroom.provenance.walk import Project

    place = Path(text).absolute()
    if os.path.exists(text):  # noqa: PTH110 (false for any odd text)
        for folder in place.parents:
            if (folder / "Snakefile").is_file():
                return Project(folder)
    return open_project(cache=False)


def stale(scale: ScaleOption = "", tier: TierOption = "scratch", as_json: JsonOption = False) -> None:
    """What the edits in the working tree make stale, and why, before anything runs."""
    from headroom.provenance import stale as staleness

    project = open_project(cache=True)
    try:
        size = default_scale(project, scale)
        found = staleness.stale(project, size, tier)
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    if as_json:
        typer.echo(json.dumps([vars(item) for item in found], indent=2, sort_keys=True, ensure_ascii=False))
    else:
        typer.echo(staleness.render(found, size), nl=False)
    if found:
        raise typer.Exit(3)


def release(
    scale: ScaleOption = "",
    level: Annotated[
        str, typer.Option("--with", help="tables, evals or checkpoints: where a reader can start.")
    ] = "evals",
    output: Annotated[Path | None, typer.Option(help="The archive; default dist/headroom-SCALE.tar.gz.")] = None,
) -> None:
    """Pack the results of a scale, as recorded, into one archive, and list its files in results.lock."""
    from headroom.provenance import release as packing

    project = open_project(cache=False)
    size = default_scale(project, scale)
    if level not in packing.LEVELS:
        raise SystemExit(f"headroom: --with {level}: say one of {', '.join(packing.LEVELS)}")
    archive = output or project.folder / "dist" / f"headroom-{size}.tar.gz"
    try:
        entries = packing.pack(project, size, level, archive)
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    except OSError as error:
        raise SystemExit(_unwritten(error)) from error
    megabytes = archive.stat().st_size / (1 << 20)
    typer.echo(f"{archive.name}: {len(entries)} files, {megabytes:.1f} MB; results.lock lists them, commit it")


def unpack(
    archive: Annotated[Path, typer.Argument(help="An archive that headroom release made.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only this path, or what lies below it.")] = None,
    tier: Annotated[str, typer.Option(help="Only what this tier takes: checkpoints, evals or tables.")] = "",
    scale: ScaleOption = "",
) -> None:
    """Put the files of a release into this project, each held to its digest, and to results.lock."""
    from headroom.provenance import allotment, lock
    from headroom.provenance import release as packing
    from headroom.provenance.verify import scale_of

    project = open_project(cache=False)
    allotment.require(project.folder)
    if tier and tier not in ("checkpoints", "evals", "tables"):
        raise SystemExit(f"headroom: --tier {tier}: takes nothing from a release; say checkpoints, evals or tables")
    try:
        chosen = tuple(only or ())
        if tier:
            taken = packing.for_tier(project.folder, default_scale(project, scale), tier)
            chosen += (*taken.files, *taken.folders)
        names = packing.unpack(project.folder, archive, force=force, only=chosen if only or tier else None)
    except ValueError as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    except OSError as error:
        raise SystemExit(_unwritten(error)) from error
    listed = lock.load(project.folder / lock.NAME)
    if strange := sum(name not in listed for name in names):
        typer.echo(
            f"note: {lock.NAME} lists {len(names) - strange} of them; the rest is held to the archive's own list"
        )
    settings = " ".join(f"scale={size}" for size in sorted({scale_of(name) for name in names} - {""}))
    typer.echo(
        f"{len(names)} files; start from them with: snakemake --cores 2 --config {settings} tier={tier or 'evals'}"
    )


def crate(
    scale: ScaleOption = "",
    level: Annotated[
        str, typer.Option("--with", help="tables, evals or checkpoints: which files are inside.")
    ] = "tables",
    output: Annotated[Path | None, typer.Option(help="New folder; default dist/headroom-SCALE-crate.")] = None,
) -> None:
    """Export a finished study as a Workflow Run RO-Crate (Provenance Run profile)."""
    from headroom.provenance import crate as exporting
    from headroom.provenance.release import LEVELS

    project = open_project(cache=False)
    size = default_scale(project, scale)
    if level not in LEVELS:
        raise SystemExit(f"headroom: --with {level}: say one of {', '.join(LEVELS)}")
    folder = output or project.folder / "dist" / f"headroom-{size}-crate"
    try:
        count = exporting.export(project, size, level, folder)
    except (LookupError, ValueError) as error:
        raise SystemExit(f"headroom: {error.args[0]}") from error
    except OSError as error:
        raise SystemExit(_unwritten(error)) from error
    typer.echo(f"{folder.name}: {count} files and the run of every job, in ro-crate-metadata.json")


def lineage(
    scale: ScaleOption = "",
    output: Annotated[Path | None, typer.Option(help="Default results/SCALE/audit/lineage.html.")] = None,
) -> None:
    """Write one HTML page with the lineage of every figure as a graph to click through."""
    from headroom.files import write_text
    from headroom.provenance.page import page
    from headroom.provenance.verify import figure_files

    project = open_project(cache=True)
    size = default_scale(project, scale)
    names = [
        name for name in figure_files(project.folder, size) if "/data/" not in name or name.endswith("/claims.csv")
    ]
    names = [name for name in names if project.owner(name) is not None]
    if not names:
        raise SystemExit(f"headroom: no figure was made at scale {size} yet; type: {making(size)}")
    place = output or project.folder / "results" / size / "audit" / "lineage.html"
    text = page(project, size, names)
    try:
        write_text(place, text)
    except OSError as error:
        raise SystemExit(_unwritten(error)) from error
    typer.echo(f"{len(names)} figures and tables: {project.name(place) if output is None else place}")


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    app.command(epilog=AUDIT_EXITS)(audit)
    app.command(epilog=VERIFY_EXITS)(verify)
    app.command(epilog=DIFF_EXITS)(diff)
    app.command(epilog=STALE_EXITS)(stale)
    app.command()(lineage)
    app.command()(release)
    app.command()(unpack)
    app.command()(crate)
