"""vLLM beside the torch sampler: same prompts, same weights, same run; and every fault of a sync that is known.

vLLM lives in an environment of its own: ``vllm_cases.py`` runs there, once with all weights over two processes and once
with an adapter in one, and these tests read what it wrote.
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
    pytest.mark.timeout(1800),  # a minute on idle cores, most of it vLLM's start
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-vllm (make setup-vllm makes it)"),
]
LAUNCHERS = {
    "weights": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
    "adapter": [],
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The answers of both runs, which go side by side."""
    folder = tmp_path_factory.mktemp("vllm")
    paths = [PROJECT / "src", PROJECT / "tests/unit/train"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("vllm_cases.py")
    running = {}
    for kind, launcher in LAUNCHERS.items():
        with (folder / f"{kind}.log").open("w") as log:
            command = [PYTHON, *launcher, script, kind, folder / kind]
            running[kind] = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    for kind, process in running.items():
        assert process.wait() == 0, (folder / f"{kind}.log").read_text()[-5000:]
    return {kind: json.loads((folder / kind / "answers.json").read_text()) for kind in running}


@pytest.fixture(scope="module", params=sorted(LAUNCHERS))
def answers(both: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> dict[str, Any]:
    return both[request.param]


@pytest.fixture(scope="module")
def questions(both: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return both["weights"]["questions"]


# One engine in the place of the other


def test_greedy_actions_are_those_of_the_torch_sampler(questions: dict[str, Any]) -> None:
    vllm, ours = questions["greedy"]
    assert vllm == ours
    assert len({tuple(action) for action in ours}) > 3


def test_log_probabilities_are_the_trainers_at_every_temperature(questions: dict[str, Any]) -> None:
    assert questions["greedy_gap"] < 1e-4
    assert 0 < questions["sampled_gap"] < 1e-4


def test_a_seed_repeats_its_sample_alone_and_in_any_company(questions: dict[str, Any]) -> None:
    assert questions["together"] == questions["backwards"]
    assert questions["together"][: len(questions["alone"])] == questions["alone"]


def test_the_members_of_a_group_are_not_all_alike(questions: dict[str, Any]) -> None:
    assert len({tuple(action) for action in questions["group"]}) > 8


def test_every_end_id_ends_an_action_and_is_part_of_it(questions: dict[str, Any]) -> None:
    actions = questions["together"] + questions["group"]
    ended = [action for action in actions if len(action) < 12]
    assert {action[-1] for action in ended} == {1, 7}
    assert not any(token in (1, 7) for action in actions for token in action[:-1])


def test_what_the_engine_does_not_know_is_not_a_number(questions: dict[str, Any]) -> None:
    assert questions["entropy_is_unknown"]


def test_too_long_a_prompt_names_the_setting(questions: dict[str, Any]) -> None:
    assert questions["too_long"].startswith("EngineError: a prompt has 185 tokens")
    assert questions["too_long"].endswith("raise grpo.vllm.longest")


# A run


def test_a_run_by_either_backend_ends_in_the_same_weights(answers: dict[str, Any]) -> None:
    """Five steps on the same actions: what differs is the engine, its log-probabilities and the importance weights."""
    assert not any(answers["skipped"])
    assert answers["moved"] > 0.1
    assert answers["apart"] < 1e-4 * answers["moved"]
    for row, twin in zip(answers["rows"], answers["twin"], strict=True):
        assert row["success"] == twin["success"]
        assert row["weight_change"] == pytest.approx(twin["weight_change"], rel=1e-4)
    assert len({row["success"] for row in answers["rows"]}) > 1


def test_a_step_reports_the_canary_and_the_importance_weights_and_torch_has_none(
    answers: dict[str, Any],
) -> None:
    assert answers["tolerance"] == 1e-3
    for row, twin in zip(answers["rows"], answers["twin"], strict=True):
        assert 0 < row["canary_gap"] < 1e-4
        assert row["sampler_gap"] < 1e-4
        assert row["importance_mean"] == pytest.approx(1.0, abs=1e-5)
        assert row["importance_capped_share"] == 0.0
        assert twin["canary_gap"] is twin["importance_mean"] is twin["importance_capped_share"] is None


def test_sharded_weights_reach_an_engine_in_each_process(both: dict[str, dict[str, Any]]) -> None:
    assert {kind: answers["processes"] for kind, answers in both.items()} == {"weights": 2, "adapter": 1}


# Faults


def test_an_engine_in_step_passes(answers: dict[str, Any]) -> None:
    kind, gap = answers["faults"]["none"].split(": ")
    assert kind == "no error"
    assert float(gap) < 1e-4


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("stale cache", "prefix cache still answers with what older weights computed"),
        ("a tensor that vLLM fuses was dropped", "nats off, and 0.001 are allowed"),
        ("a tensor of its own was dropped", "1 weights were not taken, model.layers.0.mlp.down_proj.weight first"),
        ("no tensor was taken", "nats off"),
        ("old embed_tokens", "nats off"),
        ("old layers.1.input_layernorm", "nats off"),
        ("old layers.0.self_attn.q_proj", "nats off"),
        ("old layers.1.mlp.up_proj", "nats off"),
        ("old lm_head, noticed by name", "1 weights were not taken, lm_head.weight first"),
        ("old lm_head, noticed by the canary", "nats off"),
    ],
)
def test_a_fault_in_the_weights_stops_the_run(both: dict[str, dict[str, Any]], fault: str, words: str) -> None:
    said = both["weights"]["faults"][fault]
    assert said.startswith("EngineError: vLLM does not answer as the policy does after sync ")
    assert words in said
    assert said.endswith("use engine: torch")


@pytest.mark.parametrize(
    ("fault", "words"), [("adapter not applied", "answers as the base model"), ("old adapter", "nats off")]
)
def test_a_fault_in_the_adapter_stops_the_run(both: dict[str, dict[str, Any]], fault: str, words: str) -> None:
    said = both["adapter"]["faults"][fault]
    assert said.startswith("EngineError: ")
    assert words in said


def test_an_adapter_is_served_and_one_that_does_nothing_yet_passes(both: dict[str, dict[str, Any]]) -> None:
    faults = both["adapter"]["faults"]
    assert faults["furthest from the base"] > 1e-2
    assert faults["at the start, where it does nothing"].startswith("no error")
    assert faults["after it"].startswith("no error")


def test_a_policy_beyond_use_is_its_own_fault_and_not_the_engines(both: dict[str, dict[str, Any]]) -> None:
    assert both["weights"]["faults"]["a policy beyond use"].startswith("FloatingPointError: the model's probabilities")
