import json
import logging
import math

import pytest
import torch
from torch import nn

from headroom.train import checkpoint


class Tied(nn.Module):
    """Two layers that share a matrix, and one that is frozen."""

    def __init__(self, width=4):
        super().__init__()
        self.embedding = nn.Embedding(7, width)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.frozen(self.embedding(ids)))


def make(width=4, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Tied(width)
    return model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, betas=(0.8, 0.95))


def learn(model, optimiser, first, last):
    for step in range(first, last):
        optimiser.zero_grad()
        ids = torch.tensor([step % 7, (3 * step + 1) % 7])
        nn.functional.cross_entropy(model(ids), ids.flip(0)).backward()
        optimiser.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimiser.step()


def test_ten_steps_equal_five_and_five_after_a_resume_to_the_bit(tmp_path):
    unbroken, optimiser = make()
    learn(unbroken, optimiser, 0, 10)
    first, first_optimiser = make()
    learn(first, first_optimiser, 0, 5)
    checkpoint.save(tmp_path, 5, first, first_optimiser, {"loss": [0.1, 1 / 3]})
    second, second_optimiser = make()
    with torch.no_grad():
        second.embedding.weight.add_(1.0)  # whatever it held
    assert checkpoint.latest(tmp_path, second, second_optimiser) == (5, {"loss": [0.1, 1 / 3]})
    learn(second, second_optimiser, 5, 10)
    assert torch.equal(second.embedding.weight, unbroken.embedding.weight)
    assert second.head.weight is second.embedding.weight
    assert second_optimiser.param_groups[0]["betas"] == (0.8, 0.95)


def test_a_state_before_the_first_step_can_be_resumed(tmp_path):
    model, optimiser = make()
    checkpoint.save(tmp_path, 0, model, optimiser)
    other, other_optimiser = make(seed=1)
    assert checkpoint.latest(tmp_path, other, other_optimiser) == (0, {})
    assert torch.equal(other.embedding.weight, model.embedding.weight)


def test_frozen_and_tied_weights_are_not_written_twice_or_at_all(tmp_path):
    from safetensors import safe_open

    with safe_open(checkpoint.save(tmp_path, 1, *make()), "pt") as stream:
        assert list(stream.keys()) == ["model.embedding.weight"]


def test_the_newest_two_states_are_kept(tmp_path):
    model, optimiser = make()
    (tmp_path / ".step-00000001.safetensors.abc.part").write_bytes(b"of a killed process")
    for step in (1, 2, 10):
        checkpoint.save(tmp_path, step, model, optimiser)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000002.safetensors",
        "step-00000010.safetensors",
    ]


def test_equal_states_give_equal_bytes(tmp_path):
    for folder in ("one", "two"):
        model, optimiser = make()
        learn(model, optimiser, 0, 3)
        checkpoint.save(tmp_path / folder, 3, model, optimiser, {"b": 1, "a": 2})
    assert (tmp_path / "one/step-00000003.safetensors").read_bytes() == (
        tmp_path / "two/step-00000003.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("cut", [0, 5, 300, -1])
def test_a_truncated_state_is_skipped_with_a_warning_and_the_older_one_used(tmp_path, caplog, cut):
    model, optimiser = make()
    learn(model, optimiser, 0, 1)
    checkpoint.save(tmp_path, 1, model, optimiser, {"kept": True})
    older = model.embedding.weight.clone()
    learn(model, optimiser, 1, 2)
    newest = checkpoint.save(tmp_path, 2, model, optimiser)
    newest.write_bytes(newest.read_bytes()[:cut])
    with caplog.at_level(logging.WARNING):
        assert checkpoint.latest(tmp_path, model, optimiser) == (1, {"kept": True})
    assert str(newest) in caplog.text
    assert torch.equal(model.embedding.weight, older)


def test_without_a_readable_state_nothing_changes(tmp_path):
    model, optimiser = make()
    before = model.embedding.weight.clone()
    assert checkpoint.latest(tmp_path / "nowhere", model, optimiser) is None
    (tmp_path / "step-00000004.safetensors").write_bytes(b"not a state")
    assert checkpoint.latest(tmp_path, model, optimiser) is None
    assert torch.equal(model.embedding.weight, before)


def test_the_state_of_another_model_is_refused_and_changes_nothing(tmp_path):
    checkpoint.save(tmp_path, 1, *make(width=5))
    model, optimiser = make()
    before = model.embedding.weight.clone()
    with pytest.raises(ValueError, match="another model"):
        checkpoint.latest(tmp_path, model, optimiser)
    assert torch.equal(model.embedding.weight, before)


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    model, optimiser = make()
    with pytest.raises(ValueError):
        checkpoint.save(tmp_path, 1, model, optimiser, {"loss": math.nan})
    with pytest.raises(ValueError, match="-1 steps"):
        checkpoint.save(tmp_path, -1, model, optimiser)
    assert not list(tmp_path.iterdir())


def test_a_resumed_state_does_not_hang_on_its_file(tmp_path):
    model, optimiser = make()
    learn(model, optimiser, 0, 2)
    path = checkpoint.save(tmp_path, 2, model, optimiser)
    expected = json.dumps(model.embedding.weight.tolist())
    checkpoint.latest(tmp_path, model, optimiser)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert json.dumps(model.embedding.weight.tolist()) == expected
    learn(model, optimiser, 2, 3)
    assert torch.isfinite(model.embedding.weight).all()
