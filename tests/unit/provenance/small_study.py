"""A small study with real records: every kind of result, made by ``record.job`` in milliseconds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from headroom.provenance import record

RESULTS, FIGURES = Path("results/smoke"), Path("figures/smoke")
RUNS = ("grid-05", "grid-11")


def make(stage: str, name: str, files: Mapping[str, str | bytes], **options: object) -> None:
    """One job of the small study, with the settings file that lies at its name."""
    config = RESULTS / "config" / f"{name}.json"
    if not config.is_file():
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps({"job": name, "steps": 2}, indent=2, sort_keys=True) + "\n")
    with record.job(stage, RESULTS / name, config=config, **options) as job:  # type: ignore[arg-type]
        for inside, content in files.items():
            path = job.output / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def train(run: str, content: str = "") -> None:
    files = {"checkpoint/model.safetensors": f"weights {run}{content}", "steps.parquet": "1", "timing.parquet": "0.3"}
    inputs = {"init": RESULTS / "sft/sft/checkpoint", "task_sets": RESULTS / "select/task_sets.json"}
    make("train.grpo", f"grpo/{run}", files, inputs=inputs, seeds={"grpo": 0})


def evaluate(policy: str) -> None:
    folder = "sft" if policy == "sft" else "grpo"
    inputs = {"checkpoint": RESULTS / folder / policy / "checkpoint", "task_sets": RESULTS / "select/task_sets.json"}
    make("measure.evaluate", f"evaluate/{policy}", {"episodes.parquet": f"episodes {policy}"}, inputs=inputs)


def contrast(runs: Sequence[str] = RUNS) -> None:
    policies = [RESULTS / "evaluate" / policy for policy in ("sft", *runs)]
    rows = "".join(f"{run},0.{number}\n" for number, run in enumerate(runs, 1))
    inputs = {"policies": policies, "runs": Path("workflow/data/runs.tsv")}
    make("measure.contrast", "contrast", {"contrasts.csv": f"policy,difference\n{rows}"}, inputs=inputs)


def figure() -> None:
    table, drawing = FIGURES / "data/gate.csv", FIGURES / "gate.pdf"
    with record.job("present.gate", table, inputs={"contrasts": RESULTS / "contrast/contrasts.csv"}) as job:
        job.output.write_bytes((RESULTS / "contrast/contrasts.csv").read_bytes())
    beside = [FIGURES / "gate.png", FIGURES / "captions/gate.txt"]
    with record.job("present.gate", drawing, inputs={"data": table}, extra_outputs=beside) as job:
        for path in (job.output, *beside):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"drawing {path.name}")


def build(folder: Path) -> Path:
    """The whole small study in a new folder."""
    (folder / "workflow/data").mkdir(parents=True)
    (folder / "workflow/data/runs.tsv").write_text("run\tseed\ngrid-05\t0\ngrid-11\t0\n")
    (folder / "Snakefile").write_text("")
    with contextlib.chdir(folder):
        make("train.demonstrations", "demonstrations", {"demonstrations.parquet": "pages"})
        sft = {"checkpoint/model.safetensors": "weights sft", "checkpoint/config.json": "{}", "steps.parquet": "1"}
        make("train.sft", "sft/sft", sft, inputs={"demonstrations": RESULTS / "demonstrations"}, seeds={"sft": 0})
        make(
            "measure.select", "select", {"task_sets.json": "{}"}, inputs={"checkpoint": RESULTS / "sft/sft/checkpoint"}
        )
        for run in RUNS:
            train(run)
        for policy in ("sft", *RUNS):
            evaluate(policy)
        contrast()
        figure()
    return folder
