"""One job in two processes (gloo, FSDP2) against the same job in one, and states that change hands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy_game import game_policy
from toy_processes import deep_policy, run_case, seeing

from headroom.train.processes import ALONE, Processes, start

LORA = {"rank": 2, "alpha": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]}
GRPO = {"steps": 4, "learning_rate": 3e-3, "updates_per_rollout": 2, "kl_beta": 0.05, "microbatch_tokens": 40}
CASES: dict[str, dict[str, Any]] = {
    "full": GRPO | {"trainer": {}},
    "lora": GRPO | {"trainer": {"lora": LORA}},
    "recomputed": GRPO | {"trainer": {"gradient_checkpointing": True, "logits_chunk": 3}},
    "masters": GRPO | {"trainer": {"precision": "bfloat16_masters", "gradient_checkpointing": True}},
    "lora masters": GRPO | {"trainer": {"precision": "bfloat16_masters", "lora": LORA}},
    "watched": GRPO
    | {
        "trainer": {"logits_chunk": 3},
        "entropy_bonus": 0.05,
        "signal": {"kind": "noise", "channel": "decoupled"},
        "validation": {"every": 2, "pages": 5},
    },
    "auxiliary": GRPO | {"game": True, "max_new_tokens": 5, "auxiliary": {"kind": "prediction", "weight": 1.0}},
    "auxiliary lora": GRPO
    | {
        "game": True,
        "max_new_tokens": 5,
        "auxiliary": {"kind": "shuffled", "weight": 1.0},
        "trainer": {"lora": LORA, "gradient_checkpointing": True},
    },
    "sft": {"stage": "sft"},
    "seeing": GRPO | {"trainer": {}, "seeing": True},
    "seeing lora": GRPO | {"trainer": {"lora": LORA}, "seeing": True},
}
TOLERANCE = 2e-6
"""Of a weight of size one: sums in another order."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case in this process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("one")
    for name, case in CASES.items():
        run_case(folder / name, case, ALONE)
    return folder


