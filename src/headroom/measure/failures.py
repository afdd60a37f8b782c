"""How policies fail: every scored, failed greedy episode gets exactly one kind, by the first rule that fits.

1. ``invalid``: at least half of the turns did not reach the page. The sub-kind is their most frequent outcome
   (``unknown target``, ``malformed`` ...; ties go to the order of :class:`~headroom.worlds.base.Outcome`).
2. ``loop``: the turn limit was reached, and from some turn on the episode repeats a cycle of at most
   ``LONGEST_CYCLE`` actions, at least ``LEAST_REPEATS`` times in full.
3. ``out of turns``: the turn limit was reached without such a cycle.
4. ``premature stop``: the page ended the episode as a failure after fewer valid turns than the shortest success that
   any policy in the tables has on this page (on this task, where nobody solved this page).
5. ``wrong target``: the page ended the episode as a failure, and not earlier than a success takes: valid actions on
   the wrong things. Also what ends on a task that nobody ever solved, where "too early" has no measure.

Infrastructure failures are not failures of a policy: excluded, with a count. Shares are of failures; beside them
stands the rate over all episodes. Intervals are over tasks, as everywhere (:mod:`headroom.measure.intervals`): the
rate's directly, the share's from resampling tasks, numerator and denominator together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from headroom.agent.episode import Ending
from headroom.config.jobs import FailuresJob, load_job
from headroom.config.models import Statistics
from headroom.files import write_csv, write_parquet
from headroom.measure import episodes
from headroom.measure.hidden import episode_weights
from headroom.measure.intervals import task_interval
from headroom.measure.statistics import clusters
from headroom.worlds.base import Outcome

KINDS = ("invalid", "loop", "out of turns", "premature stop", "wrong target")
INVALID_KINDS = tuple(str(outcome) for outcome in Outcome if outcome.invalid)
LONGEST_CYCLE = 3
LEAST_REPEATS = 2


def shortest_successes(frame: pd.DataFrame) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """The fewest valid turns of any success: by page (task, seed), and by task."""
    counted = episodes.scored(frame)
    won = counted[counted["success"]]
    valid = won["turns"] - won["invalid"]
    pages: dict[tuple[str, int], int] = {}
    tasks: dict[str, int] = {}
    for task, seed, turns in zip(won["task"].astype(str), won["seed"].astype(int), valid.astype(int), strict=True):
        pages[task, seed] = min(turns, pages.get((task, seed), turns))
        tasks[task] = min(turns, tasks.get(task, turns))
    return pages, tasks


def kind_of(
    *,
    ending: str,
    actions: Sequence[str],
    outcomes: Sequence[str],
    shortest: int | None,
) -> tuple[str, str]:
    """(kind, sub-kind) of one failed episode; the sub-kind is empty but for ``invalid``.

    ``shortest`` is the number of valid turns of the shortest success on the page or task, None if there is none.

    Raises:
        ValueError: the episode is an infrastructure failure.
    """
    if ending == str(Ending.INFRASTRUCTURE):
        raise ValueError("an infrastructure failure is no failure of the policy")
    invalid = [outcome for outcome in outcomes if outcome != str(Outcome.OK)]
    if invalid and 2 * len(invalid) >= len(outcomes):
        return "invalid", max(INVALID_KINDS, key=invalid.count)
    if ending == str(Ending.HORIZON):
        return ("loop" if ends_in_a_loop(actions) else "out of turns"), ""
    valid = len(outcomes) - len(invalid)
    return ("premature stop" if shortest is not None and valid < shortest else "wrong target"), ""


def ends_in_a_loop(actions: Sequence[str]) -> bool:
    """Whether the last actions are a cycle of length c <= LONGEST_CYCLE, played at least LEAST_REPEATS times more.

    So a single action must stand at least three times in a row at the end, a pair six actions long, and so on.
    """
    for cycle in range(1, LONGEST_CYCLE + 1):
        needed = cycle * (LEAST_REPEATS + 1)
        tail = list(actions[-needed:])
        if len(tail) == needed and all(tail[i] == tail[i - cycle] for i in range(cycle, needed)):
            return True
    return False


def classify(frame: pd.DataFrame) -> pd.DataFrame:
    """The scored greedy episodes with ``kind`` and ``invalid_kind``; both are empty for successes."""
    pages, tasks = shortest_successes(frame)
    table = episodes.scored(frame)
    table = table[table["mode"] == "greedy"].copy()
    kinds = [
        ("", "")
        if row["success"]
        else kind_of(
            ending=row["ending"],
            actions=list(row["actions"]),
            outcomes=list(row["outcomes"]),
            shortest=pages.get((row["task"], int(row["seed"])), tasks.get(row["task"])),
        )
        for _, row in table.iterrows()
    ]
    table["kind"] = [kind for kind, _ in kinds]
    table["invalid_kind"] = [sub for _, sub in kinds]
    return table.reset_index(drop=True)


def failure_table(
    classified: pd.DataFrame, regimes: Mapping[str, Sequence[str]], excluded: Mapping[str, int], rule: Statistics
) -> pd.DataFrame:
    """One row a (regime, policy, task set, kind), and one a regime over its policies (``policy`` "all").

    Columns: failures and episodes counted, ``share_of_failures`` and ``rate`` (of episodes) with intervals. Invalid
    sub-kinds are rows too (``kind`` "invalid", ``invalid_kind`` not empty); their shares add up to invalid's.
    """
    rows = []
    for regime, policies in regimes.items():
        members = [(policy, classified[classified["policy"] == policy]) for policy in policies]
        if len(policies) > 1:
            members.append(("all", classified[classified["policy"].isin(policies)]))
        for policy, mine in members:
            lost = excluded.get(policy, 0) if policy != "all" else sum(excluded.get(p, 0) for p in policies)
            for task_set, own in mine.groupby("task_set"):
                for kind, sub in [*((kind, "") for kind in KINDS), *(("invalid", sub) for sub in INVALID_KINDS)]:
                    hit = own["kind"] == kind
                    if sub:
                        hit &= own["invalid_kind"] == sub
                    head = {"regime": regime, "policy": policy, "task_set": task_set, "kind": kind, "invalid_kind": sub}
                    rows.append(head | _counts(own, hit, rule) | {"excluded": lost})
    return pd.DataFrame(rows)


def _counts(own: pd.DataFrame, hit: pd.Series, rule: Statistics) -> dict[str, object]:
    failed = ~own["success"].to_numpy(dtype=bool)
    values = hit.to_numpy(dtype=np.float64)
    tasks = own["task"].astype(str).to_numpy()
    rate = task_interval(
        clusters(list(tasks), values),
        confidence=rule.confidence,
        draws=rule.bootstrap_draws,
        seed=rule.bootstrap_seed,
        support=(0.0, 1.0),
    )
    low, high = np.nan, np.nan
    if failed.any():
        names, index = np.unique(tasks, return_inverse=True)
        weights = episode_weights(len(names), rule.bootstrap_draws, rule.bootstrap_seed)
        top = weights @ np.bincount(index, values, len(names))
        bottom = weights @ np.bincount(index, failed, len(names))
        tail = (1.0 - rule.confidence) / 2.0
        if (bottom > 0).mean() >= 0.95:
            low, high = np.quantile(top[bottom > 0] / bottom[bottom > 0], [tail, 1.0 - tail])
    return {
        "count": int(values.sum()),
        "failures": int(failed.sum()),
        "episodes": len(own),
        "share_of_failures": float(values.sum() / failed.sum()) if failed.any() else np.nan,
        "share_ci_low": float(low),
        "share_ci_high": float(high),
        "rate": float(values.mean()),
        "rate_ci_low": rate.low,
        "rate_ci_high": rate.high,
    }


def main(
    config: Annotated[Path, typer.Option(help="Resolved FailuresJob.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
    policies: Annotated[list[Path], typer.Argument(help="Evaluation directories, the supervised policy's included.")],
) -> None:
    """Write failures.csv and classified.parquet."""
    from headroom.provenance import record

    settings = load_job(config, FailuresJob)
    with record.job(
        stage="measure.failures",
        output=output,
        inputs={"policies": policies},
        config=config,
        seeds={"bootstrap": settings.statistics.bootstrap_seed},
    ) as job:
        frame = pd.concat([episodes.read(folder) for folder in policies], ignore_index=True)
        wanted = {policy for members in settings.regimes.values() for policy in members}
        if missing := sorted(wanted - set(frame["policy"])):
            raise SystemExit(f"no evaluation of {', '.join(missing)} among the policies; name its directory, too")
        classified = classify(frame)
        lost = frame[(frame["ending"] == str(Ending.INFRASTRUCTURE)) & (frame["mode"] == "greedy")]
        table = failure_table(
            classified,
            settings.regimes,
            {str(name): len(rows) for name, rows in lost.groupby("policy")},
            settings.statistics,
        )
        write_csv(job.output / "failures.csv", table)
        columns = ["policy", "task", "task_set", "seed", "success", "kind", "invalid_kind"]
        write_parquet(job.output / "classified.parquet", classified[columns])
        job.ending = "finished"


if __name__ == "__main__":
    typer.run(main)
