"""Rules of the claims about the mechanism: grafts, movement, rank, agreement, failures.

A claim about a regime is decided over all runs of it that the study took apart: each run must show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from headroom.present.claim_tables import Finding, Tables, Verdict, decide, undecided
from headroom.present.tables import by_key, extreme, records, true

NEAR_ZERO = 0.2  # of a rank correlation: "within 0.2 of zero" in the rules
KEPT = 0.8  # a rank stays if it is between this and its inverse times the supervised policy's (0.8 to 1.25)


def _grafts(tables: Tables, regimes: Sequence[str]) -> pd.DataFrame:
    """The grafts of the regimes' runs that did credible damage."""
    table = tables["grafts"]
    if "kind" not in table or table.empty:
        return table.iloc[:0]
    own = table[table["regime"].isin(list(regimes))]
    ends = own[(own["kind"] == "endpoint") & (own["graft"] == "rl")]
    damaged = ends.loc[ends["sft_ci_high"] < 0, "policy"]
    return own[own["policy"].isin(damaged)]


def _single(table: pd.DataFrame, direction: str, groups: Sequence[str] | None = None) -> pd.DataFrame:
    if table.empty:  # no run was grafted: the table may have no columns to look in
        return table
    own = table[(table["direction"] == direction) & (table["kind"] == "group")]
    return own if groups is None else own[own["groups"].isin(list(groups))]


def _every(table: pd.DataFrame, holds: Callable[[pd.DataFrame], bool]) -> bool:
    """Whether something holds in every run of a non-empty table."""
    return bool(len(table)) and all(holds(own) for _, own in table.groupby("policy"))


def _listed(table: pd.DataFrame) -> str:
    return "; ".join(
        f"{row.policy} {row.groups} {100 * row.difference_to_rl:+.1f} [{100 * row.rl_ci_low:.1f}, "
        f"{100 * row.rl_ci_high:.1f}]"
        for row in records(table)
    )


def _n(table: pd.DataFrame) -> str:
    return f"{table['policy'].nunique()} runs, {int(table['pages'].iloc[0])} pages each"


def repairs(tables: Tables, *, regime: str, groups: Sequence[str]) -> Finding:
    """Putting a group back repairs, and more than random edits of its size do."""
    own = _single(_grafts(tables, [regime]), "necessity", groups)
    if own.empty:
        return undecided(f"no grafted {regime} run did credible damage")
    yes = _every(own, lambda run: bool((run["rl_ci_low"] > 0).all() and (run["control_ci_low"] > 0).all()))
    no = _every(own, lambda run: bool((run["rl_ci_high"] < tables.margin).all()))
    least = extreme(own, "difference_to_rl", largest=False)
    beaten = "; ".join(
        f"{row.policy} {row.groups} against controls {100 * row.difference_to_control:+.1f} "
        f"[{100 * row.control_ci_low:.1f}, {100 * row.control_ci_high:.1f}]"
        for row in records(own)
    )
    bounds = (100 * least["difference_to_rl"], 100 * least["rl_ci_low"], 100 * least["rl_ci_high"])
    return Finding(decide(yes=yes, no=no), *bounds, "points", _n(own), f"{_listed(own)}; {beaten}")


def repairs_partly(tables: Tables, *, regime: str, groups: Sequence[str]) -> Finding:
    """The share of the damage that each group repairs lies strictly between none and all."""
    own = _single(_grafts(tables, [regime]), "necessity", groups)
    own = own if own.empty else own.dropna(subset=["share_ci_low"])
    if own.empty:
        return undecided(f"no grafted {regime} run did credible damage")
    yes = _every(own, lambda run: bool((run["share_ci_low"] > 0).all() and (run["share_ci_high"] < 1).all()))
    no = _every(own, lambda run: bool(((run["share_ci_low"] >= 1) | (run["share_ci_high"] <= 0)).all()))
    least = extreme(own, "share", largest=False)
    text = "; ".join(
        f"{row.policy} {row.groups} {row.share:.2f} [{row.share_ci_low:.2f}, {row.share_ci_high:.2f}]"
        for row in records(own)
    )
    bounds = (least["share"], least["share_ci_low"], least["share_ci_high"])
    return Finding(decide(yes=yes, no=no), *bounds, "share", _n(own), text)


