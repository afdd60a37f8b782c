"""What the episodes of grafts say: success against both endpoints, the share of the damage, controls, interactions.

With S, R and G the success of the supervised policy, of the trained one and of a graft, on the same pages:

    share of the damage = (S - G) / (S - R)  for sufficiency: how much of it the group brings along
                          (G - R) / (S - R)  for necessity:   how much of it the group repairs

NaN when the run did no damage. Its interval resamples tasks, numerator and denominator together; it is NaN when more
than one resample in twenty has no damage to divide by. ``difference_to_control`` is a graft minus the mean of its
random controls, page by page: a group matters if that excludes zero, whatever its difference to the endpoints. A
control of a group that holds a share s of the parameters coincides with the group itself on about that share, so it is
a strict null for a small group and hardly one for a union of nearly everything: ``parameter_share`` says which.
Beside every difference stand its equivalence test (``*_tost_p``, to the study's margin) and its minimum detectable
effect, since on few pages "no difference" is mostly a statement about the pages.
Interaction of a pair a, b: (G_ab - B) - (G_a - B) - (G_b - B) with B the base of the direction; the pair's row of the
graft table has it, too.

Broken tasks are those whose success fell by at least a declared amount, by the very pages that are reported; the
endpoints' success on them is therefore apart by selection, a graft's is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from headroom.config.models import Graft, Statistics
from headroom.measure import episodes
from headroom.measure.graft_plan import DIRECTIONS, Planned
from headroom.measure.groups import COMPONENTS
from headroom.measure.hidden import episode_weights
from headroom.measure.intervals import task_interval
from headroom.measure.statistics import clusters, equivalence, mcnemar_exact, minimum_detectable_effect

Floats = npt.NDArray[np.float64]
TESTS = ("ci_low", "ci_high", "tost_p", "minimum_detectable_effect")
INTERACTION_COLUMNS = ["direction", "groups", "interaction", *TESTS, "pages"]


def success_table(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Pages (task, seed) x grafts -> success 0.0 or 1.0, and how many pages the infrastructure cost any of them.

    A page counts for all grafts or for none, so that every difference is over the same pages.

    Raises:
        ValueError: the grafts were not played on the same pages, or no page is left.
    """
    table = frame.pivot(index=["task", "seed"], columns="policy", values="success").sort_index()
    if table.isna().any(axis=None):
        raise ValueError("the grafts were not played on the same pages")
    failed = frame.loc[~frame.index.isin(episodes.scored(frame).index), ["task", "seed"]]
    lost = table.index.isin(list(failed.itertuples(index=False, name=None)))
    if lost.all():
        raise ValueError("the infrastructure failed on every page")
    return table[~lost].astype(float), int(lost.sum())


def graft_table(frame: pd.DataFrame, planned: Sequence[Planned], settings: Graft, rule: Statistics) -> pd.DataFrame:
    """One row a graft; see the module's docstring."""
    success, excluded = success_table(frame)
    tasks = success.index.get_level_values("task").to_numpy()
    by_task = success.groupby(level="task").mean()
    broken = by_task.index[by_task["sft"] - by_task["rl"] >= settings.broken_drop - 1e-12]
    on_broken = np.isin(tasks, broken)
    sft, rl = success["sft"].to_numpy(), success["rl"].to_numpy()
    # The components of one direction are a partition, so they add up to the model.
    components = [
        g for g in planned if g.kind == "group" and g.direction == DIRECTIONS[0] and g.groups[0] in COMPONENTS
    ]
    total = max(1, sum(graft.parameters for graft in components))
    rows = []
    for graft in planned:
        own = success[graft.name].to_numpy()
        row: dict[str, object] = {
            "graft": graft.name,
            "direction": graft.direction if graft.kind != "endpoint" else "",
            "groups": "+".join(graft.groups),
            "kind": graft.kind,
            "draw": graft.draw,
            "parameters": graft.parameters,
            "parameter_share": graft.parameters / total,
            "delta_norm": graft.delta_norm,
            "scale": graft.scale,
            "pages": len(own),
            "tasks": len(by_task),
            "excluded": excluded,
            "success": own.mean(),
        }
        for name, reference in (("sft", sft), ("rl", rl)):
            row |= {
                f"difference_to_{name}": (own - reference).mean(),
                **_tested(f"{name}_", own - reference, tasks, rule),
                f"{name}_mcnemar_p": mcnemar_exact(int((own > reference).sum()), int((own < reference).sum())),
            }
        share, low, high = _share(own, sft, rl, tasks, graft.direction, rule)
        row |= {"share": share, "share_ci_low": low, "share_ci_high": high}
        row |= _against_controls(own, graft, planned, success, tasks, rule)
        row |= {"broken_tasks": len(broken), "broken_success": own[on_broken].mean() if len(broken) else np.nan}
        rows.append(row)
    pairs = interaction_table(frame, planned, settings, rule).drop(columns="pages")
    pairs.columns = pairs.columns.map(lambda name: f"interaction_{name}" if name in TESTS else name)
    return pd.DataFrame(rows).merge(pairs.assign(kind="pair"), on=["direction", "groups", "kind"], how="left")


