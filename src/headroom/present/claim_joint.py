"""Rules of the claims that join several tables: what movement says about harm, and the two regimes together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headroom.config.models import Statistics
from headroom.measure.mechanism import correlation
from headroom.present.claim_inside import NEAR_ZERO, inert, not_repaired, repairs
from headroom.present.claim_tables import Finding, Tables, decide, undecided
from headroom.present.movement_against_harm import data as movement_data


def movement_unrelated(tables: Tables) -> Finding:
    """Over runs, how far the weights moved has no relation to the success that was lost.

    Movement and harm are both against the policy that a run started from.
    """
    table = movement_data(*(tables.path(name) for name in ("drift", "contrasts", "init_contrasts", "correlations")))
    table = table[table["row"] == "policy"].dropna(subset=["relative_movement", "difference"])
    rule = Statistics(confidence=tables.confidence, bootstrap_draws=tables.draws, bootstrap_seed=tables.seed)
    moved, harm = table["relative_movement"].to_numpy(dtype=np.float64), -table["difference"].to_numpy(dtype=np.float64)
    found = correlation(moved, harm, rule)
    if pd.isna(found["spearman"]):
        return undecided(f"{len(table)} runs have both a movement and a contrast, or none of them varies")
    rho, low, high = (found[f"spearman{end}"] for end in ("", "_ci_low", "_ci_high"))
    near = low > -NEAR_ZERO and high < NEAR_ZERO
    no = not near and (low > 0 or high < 0)
    text = f"Pearson's r {found['pearson']:+.2f} [{found['pearson_ci_low']:.2f}, {found['pearson_ci_high']:.2f}]"
    return Finding(decide(yes=near, no=no), rho, low, high, "rho", f"{len(table)} runs", text)


def dissociation(tables: Tables, *, localised: str, diffuse: str, groups: Sequence[str], inert_group: str) -> Finding:
    """All of: the groups repair one regime, none alone repairs the other, and the third group is inert in both."""
    parts = {
        f"{localised} localised": repairs(tables, regime=localised, groups=groups),
        f"{diffuse} diffuse": not_repaired(tables, regime=diffuse),
        f"{inert_group} inert": inert(tables, group=inert_group, regimes=[localised, diffuse]),
    }
    found = [part.verdict for part in parts.values()]
    yes, no = all(verdict == "reproduced" for verdict in found), "not reproduced" in found
    text = "; ".join(f"{name}: {part.verdict}" for name, part in parts.items())
    return Finding(decide(yes=yes, no=no), n=f"{len(parts)} parts", detail=text)