def not_repaired(tables: Tables, *, regime: str) -> Finding:
    """No single group that is put back raises success by the margin."""
    own = _single(_grafts(tables, [regime]), "necessity")
    if own.empty:
        return undecided(f"no grafted {regime} run did credible damage")
    yes = _every(own, lambda run: bool((run["rl_ci_high"] < tables.margin).all()))
    no = _every(own, lambda run: bool((run["rl_ci_low"] > 0).any()))
    most = extreme(own, "difference_to_rl")
    bounds = (100 * most["difference_to_rl"], 100 * most["rl_ci_low"], 100 * most["rl_ci_high"])
    best = own.loc[own.groupby("policy")["difference_to_rl"].idxmax()]
    return Finding(decide(yes=yes, no=no), *bounds, "points", _n(own), f"best group a run: {_listed(best)}")


def inert(tables: Tables, *, group: str, regimes: Sequence[str]) -> Finding:
    """Moving a group, either way, changes success by less than the margin."""
    table = _grafts(tables, regimes)
    if table.empty:
        return undecided("no grafted run of these regimes did credible damage")
    parts = []
    for direction, end in (("sufficiency", "sft"), ("necessity", "rl")):
        own = _single(table, direction, [group])
        named = {f"difference_to_{end}": "change", f"{end}_ci_low": "low", f"{end}_ci_high": "high"}
        beside = ["policy", "pages", "direction", "controls", "difference_to_control"]
        parts.append(own[[*beside, *named]].rename(columns=named))
    own = pd.concat(parts, ignore_index=True)
    if own.empty:
        return undecided(f"no run has a group {group}")
    within = (own["low"] > -tables.margin) & (own["high"] < tables.margin)
    away = own.assign(away=((own["low"] > 0) | (own["high"] < 0)) & ~within)
    no = _every(away, lambda run: bool(run["away"].any()))
    most = extreme(own.assign(size=own["change"].abs()), "size")
    text = "; ".join(
        f"{row.policy} {row.direction} {100 * row.change:+.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}]"
        for row in records(own)
    )
    beaten = own[own["controls"] > 0]
    text += "; against random edits of its size: " if len(beaten) else "; no random edit of its size was played"
    text += ", ".join(f"{row.policy} {row.direction} {100 * row.difference_to_control:+.1f}" for row in records(beaten))
    bounds = (100 * most["change"], 100 * most["low"], 100 * most["high"])
    return Finding(decide(yes=bool(within.all()), no=no), *bounds, "points", _n(own), text)


def _moved(tables: Tables, scope: str, regimes: Sequence[str]) -> pd.DataFrame:
    table = tables["drift"]
    runs = {run: regime for regime in regimes for run in tables.runs(regime)}
    own = table[(table["scope"] == scope) & table["policy"].isin(list(runs))]
    return own.assign(regime=own["policy"].map(runs))


def moved_most(tables: Tables, *, group: str, regimes: Sequence[str]) -> Finding:
    """A group has the largest share of the squared movement."""
    own = _moved(tables, "group", regimes).dropna(subset=["share_of_squared_movement"])
    if own.empty:
        return undecided("no movement of these regimes was measured")
    shares = own.pivot(index="policy", columns="group", values="share_of_squared_movement")
    first = shares.idxmax(axis="columns") == group
    mine = shares[group] if group in shares else pd.Series(math.nan, index=shares.index)
    text = "; ".join(
        f"{policy}: largest {shares.loc[policy].idxmax()} {shares.loc[policy].max():.2f}" for policy in shares.index
    )
    verdict = decide(yes=bool(first.all()), no=not first.any())
    return Finding(verdict, float(mine.min()), math.nan, math.nan, "share", f"{len(shares)} runs", text)


