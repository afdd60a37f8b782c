"""Which pinned environment an edit of makes a run of GRPO stale: the one that samples its rollouts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_study import train

from headroom.provenance.stale import stale
from headroom.provenance.walk import Project

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize(("engine", "environment"), [("torch", "train"), ("vllm", "rollout")])
def test_a_run_rests_on_the_pins_of_the_engine_that_samples_it(folder: Path, engine: str, environment: str) -> None:
    for name in ("config.yaml", "envs", "workflow/rules", "workflow/scales", "workflow/data", "src"):
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, dirs_exist_ok=True)
        else:
            shutil.copy(PROJECT / name, folder / name)
    settings = folder / "workflow/scales/smoke.yaml"
    settings.write_text(settings.read_text().replace("grpo:\n", f"grpo:\n  engine: {engine}\n"))
    train("grid-05", "made beside the environments")

    def pins() -> list[str]:
        found = {item.job: item.reasons for item in stale(Project(folder), "smoke")}
        return [reason for reason in found.get("grpo grid-05", ()) if reason.startswith("pins: ")]

    assert pins() == []
    for name in ("worlds", "train", "rollout"):
        path = folder / f"envs/{name}.yaml"
        kept = path.read_text()
        path.write_text(kept + "# another pin\n")
        assert pins() == ([f"pins: envs/{name}.yaml"] if name == environment else [])
        path.write_text(kept)
