"""The verdict on every claim of the papers, computed by a rule that was fixed before the run.

``workflow/data/claims.yaml`` names, for each claim, a rule of :mod:`claim_success`, :mod:`claim_inside`,
:mod:`claim_joint`, :mod:`claim_dark_room` or :mod:`claim_dark_groups` and its arguments. Verdicts: *reproduced*, *not
reproduced*, *inconclusive*; *not testable at this scale* where the claim is about something that the scale does not
have, such as the other study; *not run in this release* where it is about a run that nothing makes.
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
from headroom.config.judging import JUDGED_BY
from headroom.config.models import Strict
from headroom.files import write_csv, write_text
from headroom.present import claim_dark_groups as groups
from headroom.present import claim_dark_room as dark
from headroom.present import claim_inside as inside
from headroom.present import claim_joint as joint
from headroom.present import claim_success as success
from headroom.present.claim_tables import NOT_RUN, Finding, Tables
from headroom.present.claims_page import page, restructured
from headroom.present.deviations import read_deviations
from headroom.present.deviations import table as deviation_table
from headroom.present.style import scale_of

NOT_TESTABLE = "not testable at this scale"
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
        *(dark.arm_collapses, dark.restored, dark.arm_equal, dark.stays_collapsed, dark.lies_between),
        *(dark.no_arm_harms, dark.arm_raises, dark.pinned, dark.noise_tells, dark.warned_in_time),
        *(groups.coefficient_cancels, groups.advantage_vanishes, groups.spread_costs),
    )
}

Scale = Literal[
    "tiny",
    "small",
    "paper",
    "paper-qwen3-vl-8b",
    "dark-room-tiny",
    "hidden-rule-tiny",
    "paper-hidden-rule-qwen3-4b",
    "paper-qwen3-1.7b",
    "paper-qwen3-4b",
    "paper-qwen3-8b",
]


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
    scales: tuple[Scale, ...]
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
    if claim.study != tables.study:
        where = f"judged at the scales {', '.join(claim.scales)}" if claim.scales else claim.elsewhere
        reason = f"It is about the other study, the {claim.study}: {where}."
        return row | {"verdict": NOT_TESTABLE, "detail": reason.replace("..", "."), "files": ""}
    tables.used.clear()
    found = RULES[claim.statistic](tables, **claim.arguments)
    if scale not in claim.scales:
        reason = SMOKE if scale.endswith("smoke") else claim.elsewhere
        return row | {"verdict": NOT_TESTABLE, "detail": reason, "files": ""}
    if found.verdict == NOT_RUN:
        return row | {"verdict": NOT_RUN, "detail": found.detail, "files": ""}
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


Table = Annotated[Path | None, typer.Option(help="A table of the measuring stages.")]


def main(
    claims: Annotated[Path, typer.Option(help="claims.yaml")],
    deviations: Annotated[Path, typer.Option(help="deviations.yaml")],
    settings: Annotated[Path, typer.Option(help="Folder of the resolved settings, results/SCALE/config.")],
    runs: Annotated[Path, typer.Option(help="The run table.")],
    output: Annotated[Path, typer.Option(help="figures/SCALE/data/claims.csv")],
    contrasts: Table = None,
    init_contrasts: Table = None,
    task_contrasts: Table = None,
    replication: Table = None,
    reading: Table = None,
    rank: Table = None,
    agreement: Table = None,
    drift: Table = None,
    correlations: Table = None,
    grafts: Table = None,
    failures: Table = None,
    arms: Table = None,
    validation: Table = None,
    signs: Table = None,
    failing_groups: Table = None,
) -> None:
    """Write claims.csv, deviations.csv beside it, and above them claims.html and captions/claims.rst.

    The study is the dark room where the settings have its job, else the gate; each needs its own tables.
    """
    from headroom.provenance import record

    given = {
        **{"contrasts": contrasts, "init_contrasts": init_contrasts, "task_contrasts": task_contrasts},
        **{"replication": replication, "reading": reading},
        **{"rank": rank, "agreement": agreement, "drift": drift, "correlations": correlations, "grafts": grafts},
        **{"failures": failures, "runs": runs},
        **{"arms": arms, "validation": validation, "signs": signs, "failing_groups": failing_groups},
    }
    study: Literal["gate", "dark room"] = "dark room" if (settings / "dark_room.json").is_file() else "gate"
    paths = {name: path for name in JUDGED_BY[study] if (path := given[name]) is not None}
    if lacking := [name for name in JUDGED_BY[study] if name not in paths]:
        said = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
        raise SystemExit(f"{settings}: settings of the {study}, whose claims also need {said}")
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
        numbers = (rule.bootstrap_draws, rule.confidence, rule.bootstrap_seed)
        tables = Tables(paths, rule.equivalence_margin, regimes, *numbers, study=study)
        scale = scale_of(output.absolute())
        found = verdicts(read_claims(claims), tables, scale)
        chosen = deviation_table(read_deviations(deviations), settings, study)
        write_csv(output, found)
        write_csv(table, chosen)
        write_text(html, page(found, chosen, scale))
        write_text(rst, restructured(found, scale, study))
        job.notes["verdicts"] = {name: int((found["verdict"] == name).sum()) for name in VERDICTS}
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
