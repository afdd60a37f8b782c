"""Rules of the claims about success: nulls, harm, headroom. The words of each rule are in ``claims.yaml``.

A null is never read off an interval that merely holds zero: its upper end must lie below the equivalence margin, and
the minimum detectable effect stands beside the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from headroom.config.models import Statistics
from headroom.measure.mechanism import COLLAPSED, correlation
from headroom.present.claim_tables import Finding, Tables, decide, points, undecided
from headroom.present.headroom_control import sets_and_tasks
from headroom.present.tables import by_key, extreme, true

SIGNIFICANT = 0.05


def no_gain(
    tables: Tables,
    *,
    family: str = "",
    runs: Sequence[str] = (),
    at_least: int = 1,
    pages_a_task: int = 0,
    own_start: bool = False,
) -> Finding:
    """No run of a family (or list) lies above zero, and each excludes a gain of the margin.

    ``own_start`` judges runs from another initialisation against that one, not against the supervised policy.
    """
    table = tables.greedy(against="init_contrasts" if own_start else "contrasts")
    table = table[table["policy"].isin(list(runs))] if runs else table[table["family"] == family]
    if len(table) < at_least:
        return undecided(f"{len(table)} of {at_least} runs were made")
    fewest = int((table["pairs"] / table["tasks"]).min())
    if fewest < pages_a_task:
        return undecided(f"{fewest} of {pages_a_task} pages a task were played")
    best = extreme(table, "difference")
    gains = (table["ci_low"] > 0) & (table["holm_p"] <= SIGNIFICANT)
    null = (table["ci_low"] <= 0).all() and (table["ci_high"] < tables.margin).all()
    effect, low, high = points(best)
    equivalent = int(table["equivalent"].map(true).sum())
    worst = 100 * float(table["minimum_detectable_effect"].max())
    widest = 100 * float(table["ci_high"].max())
    return Finding(
        decide(yes=bool(null), no=bool(gains.any())),
        *(effect, low, high, "points"),
        f"{len(table)} runs, {int(best['pairs'])} pages each",
        f"largest gain: {best['policy']}; highest upper end {widest:+.1f}; {equivalent} of {len(table)} equivalent to "
        f"none within {100 * tables.margin:g}; detectable effect at most {worst:.1f}",
    )


def best_not_significant(tables: Tables, *, family: str) -> Finding:
    """The largest gain of a family is not significant, and a gain of the margin is excluded."""
    table = tables.greedy()
    table = table[table["family"] == family]
    if table.empty:
        return undecided("no run was made")
    best = extreme(table, "difference")
    no = best["difference"] > 0 and best["holm_p"] <= SIGNIFICANT
    yes = not no and best["mcnemar_p"] > SIGNIFICANT and best["ci_high"] < tables.margin
    return Finding(
        decide(yes=bool(yes), no=bool(no)),
        *(*points(best), "points"),
        f"{int(best['pairs'])} pages, discordant {int(best['gained'])}:{int(best['lost'])}",
        f"{best['policy']}, p = {best['mcnemar_p']:.2g}, Holm p = {best['holm_p']:.2g}, detectable effect "
        f"{100 * best['minimum_detectable_effect']:.1f}",
    )


def _said(row: dict[str, object]) -> str:
    effect, low, high = points(row)
    seeds = int(float(str(row["seeds"])))
    return f"{row['learning_rate_level']} {effect:+.1f} [{low:.1f}, {high:.1f}], {seeds} seed{'s' * (seeds > 1)}"


def harm(tables: Tables, *, levels: Sequence[str]) -> Finding:
    """The mean over seeds lies below zero at every level."""
    cells = [cell for level in levels if (cell := tables.cell(level, "mastered"))]
    if len(cells) < len(levels):
        return undecided(f"a run at the levels {', '.join(levels)} is missing")
    least = max(cells, key=lambda cell: float(cell["difference"]))
    yes = all(cell["ci_high"] < 0 for cell in cells)
    no = any(cell["ci_low"] >= 0 or true(cell["equivalent"]) for cell in cells)
    text = "; ".join(_said(cell) for cell in cells)
    return Finding(decide(yes=yes, no=no), *points(least), "points", f"{int(least['pairs'])} pairs", text)


def ordered_harm(tables: Tables, *, levels: Sequence[str]) -> Finding:
    """Each level is credibly worse than the one before."""
    cells = [cell for level in levels if (cell := tables.cell(level, "mastered"))]
    if len(cells) < len(levels):
        return undecided(f"a run at the levels {', '.join(levels)} is missing")
    pairs = list(itertools.pairwise(cells))
    yes = all(after["ci_high"] < before["ci_low"] for before, after in pairs)
    no = any(after["ci_low"] > before["ci_high"] for before, after in pairs)
    text = "; ".join(_said(cell) for cell in cells)
    return Finding(decide(yes=yes, no=no), *points(cells[-1]), "points", f"{int(cells[-1]['pairs'])} pairs", text)


def collapsed(tables: Tables, *, level: str) -> Finding:
    """Every run at a level ends under the success that counts as a collapse."""
    table = tables.greedy()
    table = table[(table["learning_rate_level"] == level) & (table["tasks_trained"] == "mastered")]
    if table.empty:
        return undecided(f"no run at the level {level} was made")
    success = table["policy_success"]
    worst = extreme(table, "policy_success")
    return Finding(
        decide(yes=bool((success < COLLAPSED).all()), no=not (success < COLLAPSED).any()),
        *points(worst),
        "points",
        f"{len(table)} runs, {int(worst['pairs'])} pages each",
        f"success {100 * success.min():.1f}% to {100 * success.max():.1f}%, "
        f"{int((success < COLLAPSED).sum())} of {len(table)} under {100 * COLLAPSED:g}%",
    )


def equal(tables: Tables, *, level: str) -> Finding:
    """The mean over seeds is equivalent to no difference."""
    cell = tables.cell(level, "mastered")
    if cell is None:
        return undecided(f"no run at the level {level} was made")
    same = true(cell["equivalent"])
    away = cell["ci_low"] > 0 or cell["ci_high"] < 0
    return Finding(
        decide(yes=same, no=not same and away),
        *points(cell),
        "points",
        f"{int(cell['seeds'])} seeds, {int(cell['pairs'])} pairs",
        f"TOST p = {cell['tost_p']:.2g} at {100 * tables.margin:g} points, detectable effect "
        f"{100 * cell['minimum_detectable_effect']:.1f}",
    )


def null_over_seeds(tables: Tables, *, levels: Sequence[str], seeds: int) -> Finding:
    """With enough training seeds, no level improves, and a gain of the margin is excluded."""
    cells = [cell for level in levels if (cell := tables.cell(level, "mastered"))]
    fewest = min((int(cell["seeds"]) for cell in cells), default=0)
    if len(cells) < len(levels) or fewest < seeds:
        return undecided(f"{fewest} of {seeds} training seeds were made")
    best = max(cells, key=lambda cell: float(cell["difference"]))
    yes = all(cell["ci_low"] <= 0 and cell["ci_high"] < tables.margin for cell in cells)
    text = "; ".join(_said(cell) for cell in cells)
    text += f"; detectable effect {max(100 * float(cell['minimum_detectable_effect']) for cell in cells):.1f}"
    no = any(cell["ci_low"] > 0 for cell in cells)
    return Finding(decide(yes=yes, no=no), *points(best), "points", f"{fewest} seeds, {int(best['pairs'])} pairs", text)


def gain(tables: Tables, *, level: str, tasks: str) -> Finding:
    """The recipe raises success on a task set, with an interval above zero."""
    cell = tables.cell(level, tasks)
    if cell is None:
        return undecided(f"no run was trained on the {tasks} tasks")
    return Finding(
        decide(yes=cell["ci_low"] > 0, no=cell["ci_high"] < tables.margin),
        *points(cell),
        "points",
        f"{int(cell['seeds'])} seeds, {int(cell['pairs'])} pairs",
        f"{100 * float(cell['reference_success']):.1f}% to {100 * float(cell['policy_success']):.1f}%, detectable "
        f"effect {100 * float(cell['minimum_detectable_effect']):.1f}",
    )


def headroom_decides(tables: Tables, *, level: str) -> Finding:
    """Reading and gain lie above zero on the headroom set; both exclude the margin on the mastered set."""
    reading = tables["reading"]
    read = by_key(reading[reading["level"] == "set"], "name")
    cells = {name: tables.cell(level, name) for name in ("headroom", "mastered")}
    if any(cell is None for cell in cells.values()) or not {"headroom", "mastered"} <= set(read):
        return undecided("a task set lacks its run or its reading")
    yes, no, said = True, False, []
    for name, cell in cells.items():
        assert cell is not None
        low, high = float(read[name]["headroom_low"]), float(read[name]["headroom_high"])
        gains, small = cell["ci_low"] > 0, cell["ci_high"] < tables.margin
        if name == "headroom":
            yes &= low > 0 and gains
        else:  # a wide interval around zero shows no absence
            yes &= low <= 0 and high < tables.margin and not gains and small
        no |= (gains and high < tables.margin) or (low > 0 and small)
        effect, ci_low, ci_high = points(cell)
        said.append(
            f"{name}: reading {100 * float(read[name]['headroom']):+.1f} [{100 * low:.1f}, {100 * high:.1f}], gain "
            f"{effect:+.1f} [{ci_low:.1f}, {ci_high:.1f}]"
        )
    cell = cells["headroom"]
    assert cell is not None
    n = f"{int(cell['seeds'])} seeds, {int(read['headroom']['pages'])} pages read a set"
    return Finding(decide(yes=yes, no=no), *points(cell), "points", n, "; ".join(said))


def prediction(tables: Tables) -> Finding:
    """Over the tasks of a set, the reading goes with the realised gain.

    Ranks are taken within each set, so that the difference between the sets, which is a claim of its own, cannot make
    the correlation.
    """
    names = ("contrasts", "task_contrasts", "reading", "runs")
    table = sets_and_tasks(*(tables.path(name) for name in names))
    table = table[table["row"] == "task"].dropna(subset=["predicted", "difference"])
    rule = Statistics(confidence=tables.confidence, bootstrap_draws=tables.draws, bootstrap_seed=tables.seed)
    values = table[["predicted", "difference"]].astype("float64")
    within = values.groupby(table["task_set"]).rank(pct=True)
    within -= within.groupby(table["task_set"]).transform("mean")
    found, pooled = (
        correlation(own["predicted"].to_numpy(np.float64), own["difference"].to_numpy(np.float64), rule)
        for own in (within, values)
    )
    if pd.isna(found["pearson"]):
        return undecided(f"{len(table)} tasks have both a reading and a run, or none of them varies")
    rho, low, high = (found[f"pearson{end}"] for end in ("", "_ci_low", "_ci_high"))
    text = (
        f"both sets pooled, which the difference between the sets can make alone: rho {pooled['spearman']:+.2f} "
        f"[{pooled['spearman_ci_low']:.2f}, {pooled['spearman_ci_high']:.2f}]"
    )
    return Finding(decide(yes=low > 0, no=high <= 0), rho, low, high, "rho", f"{len(table)} tasks", text)