def interaction_table(
    frame: pd.DataFrame, planned: Sequence[Planned], settings: Graft, rule: Statistics
) -> pd.DataFrame:
    """One row a direction and declared pair: the interaction of its two groups, in units of success."""
    success, _ = success_table(frame)
    tasks = success.index.get_level_values("task").to_numpy()
    names = {graft.name for graft in planned}
    rows = []
    for direction in DIRECTIONS:
        base = success["rl" if direction == "necessity" else "sft"].to_numpy()
        for one, other in settings.pairs:
            parts = [f"{direction}/{union}" for union in (f"{one}+{other}", one, other)]
            if not names.issuperset(parts):
                continue
            both, first, second = (success[part].to_numpy() for part in parts)
            values = both - first - second + base
            rows.append(
                {
                    "direction": direction,
                    "groups": f"{one}+{other}",
                    "interaction": values.mean(),
                    **_tested("", values, tasks, rule, support=(-2.0, 2.0)),
                    "pages": len(values),
                }
            )
    return pd.DataFrame(rows, columns=INTERACTION_COLUMNS)


def _tested(
    prefix: str,
    values: Floats,
    tasks: npt.NDArray[np.object_],
    rule: Statistics,
    support: tuple[float, float] = (-1.0, 1.0),
) -> dict[str, float]:
    """Interval, equivalence and detectable effect of a mean over pages; binary outcomes get the sign test's floor."""
    low, high = _interval(values, tasks, rule, support)
    grouped = clusters(list(tasks), values)
    binary = support == (-1.0, 1.0) and bool(np.isin(values, (-1.0, 0.0, 1.0)).all())
    return {
        f"{prefix}ci_low": low,
        f"{prefix}ci_high": high,
        f"{prefix}tost_p": equivalence(grouped, rule.equivalence_margin),
        f"{prefix}minimum_detectable_effect": minimum_detectable_effect(
            grouped, rule.confidence, rule.power, binary=binary
        ),
    }


def _interval(
    values: Floats, tasks: npt.NDArray[np.object_], rule: Statistics, support: tuple[float, float] = (-1.0, 1.0)
) -> tuple[float, float]:
    found = task_interval(
        clusters(list(tasks), values),
        confidence=rule.confidence,
        draws=rule.bootstrap_draws,
        seed=rule.bootstrap_seed,
        support=support,
    )
    return found.low, found.high


def _share(
    own: Floats, sft: Floats, rl: Floats, tasks: npt.NDArray[np.object_], direction: str, rule: Statistics
) -> tuple[float, float, float]:
    part = own - rl if direction == "necessity" else sft - own
    names, index = np.unique(tasks.astype(str), return_inverse=True)
    parts, damages = (np.bincount(index, values, len(names)) for values in (part, sft - rl))
    if damages.sum() <= 0.0:
        return np.nan, np.nan, np.nan
    weights = episode_weights(len(names), rule.bootstrap_draws, rule.bootstrap_seed)
    numerator, denominator = weights @ parts, weights @ damages
    fine = denominator > 1e-9
    estimate = float(parts.sum() / damages.sum())
    if fine.mean() < 0.95:
        return estimate, np.nan, np.nan
    tail = (1.0 - rule.confidence) / 2.0
    low, high = np.quantile(numerator[fine] / denominator[fine], [tail, 1.0 - tail])
    return estimate, float(low), float(high)


def _against_controls(
    own: Floats,
    graft: Planned,
    planned: Sequence[Planned],
    success: pd.DataFrame,
    tasks: npt.NDArray[np.object_],
    rule: Statistics,
) -> dict[str, object]:
    controls = [
        other.name
        for other in planned
        if other.kind == "control" and (other.direction, other.groups) == (graft.direction, graft.groups)
    ]
    if graft.kind == "control" or not controls:
        none: dict[str, object] = dict.fromkeys((f"control_{test}" for test in TESTS), np.nan)
        return {"difference_to_control": np.nan} | none | {"controls": 0}
    values = own - success[controls].to_numpy().mean(axis=1)
    return {
        "difference_to_control": values.mean(),
        **_tested("control_", values, tasks, rule),
        "controls": len(controls),
    }
