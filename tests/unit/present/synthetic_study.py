"""A made-up study with the shape of a real one: the tables that figures and claims read, from invented episodes.

Every number here is synthetic. The tables of contrasts, replication, grafts and failures come out of the measuring
code itself, so that a renamed column breaks these tests and not a night's run.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.config.jobs import DemonstrationsJob, dump_job
from headroom.config.models import Demonstrations, Graft, MiniWobSettings, Statistics
from headroom.files import write_csv, write_json, write_parquet, write_text
from headroom.measure.contrast import contrasts
from headroom.measure.edit import Swap
from headroom.measure.failures import classify, failure_table
from headroom.measure.graft_plan import Planned
from headroom.measure.graft_tables import graft_table, interaction_table
from headroom.measure.mechanism import correlations, quantities
from headroom.measure.run_table import read_runs

RUNS = Path(__file__).resolve().parents[3] / "workflow" / "data" / "runs.tsv"
RATES = {"lowest": 1e-4, "low": 3e-4, "middle": 1e-3, "high": 3e-3}
STATISTICS = Statistics(bootstrap_draws=100)
REGIMES = {
    "supervised": ["sft"],
    "low": ["grid-05"],
    "degrade": ["grid-08", "grid-14"],
    "collapse": ["grid-11", "collapse-01"],
    "headroom": ["headroom-01"],
}
MASTERED = tuple(f"mastered-{number:02d}" for number in range(11))
HEADROOM = tuple(f"headroom-{number:02d}" for number in range(10))
COMPONENTS = ("embedding", "attention", "mlp", "norms", "early", "late")


def _threshold(policy: str, runs: pd.DataFrame, task: str) -> float:
    """Success probability of a policy on a task: the story of the paper, roughly."""
    base = 0.9 if task in MASTERED else 0.35
    if policy in ("sft", "base"):
        return base - (0.15 if policy == "base" else 0.0)
    row = runs.loc[policy]
    if row["tasks_trained"] == "headroom":
        return 0.6 if task in HEADROOM else 0.88
    drop = {"lowest": 0.0, "low": -0.005, "middle": 0.22, "high": 0.95}[row["learning_rate_level"]]
    return max(base - drop - (0.1 if row["init"] == "base" else 0.0), 0.0)


def episodes_of(policy: str, runs: pd.DataFrame, seeds: int, *, generator: np.random.Generator) -> pd.DataFrame:
    """Greedy episodes on both sets; equal luck on equal pages, so that pairs agree mostly."""
    rows = []
    for task in (*MASTERED, *HEADROOM):
        luck = np.random.default_rng(len(task) * 1000 + int(task[-2:])).random(seeds)
        shaken = np.clip(luck + generator.normal(0, 0.02, seeds), 0, 1)
        for seed in range(seeds):
            success = bool(shaken[seed] < _threshold(policy, runs, task))
            broken = policy.startswith(("collapse", "grid-1")) and not success
            rows.append(
                {
                    "policy": policy, "task": task, "seed": seed, "mode": "greedy", "sample": 0,
                    "success": success, "raw_reward": np.float32(success), "ending": "page" if success else "horizon",
                    "failure": "", "turns": 2 if success else 10, "invalid": 9 if broken else 0,
                    "actions": ["click button \"Ok\""] * (2 if success else 10),
                    "outcomes": ["malformed" if broken else "ok"] * (2 if success else 10),
                    "task_set": "mastered" if task in MASTERED else "headroom",
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def write_study(folder: Path, *, seeds: int = 6, runs: list[str] | None = None) -> dict[str, Path]:
    """Write every table; returns name (as in the table TABLES of the workflow) -> path; ``steps`` is their folder.

    Args:
        folder: Where to.
        seeds: Pages a task.
        runs: The runs that were made; default: all. An empty study is the degenerate case.
    """
    every = read_runs(RUNS, RATES)
    made = [run for run in every.index if runs is None or run in runs]
    table = every.loc[made]
    generator = np.random.default_rng(0)
    played = {name: episodes_of(name, every, seeds, generator=generator) for name in ("sft", "base", *made)}
    sets = {"mastered": MASTERED, "headroom": HEADROOM}
    tables = {
        name.removesuffix(".csv"): value
        for name, value in contrasts(
            played["sft"], {k: v for k, v in played.items() if k != "sft"}, table, sets, STATISTICS
        ).items()
    }
    tables["reading"] = reading(generator)
    tables |= inside(played, made, generator)
    regimes = {name: [run for run in members if run in played] for name, members in REGIMES.items()}
    regimes = {name: members for name, members in regimes.items() if members}
    shown = pd.concat([played[run] for members in regimes.values() for run in members], ignore_index=True)
    tables["failures"] = failure_table(classify(shown), regimes, {}, STATISTICS)
    tables |= grafts(regimes, generator)
    paths = {}
    for name, value in tables.items():
        paths[name] = folder / f"{name}.csv"
        write_csv(paths[name], value)
    paths["runs"] = RUNS
    paths["tasks"] = folder / "tasks.csv"
    listed = [(task, name, task == HEADROOM[1]) for name, members in sets.items() for task in members]
    write_csv(paths["tasks"], pd.DataFrame(listed, columns=["task", "chosen_as", "filled"]))
    paths["overlap"] = folder / "overlap.csv"
    met = [(task, name, seeds, 1.0 if task == MASTERED[3] else 0.0) for task, name, _ in listed]
    write_csv(paths["overlap"], pd.DataFrame(met, columns=["task", "task_set", "evaluation_pages", "evaluation_met"]))
    paths["demonstrations"] = folder / "demonstrations.json"
    job = DemonstrationsJob(
        world=MiniWobSettings(),
        tasks=(*MASTERED, *HEADROOM),
        demonstrations=Demonstrations(hasty=dict.fromkeys(HEADROOM[-4:], 0.6)),
    )
    write_text(paths["demonstrations"], dump_job(job))
    paths["filmstrip"] = strips(folder / "filmstrip", regimes)
    for run in made:
        paths[f"steps/{run}"] = folder / "grpo" / run / "steps.parquet"
        write_parquet(paths[f"steps/{run}"], steps(table.loc[run], generator))
    return paths


def reading(generator: np.random.Generator) -> pd.DataFrame:
    """The headroom reading: none on the mastered set, some on the other."""
    rows = []
    for level, name, of_set, wide in (
        ("set", "mastered", "mastered", 0.02), ("set", "headroom", "headroom", 0.05),
        *(("task", task, "mastered", 0.06) for task in MASTERED),
        *(("task", task, "headroom", 0.15) for task in HEADROOM),
    ):  # fmt: skip
        middle = -0.02 if of_set == "mastered" else 0.18
        middle += float(generator.normal(0, 0.05)) if level == "task" else 0.0
        rows.append(
            {
                "level": level, "name": name, "task_set": of_set, "tasks": 11, "pages": 60, "excluded": 0,
                "samples": 8, "greedy": 0.9, "sampled": 0.9 + middle, "headroom": middle,
                "headroom_low": middle - wide, "headroom_high": middle + wide, "interval_method": "bootstrap",
                "mixed_share": 0.2, "mixed_low": 0.1, "mixed_high": 0.3,
                "expectation": "expect gain" if middle - wide > 0 else "expect no gain",
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def inside(played: dict[str, pd.DataFrame], made: list[str], generator: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Rank, agreement, drift, success and their correlations."""
    policies = ["sft", "base", *(run for run in made if run.startswith(("grid", "replication", "collapse")))]
    success = {
        name: float(played[name].loc[played[name]["task_set"] == "mastered", "success"].mean()) for name in policies
    }
    ranks, agreement, drift = [], [], []
    for name in policies:
        for site, layer in (("embedding", -1), ("block", 0), ("block", 1), ("final_norm", 2)):
            for tokens in ("mean", "all", "action"):
                for centred in (True, False):
                    value = 10 + 4 * success[name] * (layer >= 1) + float(generator.normal(0, 0.3))
                    ranks.append(
                        {
                            "policy": name, "site": site, "layer": layer, "tokens": tokens, "centred": centred,
                            "effective_rank": value, "ci_low": value - 1, "ci_high": value + 1,
                            "bootstrap_bias": -0.2, "participation_ratio": value / 2, "stable_rank": value / 4,
                            "rows": 120, "width": 96, "episodes": 88,
                            "primary": site == "block" and layer == 1 and tokens == "mean" and centred,
                        }
                    )  # fmt: skip
        for measure in ("argmax_agreement", "kl_policy_reference", "kl_reference_policy"):
            for tokens in ("first", "action_tokens"):
                value = success[name] if measure == "argmax_agreement" else 1 - success[name]
                agreement.append(
                    {
                        "policy": name, "measure": measure, "site": "logits", "layer": 3, "tokens": tokens,
                        "value": value, "ci_low": max(value - 0.05, 0), "ci_high": value + 0.05, "rows": 400,
                    }
                )  # fmt: skip
        moved = 0.0 if name == "sft" else 0.05 + 0.3 * (1 - success[name])
        for scope, group, share in (
            ("model", "", 1.0), ("group", "embedding", 0.6), ("group", "attention", 0.2), ("group", "mlp", 0.19),
            ("group", "norms", 0.01),
        ):  # fmt: skip
            drift.append(
                {
                    "policy": name, "scope": scope, "name": group or "model", "group": group, "layer": -1,
                    "parameters": 1000, "norm": 10.0, "delta_norm": 10 * moved * share**0.5,
                    "relative_movement": moved * share**0.5, "share_of_squared_movement": share if moved else np.nan,
                    "effective_rank": np.nan, "participation_ratio": np.nan, "stable_rank": np.nan, "dtype": "F32",
                    "sharp": True,
                }
            )  # fmt: skip
    rank_table, agreement_table, drift_table = (pd.DataFrame(rows) for rows in (ranks, agreement, drift))
    return {
        "rank": rank_table,
        "agreement": agreement_table,
        "drift": drift_table,
        "policy_success": pd.DataFrame({"policy": policies, "success": [success[name] for name in policies]}),
        "correlations": correlations(quantities(rank_table, agreement_table, drift_table), success, STATISTICS),
    }


