"""A run that trains a LoRA adapter: its folder is an output of the rule, and what its insides are read from."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

SETTINGS = "workflow/scales/smoke.yaml"
LORA = ("grpo:\n  steps: 2\n", "grpo:\n  steps: 2\n  trainer: {lora: {rank: 2, alpha: 4}}\n")
SFT = "{seed: 0, steps: %d, batch: 16, warmup_steps: 5, checkpoint_every: 30"


def jobs(text: str) -> dict[str, dict[str, set[str]]]:
    """Rule and wildcard -> its inputs and outputs, as a dry run prints them."""
    found = {}
    for block in re.split(r"\n(?=(?:local)?rule )", text):
        if match := re.match(r"(?:local)?rule (\w+):", block):
            wildcards = re.search(r"^    wildcards: \w+=(.*)$", block, re.MULTILINE)
            found[f"{match[1]} {wildcards[1] if wildcards else ''}".strip()] = {
                kind: set(listed[1].split(", ")) if (listed := re.search(rf"^    {kind}: (.*)$", block, re.MULTILINE))
                else set()
                for kind in ("input", "output")
            }  # fmt: skip
    return found


def asked(study, *policies: str) -> dict[str, dict[str, set[str]]]:
    done = study.snakemake("-n", "--forceall")
    assert done.returncode == 0, done.stdout + done.stderr
    found = jobs(done.stdout + done.stderr)
    return {name: job for name, job in found.items() if name.rpartition(" ")[2] in policies}


def test_without_lora_no_adapter_is_declared_or_read(study) -> None:
    found = asked(study, "grid-11", "sft")
    assert "results/smoke/grpo/grid-11/checkpoint" in found["grpo grid-11"]["output"]
    assert "results/smoke/grpo/grid-11/checkpoint" in found["graft grid-11"]["input"]
    assert not [name for job in found.values() for kind in job.values() for name in kind if name.endswith("/adapter")]


def test_the_adapter_of_a_run_is_declared_and_rank_and_grafts_are_read_from_it(study) -> None:
    with study.edited(SETTINGS, *LORA):
        found = asked(study, "grid-11", "sft")
    adapter, merged = (f"results/smoke/grpo/grid-11/{name}" for name in ("adapter", "checkpoint"))
    assert {adapter, merged} <= found["grpo grid-11"]["output"]
    for name in ("rank grid-11", "graft grid-11"):
        assert adapter in found[name]["input"]
        assert merged not in found[name]["input"]
    assert merged in found["evaluate grid-11"]["input"], "pages are played by the merged model"
    assert "results/smoke/sft/sft/adapter" not in found["sft sft"]["output"]


def test_an_adapter_of_sft_is_declared_where_all_its_jobs_train_one_and_its_rank_is_the_merged_models(study) -> None:
    old, new = SFT % 60, SFT % 60 + ", trainer: {lora: {rank: 2, alpha: 4}}"
    with study.edited(SETTINGS, old, new):
        refused = study.snakemake("-n")
        assert refused.returncode != 0
        assert "sft.sft.trainer.lora: not every SFT job has one" in refused.stdout + refused.stderr
        with study.edited(SETTINGS, SFT % 20, SFT % 20 + ", trainer: {lora: {rank: 2, alpha: 4}}"):
            found = asked(study, "sft")
    assert "results/smoke/sft/sft/adapter" in found["sft sft"]["output"]
    assert "results/smoke/sft/sft/checkpoint" in found["rank sft"]["input"]
    assert "results/smoke/sft/sft/adapter" not in found["rank sft"]["input"]


@pytest.mark.slow
@pytest.mark.browser
def test_a_run_with_an_adapter_goes_through_the_rules_to_its_rank_and_its_grafts(
    finished_smoke: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "headroom"
    shutil.copytree(finished_smoke, folder, symlinks=True)
    path = folder / SETTINGS
    assert LORA[0] in path.read_text()
    path.write_text(path.read_text().replace(*LORA))
    targets = [f"results/smoke/{stage}/grid-11/manifest.json" for stage in ("rank", "graft")]
    done = subprocess.run(
        [".venv/bin/snakemake", "--cores", "2", *targets, "--config", "scale=smoke"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    adapter = folder / "results/smoke/grpo/grid-11/adapter"
    assert {file.name for file in adapter.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    for stage in ("rank", "graft"):
        record = json.loads((folder / f"results/smoke/{stage}/grid-11/run.json").read_bytes())
        assert "results/smoke/grpo/grid-11/adapter" in [item["path"] for item in record["inputs"]]
        assert "results/smoke/grpo/grid-11/run.json" in [parent["record"] for parent in record["parents"]]
    grafts = pd.read_csv(folder / "results/smoke/graft/grid-11/grafts.csv")
    assert "embedding" not in set(grafts["groups"]), "the adapter does not move it"
    assert len(grafts)