@pytest.fixture(scope="module")
def two(one: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case in two processes, and two that go on from states which one process left half way."""
    folder = tmp_path_factory.mktemp("two")
    cases = dict(CASES)
    for name in ("full", "lora", "sft"):
        cases[f"{name} resumed"] = CASES[name]
        half(one / name, folder / f"{name} resumed")
    (folder / "cases.json").write_text(json.dumps(cases))
    script = Path(__file__).with_name("toy_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, folder]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def half(case: Path, into: Path) -> None:
    """The state of ``case`` after two of its four steps."""
    (into / "states").mkdir(parents=True)
    shutil.copy(case / "states" / "step-00000002.safetensors", into / "states")


def distance(a: Path, b: Path) -> float:
    """The largest difference between the weights of two cases."""
    first, second = load_file(a / "weights"), load_file(b / "weights")
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def movement(case: Path) -> float:
    """The largest change of a weight since the start."""
    begun = (game_policy if case.name.startswith("auxiliary") else deep_policy)().model.state_dict()
    return max(float((value - begun[name]).abs().max()) for name, value in load_file(case / "weights").items())


@pytest.mark.parametrize("name", ["full", "lora", "recomputed", "watched", "sft", "auxiliary", "auxiliary lora"])
def test_two_processes_end_with_the_weights_of_one(one: Path, two: Path, name: str) -> None:
    assert movement(one / name) > 1e-3
    assert distance(one / name, two / name) < TOLERANCE


@pytest.mark.parametrize("name", ["seeing", "seeing lora"])
def test_the_language_part_of_a_seeing_model_trains_and_shards_as_a_plain_one(one: Path, two: Path, name: str) -> None:
    """One network under two sets of names ends in the same weights, and so do its shards."""
    plain = load_file(one / ("lora" if "lora" in name else "full") / "weights")
    found = load_file(one / name / "weights")
    assert found.keys() == {seeing(key) for key in plain}
    assert all(torch.equal(value, found[seeing(key)]) for key, value in plain.items())
    assert distance(one / name, two / name) < TOLERANCE


@pytest.mark.parametrize("name", ["masters", "lora masters"])
def test_two_processes_in_bfloat16_end_near_the_weights_of_one(one: Path, two: Path, name: str) -> None:
    # AdamW's first steps follow the sign of a gradient, so a weight whose gradient is rounding alone may go either way.
    first, second = load_file(one / name / "weights"), load_file(two / name / "weights")
    begun = deep_policy().model.state_dict()
    moved = torch.cat([(first[key] - begun[key]).flatten() for key in first])
    apart = torch.cat([(first[key] - second[key]).flatten() for key in first])
    assert moved.norm() > 0.01
    assert apart.norm() < 0.25 * moved.norm()


@pytest.mark.parametrize("name", ["full", "lora", "recomputed", "watched", "auxiliary", "auxiliary lora"])
def test_two_processes_report_the_rows_of_one(one: Path, two: Path, name: str) -> None:
    validations = [json.loads((folder / name / "validations.json").read_text()) for folder in (one, two)]
    assert validations[0] == validations[1]
    assert [row["step"] for row in validations[0]] == ([0, 2, 4] if name == "watched" else [])
    mine, theirs = (json.loads((folder / name / "rows.json").read_text()) for folder in (one, two))
    assert any(row["updates"] == 2 for row in mine)
    if name.startswith("auxiliary"):  # every game fails: nothing else is learned from
        assert all(row["live_groups"] == 0 and row["updates"] == 2 and row["auxiliary_loss"] > 0 for row in mine)
    for first, second in zip(mine, theirs, strict=True):
        assert first.pop("skip_reason") == second.pop("skip_reason")
        assert max(first.pop("sampler_gap"), second.pop("sampler_gap")) < 1e-5
        assert {name for name, value in first.items() if value is None} == {
            name for name, value in second.items() if value is None
        }
        for name, value in first.items():
            assert value is None or value == pytest.approx(second[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("name", ["full", "lora", "sft"])
def test_a_state_of_one_process_resumes_in_two(one: Path, two: Path, name: str) -> None:
    assert distance(one / name, two / f"{name} resumed") < TOLERANCE


@pytest.mark.parametrize("name", ["full", "lora", "masters", "sft"])
def test_a_state_of_two_processes_resumes_in_one(two: Path, tmp_path: Path, name: str) -> None:
    half(two / name, tmp_path / name)
    run_case(tmp_path / name, CASES[name], ALONE)
    assert distance(two / name, tmp_path / name) < (0.02 if name == "masters" else TOLERANCE)


def test_a_state_does_not_know_how_many_processes_wrote_it(one: Path, two: Path) -> None:
    for name in ("full", "masters"):
        first, second = (load_file(folder / name / "states" / "step-00000004.safetensors") for folder in (one, two))
        assert {key: (value.shape, value.dtype) for key, value in first.items()} == {
            key: (value.shape, value.dtype) for key, value in second.items()
        }


def test_the_processes_play_every_page_once_and_share_the_microbatches_evenly() -> None:
    parts = [Processes(rank, 3) for rank in range(3)]
    assert sorted(item for part in parts for item in part.mine(range(8))) == list(range(8))
    dealt = [part.deal(list(range(8))) for part in parts]
    assert {len(share) for share in dealt} == {3}
    assert sorted(item for share in dealt for item, counts in share if counts) == list(range(8))
    assert [part.deal([]) for part in parts] == [[], [], []]


def test_a_job_that_was_started_with_the_wrong_number_of_processes_says_how_to_start_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with (
        pytest.raises(SystemExit, match=r"processes is 2, but 1 were started.*torchrun .*--nproc-per-node=2"),
        start(2),
    ):
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match=r"processes is 1, but 2 were started.*with python -m"), start(1):
        pass