def grafts(regimes: dict[str, list[str]], generator: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Grafts of one run each: attention and MLP matter in the degrade regime, nothing alone does after a collapse."""
    tables, pairs = [], []
    settings = Graft()
    for regime in ("low", "degrade", "collapse"):
        for run in regimes.get(regime, []):
            planned = [_planned(*key) for key in _keys()]
            frame = pd.concat([_graft_episodes(plan, regime, generator) for plan in planned], ignore_index=True)
            for found, into in (
                (graft_table(frame, planned, settings, STATISTICS), tables),
                (interaction_table(frame, planned, settings, STATISTICS), pairs),
            ):
                found.insert(0, "policy", run)
                found.insert(1, "regime", regime)
                into.append(found)
    empty = pd.DataFrame(columns=["policy", "regime"])
    return {
        "grafts": pd.concat(tables, ignore_index=True) if tables else empty,
        "interactions": pd.concat(pairs, ignore_index=True) if pairs else empty,
    }


def _keys() -> list[tuple[str, str, tuple[str, ...], int]]:
    keys: list[tuple[str, str, tuple[str, ...], int]] = [
        ("sufficiency", "endpoint", (), -1),
        ("necessity", "endpoint", (), -1),
    ]
    for direction in ("sufficiency", "necessity"):
        keys += [(direction, "group", (name,), -1) for name in COMPONENTS]
        keys += [(direction, "pair", ("attention", "mlp"), -1)]
        for union in (("attention",), ("mlp",), ("attention", "mlp")):
            keys += [(direction, "control", union, draw) for draw in range(2)]
    return keys


def _planned(direction: str, kind: str, union: tuple[str, ...], draw: int) -> Planned:
    name = (
        {"sufficiency": "sft", "necessity": "rl"}[direction] if kind == "endpoint" else f"{direction}/{'+'.join(union)}"
    )
    name += f"/control-{draw}" if kind == "control" else ""
    return Planned(name, direction, kind, union, draw, 1000 * len(union), 1.0, Swap(frozenset()))


def _graft_episodes(plan: Planned, regime: str, generator: np.random.Generator) -> pd.DataFrame:
    damaged = {"low": 0.9, "degrade": 0.6, "collapse": 0.0}[regime]
    if plan.kind == "endpoint":
        success = 0.9 if plan.name == "sft" else damaged
    elif regime == "degrade" and plan.kind != "control" and {"attention", "mlp", "late"} & set(plan.groups):
        success = 0.75
    else:
        success = 0.9 if plan.direction == "sufficiency" else damaged
    rows = []
    for task in MASTERED:
        luck = np.clip(np.arange(10) / 10 + 0.05 + generator.normal(0, 0.01, 10), 0, 1)
        rows += [
            {
                "policy": plan.name, "task": task, "seed": seed, "mode": "greedy", "sample": 0,
                "success": bool(luck[seed] < success), "ending": "page", "failure": "",
            }
            for seed in range(10)
        ]  # fmt: skip
    return pd.DataFrame(rows)


def steps(row: pd.Series, generator: np.random.Generator) -> pd.DataFrame:
    """Eight steps of one run."""
    count = 8
    fall = {"lowest": 0.0, "low": 0.0, "middle": 0.02, "high": 0.1}[row["learning_rate_level"]]
    number = np.arange(count)
    return pd.DataFrame(
        {
            "step": number,
            "success": np.clip(0.9 - fall * number + generator.normal(0, 0.03, count), 0, 1),
            "entropy": np.clip(0.3 - 0.02 * number, 0.01, 1),
            "invalid_share": np.clip(fall * number, 0, 1),
            "live_groups": np.clip(0.4 - fall * number / 2, 0, 1),
            "all_fail_groups": np.clip(fall * number, 0, 1),
            "kl": fall * number,
            "gradient_norm": 1.0 + 3 * fall * number,
            "weight_change": fall * number / 5,
            "turns_mean": 2.0 + 8 * fall * number / 7,
        }
    )


def strips(folder: Path, regimes: dict[str, list[str]]) -> Path:
    """filmstrip.json and its frames; a regime without a page, too."""
    from PIL import Image, ImageDraw

    said = []
    for regime in ("degrade", "headroom", "collapse"):
        if regime not in regimes:
            continue
        run = regimes[regime][0]
        entry = {
            "regime": regime,
            "policy": run,
            "rule": "first page of the mastered set that was lost, by (task, page seed)",
        }
        if regime == "headroom":
            said.append(entry | {"page": None, "strips": {}})
            continue
        films = {}
        for role, policy, count in (("reference", "sft", 3), ("run", run, 6)):
            frames = []
            for turn in range(count):
                picture = Image.new("RGB", (480, 692), "white")
                ImageDraw.Draw(picture).rectangle((40, 60 + 40 * turn, 200, 90 + 40 * turn), fill="#0072B2")
                name = f"{regime}-{role}/{turn:02d}.png"
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                stream = io.BytesIO()
                picture.save(stream, format="PNG")
                (folder / name).write_bytes(stream.getvalue())
                last = turn == count - 1
                frames.append(
                    {
                        "file": name, "turn": turn, "action": "" if last else f'click button "Ok {turn}"',
                        "outcome": "" if last else ("ok" if role == "reference" else "unknown target"),
                        "box": None if last else [10.0, 20.0, 40.0, 10.0],
                    }
                )  # fmt: skip
            films[role] = {"policy": policy, "success": role == "reference", "turns": count - 1, "frames": frames}
        said.append(entry | {"page": {"task": "click-button", "seed": 7}, "strips": films})
    path = folder / "filmstrip.json"
    write_json(path, json.loads(json.dumps({"strips": said})))
    return path
