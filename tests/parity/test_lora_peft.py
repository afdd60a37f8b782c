"""LoRA against PEFT's own model around the library's own class: forward, adapter file and merge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headroom.config.models import Lora, Optimiser, TinyModel, Trainer
from headroom.policy.decoder import read_decoder
from headroom.policy.files import check_checkpoint
from headroom.policy.tiny import tiny_model
from headroom.train.batch import Example, make_batch
from headroom.train.optimiser import adamw
from headroom.train.trainee import Trainee

LORA = Lora(rank=3, alpha=7)
IDS = [5, 9, 2, 11, 7, 7, 1]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    shape = TinyModel(width=24, layers=2, heads=4, key_value_heads=2, head_width=8, feed_forward=32, initial_std=0.2)
    tiny_model(shape, vocabulary=13, pad_id=0, end_ids=(1,), seed=0).save_pretrained(str(tmp_path))
    return tmp_path


@pytest.fixture
def trained(base: Path) -> Trainee:
    """Our adapter after some steps of ours, in float32."""
    torch.set_num_threads(1)
    model = read_decoder(base, check_checkpoint(base), torch.float32).eval()
    trainee = Trainee(model, adamw(Optimiser(), 0.05), Trainer(lora=LORA))
    for _ in range(3):
        trainee.zero_grad()
        trainee.backward(-trainee.score(make_batch([example(3)])).log_probabilities.sum())
        trainee.step()
    return trainee


def example(prompt: int) -> Example:
    return Example(np.array(IDS[:prompt], np.int32), np.array(IDS[prompt:], np.int32))


def library_scores(model: torch.nn.Module) -> torch.Tensor:
    """log p of every token after the first."""
    with torch.no_grad():
        log_probabilities = model(torch.tensor([IDS])).logits[0].log_softmax(-1)
    return log_probabilities[:-1].gather(1, torch.tensor(IDS[1:])[:, None]).squeeze(1)


def test_our_adapter_is_peft_s_model_to_rounding_in_memory_from_its_file_and_merged(
    base: Path, trained: Trainee, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        ours = trained.score(make_batch([example(1)])).log_probabilities[0]
    plain = library_scores(AutoModelForCausalLM.from_pretrained(base).eval())
    assert float((ours - plain).abs().max()) > 0.05, "the adapter does something"

    trained.finish(tmp_path / "adapter")
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter").eval()
    torch.testing.assert_close(ours, library_scores(peft), rtol=0, atol=3e-6)

    trained.model.save_pretrained(str(tmp_path / "merged"))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(ours, library_scores(merged), rtol=0, atol=3e-6)
    theirs = peft.merge_and_unload().state_dict()
    for name, value in merged.state_dict().items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-6)


def test_our_gradient_is_that_of_peft_s_model(base: Path, trained: Trainee, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from headroom.train import adapter

    trained.zero_grad()
    trained.backward(trained.score(make_batch([example(4)])).log_probabilities.sum())
    ours = {name: master.grad for name, master in trained.masters.items()}
    adapter.save(trained.model, LORA, tmp_path / "adapter")
    peft = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter", is_trainable=True
    ).eval()
    logits = peft(torch.tensor([IDS])).logits[0].log_softmax(-1)
    logits[3:-1].gather(1, torch.tensor(IDS[4:])[:, None]).sum().backward()
    theirs = {name.removeprefix("base_model.model."): p.grad for name, p in peft.named_parameters() if p.requires_grad}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-5)


def test_grafts_and_ranks_read_our_adapter_as_the_merged_checkpoint(
    base: Path, trained: Trainee, tmp_path: Path
) -> None:
    from headroom.measure.adapted import open_pair
    from headroom.measure.weights import open_checkpoint

    trained.finish(tmp_path / "adapter")
    trained.model.save_pretrained(str(tmp_path / "merged"))
    _, read = open_pair(base, tmp_path / "adapter")
    merged = open_checkpoint(tmp_path / "merged")
    assert read.tensors.keys() == merged.tensors.keys()
    for name, tensor in merged.tensors.items():
        np.testing.assert_allclose(read.tensors[name].values(), tensor.values(), rtol=0, atol=1e-6)
