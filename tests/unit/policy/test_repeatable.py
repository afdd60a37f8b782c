"""The settings of torch that every stage with a model begins with."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from headroom.policy.repeatable import repeatable


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.get_deterministic_debug_mode()
    yield
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    torch.set_deterministic_debug_mode(before)


@pytest.mark.parametrize(("gpu", "mode"), [(False, 2), (True, 1)], ids=["a processor refuses", "a GPU warns"])
def test_an_operation_that_could_differ_between_runs(monkeypatch: pytest.MonkeyPatch, gpu: bool, mode: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    repeatable()
    assert torch.get_deterministic_debug_mode() == mode
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert torch.get_num_threads() == 1
