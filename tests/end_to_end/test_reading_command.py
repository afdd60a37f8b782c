"""``headroom reading CHECKPOINT --tasks ...`` as a practitioner types it, in a real browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HEADROOM = Path(sys.executable).parent / "headroom"


def reading(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(HEADROOM), "reading", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that is none of ours: random weights, a tokenizer of single characters, no slots."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    words = Tokenizer(models.WordLevel({c: i for i, c in enumerate(["<end>", "<none>", *letters])}, unk_token="<none>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", unk_token="<none>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=4096, eos_token_id=0,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("foreign") / "checkpoint"
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_trained_checkpoint_gets_a_table_and_a_sentence_of_what_to_expect(finished_smoke: Path, tmp_path) -> None:
    table = tmp_path / "reading.csv"
    done = reading(
        finished_smoke, "results/smoke/sft/sft/checkpoint", "--tasks", "click-test-2,click-dialog",
        "--seeds", "3", "--samples", "2", "--output", str(table),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "expect" in done.stdout or "undecided" in done.stdout
    rows = pd.read_csv(table)
    assert set(rows["name"]) == {"all", "click-test-2", "click-dialog"}
    assert set(rows["pages"]) == {3, 6}
    assert ((rows["sampled"] - rows["greedy"] - rows["headroom"]).abs() < 1e-9).all()


def test_a_checkpoint_of_another_family_with_its_own_tokenizer_is_read_too(foreign: Path, tmp_path: Path) -> None:
    table = tmp_path / "reading.csv"
    done = reading(
        tmp_path, str(foreign), "--tasks", "click-test-2", "--seeds", "2", "--samples", "2", "--output", str(table)
    )
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(table)
    assert set(rows["pages"]) == {2}
    assert set(rows["greedy"]) == {0.0}  # random weights write no action


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--tasks", "click-test-2"], "nowhere holds no config.json"),
        (["CHECKPOINT", "--tasks", "click-tost"], "click-tost"),
        (["CHECKPOINT", "--tasks", "click-test-2,click-test-2"], "each once"),
    ],
)
def test_a_wrong_argument_is_one_line(foreign: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = reading(tmp_path, *(str(foreign) if part == "CHECKPOINT" else part for part in arguments))
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
