"""A Qwen3-VL's language part in vLLM: the trainer's answers, from the checkpoint's own names, no image library needed.

``vllm_language_cases.py`` runs in the environment that has vLLM, with all weights and with an adapter.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
PYTHON = PROJECT / ".venv-vllm/bin/python"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # two and a half minutes on busy cores, most of it vLLM's start
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-vllm (make setup-vllm makes it)"),
]
KINDS = ("weights", "adapter")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The answers of both, which go side by side."""
    folder = tmp_path_factory.mktemp("vllm-language")
    paths = os.pathsep.join(str(PROJECT / name) for name in ("src", "tests"))
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    running = {}
    for kind in KINDS:
        with (folder / f"{kind}.log").open("w") as log:
            command = [PYTHON, Path(__file__).with_name("vllm_language_cases.py"), kind, folder / kind]
            running[kind] = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    for kind, process in running.items():
        assert process.wait() == 0, (folder / f"{kind}.log").read_text()[-5000:]
    return {kind: json.loads((folder / kind / "answers.json").read_text()) for kind in KINDS}


@pytest.fixture(params=KINDS)
def answers(both: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> dict[str, Any]:
    return both[request.param]


def test_greedy_actions_are_those_of_the_torch_sampler_after_an_update(answers: dict[str, Any]) -> None:
    vllm, ours = answers["greedy"]
    assert vllm == ours
    assert answers["changed"], "the update shows nowhere"
    assert answers["apart"] < 1e-4


def test_the_canary_agrees_at_each_sync_and_notices_an_old_policy(answers: dict[str, Any]) -> None:
    assert len(answers["gaps"]) == 2
    assert max(answers["gaps"]) < answers["tolerance"]
    assert answers["fault"].startswith("vLLM does not answer as the policy does after sync 3")
