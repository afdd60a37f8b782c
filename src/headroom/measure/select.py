"""Choose the mastered and the headroom tasks from SFT episodes on seeds that nothing else uses.

The rule, fixed before any episode is seen, in terms of each candidate's greedy success g and sampled success s (T=1)
on the selection pages:

1. *Mastered.* The candidates with g >= ``mastered_at_least``, sorted by (g, name), but for those with errors that
   sampling does not reach: g < 1 and not one page whose samples disagree. GRPO can learn from mixed groups alone, so on
   such a task no gain could show. Of the windows of ``mastered`` consecutive tasks in that order, take the one
   whose mean g is nearest to ``mastered_mean``; a tie takes the window with the higher mean, then the earlier one.
   Why not the best tasks: at 100% there is nothing left to gain and "no setting improves" would hold by construction;
   with a mean of about .91 both a gain and a loss can show.
2. *Headroom.* Of the other candidates, those with g <= ``headroom_at_most`` and s > g, the ``headroom`` many with
   the largest s - g; a tie takes the name that sorts first.
3. *Filling.* If too few qualify: for mastered, the rest by highest g; for headroom, the rest of g <=
   ``headroom_at_most`` by largest s - g, then the others by lowest g (ties by name throughout). Filled places are
   no measured headroom: they are flagged in ``tasks.csv``, listed under ``filled`` in ``task_sets.json``, counted in
   the record and on screen. They are not an error. A candidate without one scored episode of either kind comes last.

Choosing the largest of many noisy differences flatters them (regression to the mean): the numbers here choose, and
the headroom reading, on other seeds, measures.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from headroom.agent.episode import Episode
from headroom.config.jobs import SelectJob, load_job
from headroom.config.models import Tasks
from headroom.files import write_csv, write_json, write_parquet
from headroom.measure import episodes
from headroom.measure.passk import mixed_share
from headroom.measure.play import Player, open_player


def candidates(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Numbers of each candidate from its episode table: pages, greedy, sampled, gap, mixed_share, excluded.

    A candidate without scored episodes has NaN. ``mixed_share`` is over pages, at the number of samples played.
    """
    rows = []
    for name in names:
        played = frame[frame["task"] == name]
        counted = episodes.scored(played)
        greedy = counted.loc[counted["mode"] == "greedy", "success"]
        sampled = counted[counted["mode"] == "sampled"].groupby("seed")["success"]
        samples, successes = sampled.count(), sampled.sum()
        mixed = [mixed_share(int(n), int(c), int(n)) for n, c in zip(samples, successes, strict=True)]
        mean_greedy = float(greedy.mean()) if len(greedy) else math.nan
        mean_sampled = float(successes.sum() / samples.sum()) if len(samples) else math.nan
        rows.append(
            {
                "task": name,
                "pages": len(greedy),
                "greedy": mean_greedy,
                "sampled": mean_sampled,
                "gap": mean_sampled - mean_greedy,
                "mixed_share": sum(mixed) / len(mixed) if mixed else math.nan,
                "excluded": len(played) - len(counted),
            }
        )
    return pd.DataFrame(rows)


def choose(numbers: pd.DataFrame, rule: Tasks) -> pd.DataFrame:
    """Apply the rule of the module's docstring to :func:`candidates`' table.

    Returns the table with ``chosen_as`` ("mastered", "headroom" or ""), ``filled`` (bool) and ``reason``, sorted by
    task. A pure function of the numbers: the order of the rows does not matter.
    """
    table = numbers.sort_values("task", kind="stable").reset_index(drop=True)
    greedy = dict(zip(table["task"], table["greedy"].fillna(-1.0), strict=True))
    gap = dict(zip(table["task"], table["gap"].fillna(-2.0), strict=True))
    known = {task for task in greedy if greedy[task] >= 0.0 and gap[task] > -2.0}
    mixed = dict(zip(table["task"], table["mixed_share"].fillna(0.0), strict=True))
    stuck = {task for task in known if greedy[task] < 1.0 and mixed[task] == 0.0}

    able = sorted((t for t in known - stuck if greedy[t] >= rule.mastered_at_least), key=lambda t: (greedy[t], t))
    mastered = _window(able, greedy, rule.mastered, rule.mastered_mean)
    others = sorted(set(greedy) - set(mastered), key=lambda t: (t not in known, -greedy[t], t))
    filled_mastered = others[: rule.mastered - len(mastered)]

    rest = set(greedy) - set(mastered) - set(filled_mastered)
    open_tasks = [t for t in rest & known if greedy[t] <= rule.headroom_at_most and gap[t] > 0.0]
    headroom = sorted(open_tasks, key=lambda t: (-gap[t], t))[: rule.headroom]

    def nearness(task: str) -> tuple[bool, bool, float, str]:
        low = greedy[task] <= rule.headroom_at_most
        return (task not in known, not low, -gap[task] if low else greedy[task], task)

    filled_headroom = sorted(rest - set(headroom), key=nearness)[: rule.headroom - len(headroom)]

    roles = {
        **dict.fromkeys(mastered, ("mastered", False)),
        **dict.fromkeys(filled_mastered, ("mastered", True)),
        **dict.fromkeys(headroom, ("headroom", False)),
        **dict.fromkeys(filled_headroom, ("headroom", True)),
    }
    table["chosen_as"] = [roles.get(task, ("", False))[0] for task in table["task"]]
    table["filled"] = [roles.get(task, ("", False))[1] for task in table["task"]]
    table["reason"] = [_reason(roles.get(t), greedy[t], gap[t], t in known, t in stuck, rule) for t in table["task"]]
    return table


