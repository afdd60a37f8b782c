"""Bring what was measured inside every policy together, and ask what of it goes with success.

The correlations are over checkpoints: x is a rank, an agreement or a movement of one checkpoint, y its greedy
success on the mastered tasks. Pearson's r for the size of the relation, Spearman's rho for its order, each with a
percentile bootstrap interval over checkpoints. Checkpoints share an initialisation and differ mostly in learning
rate, so this says what moves together along that path, not what causes what; the grafts do. ``subset`` "alive" leaves
out collapsed checkpoints (success under ``COLLAPSED``), which otherwise decide any correlation by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer
from scipy import stats

from headroom.config.jobs import MechanismJob, load_job
from headroom.config.models import Statistics
from headroom.files import write_csv
from headroom.measure import episodes
from headroom.measure.task_sets import EVERY

COLLAPSED = 0.05
FEWEST = 4  # checkpoints
Floats = npt.NDArray[np.float64]


def greedy_success(frame: pd.DataFrame, task_set: str = "mastered") -> float:
    """Greedy success of one policy on a task set; NaN if it was not played there."""
    counted = episodes.scored(frame)
    own = counted[(counted["mode"] == "greedy") & (counted["task_set"] == task_set)]
    return float(own["success"].mean()) if len(own) else float("nan")


def quantities(rank: pd.DataFrame, agreement: pd.DataFrame, drift: pd.DataFrame) -> pd.DataFrame:
    """Everything that was measured in a common form: policy, quantity, site, layer, tokens, centred, value, primary."""
    ranks = rank.assign(quantity="effective_rank", value=rank["effective_rank"])
    agreements = agreement.assign(quantity=agreement["measure"], centred="", primary=False)
    moved = drift[drift["scope"] != "tensor"]
    movement = moved.assign(
        quantity="relative_movement",
        site=moved["name"],
        tokens="",
        centred="",
        value=moved["relative_movement"],
        primary=moved["scope"] == "model",
    )
    columns = ["policy", "quantity", "site", "layer", "tokens", "centred", "value", "primary"]
    table = pd.concat([part[columns] for part in (ranks, agreements, movement)], ignore_index=True)
    return table.astype({"centred": str, "primary": bool})


def correlations(table: pd.DataFrame, success: dict[str, float], rule: Statistics) -> pd.DataFrame:
    """One row a quantity and subset: Pearson and Spearman correlation with success, intervals, number of checkpoints.

    NaN where a quantity or success does not vary, or fewer than ``FEWEST`` checkpoints have both.
    """
    rows = []
    keys = ["quantity", "site", "layer", "tokens", "centred", "primary"]
    for key, own in table.groupby(keys, sort=True):
        names = own["policy"].to_list()
        x = own["value"].to_numpy(dtype=np.float64)
        y = np.array([success.get(name, np.nan) for name in names])
        fine = np.isfinite(x) & np.isfinite(y)
        for subset, chosen in (("all", fine), ("alive", fine & (y >= COLLAPSED))):
            found = correlation(x[chosen], y[chosen], rule)
            values = key if isinstance(key, tuple) else (key,)
            rows.append(dict(zip(keys, values, strict=True)) | {"subset": subset} | found)
    return pd.DataFrame(rows)


def correlation(x: Floats, y: Floats, rule: Statistics) -> dict[str, float]:
    """Pearson and Spearman with percentile bootstrap intervals; ``checkpoints`` is their number."""
    out: dict[str, float] = {"checkpoints": len(x)}
    empty = [f"{name}{end}" for name in ("pearson", "spearman") for end in ("", "_ci_low", "_ci_high")]
    if len(x) < FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return out | dict.fromkeys(empty, float("nan"))
    generator = np.random.default_rng([rule.bootstrap_seed, len(x)])
    drawn = generator.integers(0, len(x), size=(rule.bootstrap_draws, len(x)))
    ordered = (stats.rankdata(x), stats.rankdata(y))
    tail = (1.0 - rule.confidence) / 2.0
    for name, (a, b) in (("pearson", (x, y)), ("spearman", ordered)):
        estimate = _pearson(a[None], b[None])[0]
        # For Spearman, the ranks of the whole sample are resampled: ranking each resample anew would only add ties.
        draws = _pearson(a[drawn], b[drawn])
        low, high = np.nanquantile(draws, [tail, 1.0 - tail])
        out |= {name: float(estimate), f"{name}_ci_low": float(low), f"{name}_ci_high": float(high)}
    return out


def _pearson(a: Floats, b: Floats) -> Floats:
    """Row by row; NaN for a row that does not vary."""
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    scale = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(scale > 1e-12, (a * b).sum(axis=1) / scale, np.nan), dtype=np.float64)


def gather(folders: Sequence[Path], name: str) -> pd.DataFrame:
    """One table of several jobs, in the order given.

    Raises:
        SystemExit: a job has no such table.
    """
    tables = []
    for folder in folders:
        try:
            tables.append(pd.read_csv(folder / name))
        except (OSError, ValueError) as error:
            raise SystemExit(f"{folder / name}: cannot be read ({error}); run the stage that writes it") from error
    return pd.concat(tables, ignore_index=True)


def main(
    config: Annotated[Path, typer.Option(help="Resolved MechanismJob.")],
    rank: Annotated[list[Path], typer.Option(help="Rank directory; repeat for each policy.")],
    evaluation: Annotated[list[Path], typer.Option(help="Evaluation directory; repeat for each policy.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
    graft: Annotated[list[Path] | None, typer.Option(help="Graft directory; repeat for each run.")] = None,
) -> None:
    """Write rank.csv, agreement.csv, drift.csv, success.csv, correlations.csv, grafts.csv and interactions.csv."""
    from headroom.provenance import record

    settings = load_job(config, MechanismJob)
    with record.job(
        stage="measure.mechanism",
        output=output,
        inputs={"rank": rank, "evaluation": evaluation, "graft": graft or []},
        config=config,
        seeds={"bootstrap": settings.statistics.bootstrap_seed},
    ) as job:
        tables = {name: gather(rank, f"{name}.csv") for name in ("rank", "agreement", "drift")}
        played = [episodes.read(folder) for folder in evaluation]
        # Where selection chose no sets, episodes are labelled by the set of every candidate.
        known = {str(name) for frame in played for name in frame["task_set"].unique()}
        task_set = "mastered" if "mastered" in known or EVERY not in known else EVERY
        success = {str(frame["policy"].iloc[0]): greedy_success(frame, task_set) for frame in played}
        if missing := sorted(set(tables["rank"]["policy"]) - set(success)):
            raise SystemExit(f"no evaluation of {', '.join(missing)}; name its directory with --evaluation")
        listed = sorted(set(tables["rank"]["policy"]))
        tables["success"] = pd.DataFrame({"policy": listed, "success": [success[name] for name in listed]})
        measured = quantities(tables["rank"], tables["agreement"], tables["drift"])
        tables["correlations"] = correlations(measured, success, settings.statistics)
        for name in ("grafts", "interactions"):
            tables[name] = gather(graft, f"{name}.csv") if graft else pd.DataFrame(columns=["policy", "regime"])
        for name, table in tables.items():
            write_csv(job.output / f"{name}.csv", table)
        job.notes["policies"] = len(listed)
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