def moved_less(tables: Tables, *, less: str, more: str) -> Finding:
    """Every run of one regime moved less than every run of another."""
    own = _moved(tables, "model", [less, more]).set_index("policy")
    few, many = (own.loc[own["regime"] == name, "relative_movement"] for name in (less, more))
    if few.empty or many.empty:
        return undecided(f"movement of a {less} or a {more} run is missing")
    yes, no = few.max() < many.min(), few.min() > many.max()
    text = f"{less} {few.min():.3f} to {few.max():.3f}; {more} {many.min():.3f} to {many.max():.3f}"
    ratio = float(few.mean() / many.mean())
    n = f"{len(few)} and {len(many)} runs"
    return Finding(decide(yes=bool(yes), no=bool(no)), ratio, math.nan, math.nan, "ratio", n, text)


def _ranks(tables: Tables, policies: Sequence[str], layer: str) -> dict[str, dict[str, Any]]:
    """Primary token choice and centring at the last or the first block: policy -> its row."""
    table = tables["rank"]
    primary = table[table["primary"].map(true)]
    own = primary
    if layer == "first" and len(primary):
        chosen = primary.iloc[0]
        own = table[
            (table["site"] == "block")
            & (table["layer"] == 0)
            & (table["tokens"] == chosen["tokens"])
            & (table["centred"] == chosen["centred"])
        ]
    return by_key(own[own["policy"].isin(list(policies))], "policy")


def rank_tracks(tables: Tables, *, subset: str) -> Finding:
    """Late-layer rank goes with success over policies."""
    return _rank_correlation(tables, subset, apart=False)


def rank_apart(tables: Tables, *, subset: str) -> Finding:
    """Late-layer rank does not go with success over policies."""
    return _rank_correlation(tables, subset, apart=True)


def _rank_correlation(tables: Tables, subset: str, *, apart: bool) -> Finding:
    table = tables["correlations"]
    own = table[
        (table["quantity"] == "effective_rank") & (table["primary"].map(true)) & (table["subset"] == subset)
    ].dropna(subset=["spearman"])
    if own.empty:
        return undecided("too few policies, or one of the two does not vary")
    row = own.iloc[0]
    low, high = float(row["spearman_ci_low"]), float(row["spearman_ci_high"])
    near = low > -NEAR_ZERO and high < NEAR_ZERO
    verdict = decide(yes=near, no=low > 0) if apart else decide(yes=low > 0, no=high <= 0 or near)
    every = table[(table["quantity"] == "effective_rank") & (table["primary"].map(true))]
    text = "; ".join(
        f"{one.subset}: rho {one.spearman:+.2f} [{one.spearman_ci_low:.2f}, {one.spearman_ci_high:.2f}]"
        for one in records(every.dropna(subset=["spearman"]))
    )
    return Finding(verdict, float(row["spearman"]), low, high, "rho", f"{int(row['checkpoints'])} policies", text)


def rank_falls_late(tables: Tables, *, regime: str) -> Finding:
    """The last block's rank lies below the supervised policy's, the first block's stays within a declared ratio."""
    late, early = (_ranks(tables, ["sft", *tables.runs(regime)], layer) for layer in ("last", "first"))
    runs = [run for run in tables.runs(regime) if run in late and run in early]
    if not runs or "sft" not in late or "sft" not in early:
        return undecided(f"no rank of a {regime} run")
    last, first = late["sft"], early["sft"]
    falls = [late[run]["ci_high"] < last["ci_low"] for run in runs]
    floor, roof = KEPT * first["effective_rank"], first["effective_rank"] / KEPT
    kept = [floor <= early[run]["ci_low"] and early[run]["ci_high"] <= roof for run in runs]
    gone = [early[run]["ci_high"] < floor or early[run]["ci_low"] > roof for run in runs]
    no = all(late[run]["ci_low"] >= last["effective_rank"] for run in runs) or all(gone)
    blocks = {"last block": late, "first block": early}
    return _rank_finding(decide(yes=all(falls) and all(kept), no=no), runs, blocks)


