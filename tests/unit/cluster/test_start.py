"""What is refused when a workflow starts: runs by vLLM where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.cluster.start import before_rollouts
from headroom.config.resolve import resolve
from headroom.config.workflow import VLLM, Workflow, prelude

PROJECT = Path(__file__).parents[3]
BY_VLLM, BY_TORCH = "paper-qwen3-4b", "tiny"


def study(scale: str = BY_VLLM, tier: str = "scratch") -> Workflow:
    return Workflow(resolve({"scale": scale, "tier": tier}, PROJECT), {})


def test_runs_by_vllm_without_its_environment_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        before_rollouts(study(), tmp_path, conda=False)
    message = str(caught.value)
    assert message.startswith(f"headroom: workflow/scales/{BY_VLLM}.yaml: grpo.engine is vllm")
    assert "make setup-vllm" in message
    assert "--sdm conda" in message
    assert "\n" not in message


def test_it_starts_where_vllm_is_not_needed_or_there(tmp_path: Path) -> None:
    before_rollouts(study(BY_TORCH), tmp_path, conda=False)
    before_rollouts(study(), tmp_path, conda=True)
    before_rollouts(study(tier="checkpoints"), tmp_path, conda=False)
    (tmp_path / VLLM).mkdir(parents=True)
    (tmp_path / VLLM / "python").touch()
    before_rollouts(study("paper"), tmp_path, conda=False)


def test_games_are_played_beside_vllm_so_its_environment_needs_their_engine(tmp_path: Path) -> None:
    (tmp_path / VLLM).mkdir(parents=True)
    (tmp_path / VLLM / "python").touch()
    with pytest.raises(SystemExit, match="lacks ALFWorld's engine: type make setup-alfworld"):
        before_rollouts(study(), tmp_path, conda=False)
    (tmp_path / VLLM).parent.joinpath("lib/python3.11/site-packages/textworld").mkdir(parents=True)
    before_rollouts(study(), tmp_path, conda=False)


def test_it_starts_where_every_run_is_made_already(tmp_path: Path) -> None:
    runs = list(study().init_of)
    for run in runs:
        folder = tmp_path / f"results/{BY_VLLM}/grpo/{run}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    before_rollouts(study(), tmp_path, conda=False)
    (tmp_path / f"results/{BY_VLLM}/grpo/{runs[-1]}/manifest.json").unlink()
    with pytest.raises(SystemExit):
        before_rollouts(study(), tmp_path, conda=False)


def test_only_jobs_that_sample_by_vllm_look_for_its_folder_and_only_without_conda() -> None:
    assert study(BY_TORCH).first_on_path == ""
    assert study().first_on_path.startswith('PATH="${{HEADROOM_VLLM:+')
    assert f'HEADROOM_VLLM="$PWD/{VLLM}"' in prelude("smoke", conda=False)
    assert "HEADROOM_VLLM" not in prelude("smoke", conda=True)
