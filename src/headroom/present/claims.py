"""The verdict on every claim of the papers, computed by a rule that was fixed before the run.

``workflow/data/claims.yaml`` names, for each claim, a rule of :mod:`claim_success`, :mod:`claim_inside` or
:mod:`claim_joint` and its arguments. Verdicts: *reproduced*, *not reproduced*, *inconclusive*; *not testable at this
scale* where the claim is about something that the scale does not have; *not run in this release*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import typer
import yaml
from pydantic import Field, TypeAdapter, ValidationError

from headroom.config.jobs import ContrastJob, FailuresJob, load_job
from headroom.config.models import Strict
from headroom.files import write_csv, write_text
from headroom.present import claim_inside as inside
from headroom.present import claim_joint as joint
from headroom.present import claim_success as success
from headroom.present.claim_tables import Finding, Tables
from headroom.present.claims_page import page, restructured
from headroom.present.deviations import read_deviations
from headroom.present.deviations import table as deviation_table
from headroom.present.style import scale_of

NOT_TESTABLE = "not testable at this scale"
NOT_RUN = "not run in this release"
VERDICTS = ("reproduced", "not reproduced", "inconclusive", NOT_TESTABLE, NOT_RUN)
SMOKE = "Smoke numbers are evidence of nothing."
UNTESTED = {"not_run": NOT_RUN, "not_testable": NOT_TESTABLE}
"""In the place of a rule: the claim has none here, and the argument ``reason`` says why."""
COLUMNS = [
    *("id", "study", "claim", "source", "mark", "verdict", "effect", "ci_low", "ci_high", "unit", "n", "detail"),
    *("rule", "scale", "files"),
]

RULES: dict[str, Callable[..., Finding]] = {
    rule.__name__: rule
    for rule in (
        *(success.no_gain, success.best_not_significant, success.harm, success.ordered_harm, success.collapsed),
        *(success.equal, success.null_over_seeds, success.gain, success.headroom_decides, success.prediction),
        *(inside.repairs, inside.repairs_partly, inside.not_repaired, inside.inert, inside.moved_most),
        *(inside.moved_less, inside.rank_tracks, inside.rank_apart, inside.rank_falls_late, inside.rank_rises),
        *(inside.agreement_order, inside.mostly_invalid, joint.movement_unrelated, joint.dissociation),
    )
}


class Claim(Strict):
    """One entry of ``claims.yaml``; see the comment at its head."""

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    study: Literal["gate", "dark room"]
    claim: str
    source: str
    mark: Literal["abstract", "full text", "reading note"]
    statistic: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    rule: str
    scales: tuple[Literal["tiny", "small", "paper"], ...]
    elsewhere: str = ""


def read_claims(path: Path) -> tuple[Claim, ...]:
    """The claims of the file.

    Raises:
        SystemExit: the file cannot be read, names a rule that does not exist, or an id twice.
    """
    try:
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise SystemExit(f"{path}: not a list of claims ({' '.join(str(error).split())[:300]})") from error
    ids = [claim.id for claim in claims]
    for claim in claims:
        if claim.statistic not in (*UNTESTED, *RULES):
            raise SystemExit(f"{path}: {claim.id} names the rule {claim.statistic}; there are {', '.join(RULES)}")
        if ids.count(claim.id) > 1:
            raise SystemExit(f"{path}: {claim.id} stands there twice")
    return claims


def judge(claim: Claim, tables: Tables, scale: str) -> dict[str, Any]:
    """One row of ``claims.csv``. The rule is computed at every scale, but speaks only where it may."""
    row: dict[str, Any] = claim.model_dump(include={"id", "study", "claim", "source", "mark", "rule"})
    row |= {"scale": scale, "effect": math.nan, "ci_low": math.nan, "ci_high": math.nan, "unit": "", "n": ""}
    if claim.statistic in UNTESTED:
        return row | {"verdict": UNTESTED[claim.statistic], "detail": claim.arguments.get("reason", ""), "files": ""}
    tables.used.clear()
    found = RULES[claim.statistic](tables, **claim.arguments)
    if scale not in claim.scales:
        reason = SMOKE if scale == "smoke" else claim.elsewhere
        return row | {"verdict": NOT_TESTABLE, "detail": reason, "files": ""}
    return row | {
        "verdict": found.verdict,
        "effect": found.effect,
        "ci_low": found.low,
        "ci_high": found.high,
        "unit": found.unit,
        "n": found.n,
        "detail": found.detail,
        "files": " ".join(str(tables.paths[name]) for name in sorted(tables.used)),
    }


def verdicts(claims: Sequence[Claim], tables: Tables, scale: str) -> pd.DataFrame:
    """The table of all claims, in the order of the file, with the columns :data:`COLUMNS`."""
    return pd.DataFrame([judge(claim, tables, scale) for claim in claims], columns=COLUMNS)


Table = Annotated[Path, typer.Option(help="A table of the measuring stages.")]


def main(
    claims: Annotated[Path, typer.Option(help="claims.yaml")],
    deviations: Annotated[Path, typer.Option(help="deviations.yaml")],
    settings: Annotated[Path, typer.Option(help="Folder of the resolved settings, results/SCALE/config.")],
    contrasts: Table,
    init_contrasts: Table,
    task_contrasts: Table,
    replication: Table,
    reading: Table,
    rank: Table,
    agreement: Table,
    drift: Table,
    correlations: Table,
    grafts: Table,
    failures: Table,
    runs: Annotated[Path, typer.Option(help="The run table.")],
    output: Annotated[Path, typer.Option(help="figures/SCALE/data/claims.csv")],
) -> None:
    """Write claims.csv, deviations.csv beside it, and above them claims.html and captions/claims.rst."""
    from headroom.provenance import record

    paths = {
        **{"contrasts": contrasts, "init_contrasts": init_contrasts, "task_contrasts": task_contrasts},
        **{"replication": replication, "reading": reading},
        **{"rank": rank, "agreement": agreement, "drift": drift, "correlations": correlations, "grafts": grafts},
        **{"failures": failures, "runs": runs},
    }
    folder = output.parent.parent
    html, rst, table = folder / "claims.html", folder / "captions" / "claims.rst", output.parent / "deviations.csv"
    settings_files = sorted(settings.rglob("*.json"))
    inputs: dict[str, Path | Sequence[Path]] = {
        **paths,
        "claims": claims,
        "deviations": deviations,
        "settings": settings_files,
    }
    with record.job(stage="present.claims", output=output, inputs=inputs, extra_outputs=[html, rst, table]) as job:
        rule = load_job(settings / "contrast.json", ContrastJob).statistics
        regimes = load_job(settings / "failures.json", FailuresJob).regimes
        tables = Tables(
            paths, rule.equivalence_margin, regimes, rule.bootstrap_draws, rule.confidence, rule.bootstrap_seed
        )
        scale = scale_of(output.absolute())
        found = verdicts(read_claims(claims), tables, scale)
        chosen = deviation_table(read_deviations(deviations), settings)
        write_csv(output, found)
        write_csv(table, chosen)
        write_text(html, page(found, chosen, scale))
        write_text(rst, restructured(found, scale))
        job.notes["verdicts"] = {name: int((found["verdict"] == name).sum()) for name in VERDICTS}
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