def rank_rises(tables: Tables, *, regime: str) -> Finding:
    """The last block's rank lies above the supervised policy's."""
    late = _ranks(tables, ["sft", *tables.runs(regime)], "last")
    runs = [run for run in tables.runs(regime) if run in late]
    if not runs or "sft" not in late:
        return undecided(f"no rank of a {regime} run")
    yes = all(late[run]["ci_low"] > late["sft"]["ci_high"] for run in runs)
    no = all(late[run]["ci_high"] < late["sft"]["effective_rank"] for run in runs)
    return _rank_finding(decide(yes=yes, no=no), runs, {"last block": late})


def _rank_finding(
    verdict: Verdict, runs: Sequence[str], blocks: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> Finding:
    """The headline is the first run's last block; the detail lists all."""
    shown = [
        f"{name} {policy} {rows[policy]['effective_rank']:.1f} [{rows[policy]['ci_low']:.1f}, "
        f"{rows[policy]['ci_high']:.1f}]"
        for name, rows in blocks.items()
        for policy in ("sft", *runs)
    ]
    one = blocks["last block"][runs[0]]
    n = f"{len(runs)} runs, {int(one['episodes'])} probe episodes"
    bounds = (one["effective_rank"], one["ci_low"], one["ci_high"])
    return Finding(verdict, *bounds, "effective rank", n, "; ".join(shown))


def agreement_order(tables: Tables, *, lower: str, higher: str) -> Finding:
    """Argmax agreement with the supervised policy is lower in one regime than in another."""
    table = tables["agreement"]
    table = table[(table["measure"] == "argmax_agreement") & (table["tokens"] == "action_tokens")]
    rows = by_key(table, "policy")
    few, many = ([run for run in tables.runs(name) if run in rows] for name in (lower, higher))
    if not few or not many:
        return undecided(f"no agreement of a {lower} or a {higher} run")
    yes = max(rows[run]["ci_high"] for run in few) < min(rows[run]["ci_low"] for run in many)
    no = min(rows[run]["ci_low"] for run in few) > max(rows[run]["ci_high"] for run in many)
    highest = max((rows[run] for run in few), key=lambda row: float(row["value"]))
    text = "; ".join(
        f"{run} {rows[run]['value']:.2f} [{rows[run]['ci_low']:.2f}, {rows[run]['ci_high']:.2f}]"
        for run in (*few, *many)
    )
    bounds = (highest["value"], highest["ci_low"], highest["ci_high"])
    n = f"{len(few)} and {len(many)} runs, {int(highest['rows'])} tokens"
    return Finding(decide(yes=bool(yes), no=bool(no)), *bounds, "share", n, text)


def mostly_invalid(tables: Tables, *, regime: str, above: str = "") -> Finding:
    """More than half of a regime's failures are invalid (and more than another regime's)."""
    own = _invalid(tables, regime)
    if own is None or math.isnan(own["share_ci_low"]):
        return undecided(f"no failures of a {regime} run, or too few for an interval")
    other = _invalid(tables, above) if above else None
    if above and other is None:
        return undecided(f"no failures of a {above} run")
    yes = own["share_ci_low"] > 0.5 and (other is None or own["share_ci_low"] > other["share_ci_high"])
    no = own["share_ci_high"] < 0.5 or (other is not None and own["share_ci_high"] < other["share_ci_low"])
    text = f"{regime} {int(own['count'])} of {int(own['failures'])} failures"
    if other is not None:
        text += (
            f"; {above} {other['share_of_failures']:.2f} [{other['share_ci_low']:.2f}, {other['share_ci_high']:.2f}]"
        )
    bounds = (own["share_of_failures"], own["share_ci_low"], own["share_ci_high"])
    n = f"{int(own['episodes'])} episodes"
    return Finding(decide(yes=bool(yes), no=bool(no)), *bounds, "share", n, text)


def _invalid(tables: Tables, regime: str) -> pd.Series | None:
    table = tables["failures"]
    if table.empty:
        return None
    own = table[
        (table["regime"] == regime)
        & (table["task_set"] == "mastered")
        & (table["kind"] == "invalid")
        & table["invalid_kind"].isna()
        & (table["failures"] > 0)
    ]
    joint = own[own["policy"] == "all"]
    return None if own.empty else (joint if len(joint) else own).iloc[0]