def _window(able: list[str], greedy: dict[str, float], size: int, target: float) -> list[str]:
    """Rule 1: the window of ``size`` tasks whose mean is nearest to the target; all of them if they are too few."""
    if len(able) <= size:
        return able
    windows = [able[first : first + size] for first in range(len(able) - size + 1)]

    def distance(window: list[str]) -> tuple[float, float]:
        mean = math.fsum(greedy[task] for task in window) / size
        return (round(abs(mean - target), 9), -round(mean, 9))

    return min(windows, key=distance)


def _reason(
    role: tuple[str, bool] | None, greedy: float, gap: float, is_known: bool, is_stuck: bool, rule: Tasks
) -> str:
    if not is_known:
        return "no scored episodes" + (f"; fills a free {role[0]} place" if role else "")
    if role == ("mastered", False):
        return f"greedy {greedy:.2f} >= {rule.mastered_at_least:.2f}, in the window nearest to {rule.mastered_mean:.2f}"
    if role == ("mastered", True):
        return f"too few tasks qualify; greedy {greedy:.2f} is the highest left"
    if role == ("headroom", False):
        return f"greedy {greedy:.2f} <= {rule.headroom_at_most:.2f}, sampled is {gap:+.2f} above"
    if role == ("headroom", True):
        return f"too few tasks qualify; greedy {greedy:.2f}, sampled minus greedy {gap:+.2f} is the nearest left"
    if greedy >= rule.mastered_at_least and is_stuck:
        return f"greedy {greedy:.2f}, but sampling never reaches its errors: no page has mixed samples"
    if greedy >= rule.mastered_at_least:
        return f"qualifies as mastered (greedy {greedy:.2f}) but outside the window nearest to {rule.mastered_mean:.2f}"
    if greedy > rule.headroom_at_most:
        return f"greedy {greedy:.2f} lies between the two thresholds"
    if gap <= 0.0:
        return f"greedy {greedy:.2f}, but sampled is not above it ({gap:+.2f})"
    return f"sampled minus greedy {gap:+.2f} is not among the {rule.headroom} largest"


def play_candidates(player: Player, rule: Tasks, seeds: list[int]) -> tuple[list[Episode], list[Episode]]:
    """Greedy and sampled episodes of all candidates on the selection pages."""
    return player.greedy(rule.candidates, seeds), player.sampled(rule.candidates, seeds, rule.samples)


def main(
    config: Annotated[Path, typer.Option(help="Resolved SelectJob.")],
    checkpoint: Annotated[Path, typer.Option(help="The supervised checkpoint.")],
    output: Annotated[Path, typer.Option(help="Result directory.")],
) -> None:
    """Write episodes.parquet, tasks.csv and task_sets.json."""
    from headroom.provenance import record
    from headroom.worlds.seeds import pool

    settings = load_job(config, SelectJob)
    rule = settings.tasks
    with record.job(
        stage="measure.select",
        output=output,
        inputs={"checkpoint": checkpoint},
        config=config,
        seeds={"sampler": settings.seed},
    ) as job:
        with open_player(
            checkpoint,
            settings.world,
            seed=settings.seed,
            max_new_tokens=settings.max_new_tokens,
            label="selection",
            notes=job.notes,
        ) as player:
            greedy, sampled = play_candidates(player, rule, list(pool("selection", rule.selection_seeds)))
        frame = episodes.ordered(
            pd.concat(
                [
                    episodes.table(greedy, policy="sft", mode="greedy"),
                    episodes.table(sampled, policy="sft", mode="sampled"),
                ],
                ignore_index=True,
            )
        )
        chosen = choose(candidates(frame, rule.candidates), rule)
        sets = {
            name: sorted(chosen.loc[chosen["chosen_as"] == name, "task"].tolist()) for name in ("mastered", "headroom")
        }
        filled = {name: sorted(set(tasks) & set(chosen.loc[chosen["filled"], "task"])) for name, tasks in sets.items()}
        set_of = dict(zip(chosen["task"], chosen["chosen_as"], strict=True))
        frame["task_set"] = frame["task"].map(set_of)
        write_parquet(job.output / "episodes.parquet", frame)
        write_csv(job.output / "tasks.csv", chosen)
        write_json(job.output / "task_sets.json", {**sets, "filled": filled})
        for name in sets:
            rows = chosen[chosen["chosen_as"] == name]
            job.notes[f"{name} greedy"] = _plain(rows["greedy"].mean())
            job.notes[f"{name} sampled minus greedy"] = _plain(rows["gap"].mean())
            job.notes[f"{name} filled"] = filled[name]
            job.notes[f"{name} chosen by the rule"] = len(rows) - len(filled[name])
            print(_summary(name, sets[name], filled[name]))
        job.notes["excluded episodes"] = int(chosen["excluded"].sum())
        job.ending = "finished"


def _summary(name: str, tasks: list[str], filled: list[str]) -> str:
    rest = f"; filled with the nearest: {', '.join(filled)}" if filled else ""
    return f"{name}: {len(tasks) - len(filled)} of {len(tasks)} places by the rule{rest}"


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


if __name__ == "__main__":
    typer.run(main)
