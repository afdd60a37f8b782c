"""The dark room's tables from invented runs: collapsed, recovered and noisy arms, through the measuring code itself."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from headroom.config import resolve
from headroom.config.jobs import DarkRoomArm
from headroom.config.models import Arm
from headroom.files import write_csv
from headroom.measure.dark_room import curve, tabulate

PROJECT = Path(__file__).resolve().parents[3]
SCALE = "dark-room-tiny"


def write_dark_room(folder: Path, *, runs: int | None = None) -> dict[str, Path]:
    """``arms`` and ``validation`` of the first ``runs`` runs of the table; of none: empty tables."""
    generator = np.random.default_rng(5)
    study = resolve.load_study(PROJECT, SCALE)
    listed = [run for run in resolve.load_runs(PROJECT, study, SCALE) if isinstance(run, Arm)][:runs]
    courses, arms, warnings = {}, {}, {}
    for run in listed:
        arms[run.run] = DarkRoomArm(arm=run.arm, seed=run.seed, last=3)
        dark = run.signal == "prediction" and run.advantage_scale != "none"
        number = np.arange(11)
        success = np.clip(0.4 - (0.05 * number if dark else 0.0) + generator.normal(0, 0.04, 11), 0, 1)
        score = np.clip((0.5 + 0.06 * number if dark else np.full(11, 0.5)) + generator.normal(0, 0.01, 11), 0, 1)
        validation = pd.DataFrame(
            {
                "step": 5 * number, "episodes": 32, "success": success, "turns": 9.0, "invalid_share": 0.1,
                "prediction_score": score if run.signal == "prediction" else np.nan, "anchor_score": 0.6,
                "confidence": 0.5, "excluded": 0,
            }
        )  # fmt: skip
        steps = pd.DataFrame({"step": np.arange(50), "entropy": 1.0, "prediction_score": 0.5, "horizon_share": 0.4})
        courses[run.run] = curve(steps, validation)
        warnings[run.run] = 30.0 if dark else math.nan
    paths = {"arms": folder / "dark_room.csv", "validation": folder / "validation.csv"}
    if listed:
        tables = tabulate(arms, courses, warnings, 0.95)
    else:
        every = write_dark_room(folder / "any", runs=1)
        tables = (pd.read_csv(every["arms"]).iloc[:0], pd.read_csv(every["validation"]).iloc[:0])
    for path, table in zip(paths.values(), tables, strict=True):
        write_csv(path, table)
    return paths
