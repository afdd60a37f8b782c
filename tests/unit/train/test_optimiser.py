"""AdamW: the library's numbers, and nothing of its compiler."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch import nn

from headroom.config.models import Optimiser
from headroom.train.optimiser import adamw

SETTINGS = Optimiser(beta1=0.8, beta2=0.95, weight_decay=0.03)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (7,))]


def library(weights: list[nn.Parameter]) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        weights,
        lr=0.02,
        betas=(SETTINGS.beta1, SETTINGS.beta2),
        eps=SETTINGS.epsilon,
        weight_decay=SETTINGS.weight_decay,
    )


def take_steps(optimiser: torch.optim.Optimizer, weights: list[nn.Parameter], seed: int, count: int = 4) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        optimiser.zero_grad(set_to_none=True)
        assert all(weight.grad is None for weight in weights)
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimiser.step()


@pytest.mark.parametrize("library_first", [False, True])
def test_its_steps_are_the_librarys_to_the_bit_and_states_go_from_one_to_the_other(library_first: bool) -> None:
    ours, theirs = parameters(), parameters()
    makers = [lambda: adamw(SETTINGS, 0.02)(ours), lambda: library(theirs)]
    made = [make() for make in (reversed(makers) if library_first else makers)]
    own, other = reversed(made) if library_first else made
    take_steps(own, ours, seed=1)
    take_steps(other, theirs, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], parameters()[0])

    resumed, back = [[nn.Parameter(weight.detach().clone()) for weight in ours] for _ in range(2)]
    from_library, from_own = adamw(SETTINGS, 0.5)(resumed), library(back)
    from_library.load_state_dict(deepcopy(other.state_dict()))
    from_own.load_state_dict(deepcopy(own.state_dict()))
    for optimiser, weights in ((from_library, resumed), (from_own, back), (own, ours)):
        take_steps(optimiser, weights, seed=2)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(ours, resumed, back, strict=True))


def test_no_step_builds_a_graph() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimiser = adamw(SETTINGS, 0.1)([weight])
    (weight * weight).sum().backward()
    optimiser.step()
    assert weight.grad_fn is None
    assert weight.requires_grad
    assert not optimiser.state[weight]["exp_avg"].requires_grad


def test_the_compiler_is_not_imported() -> None:
    script = """
import sys, torch
from headroom.config.models import Optimiser
from headroom.train.optimiser import adamw
weight = torch.nn.Parameter(torch.ones(2))
optimiser = adamw(Optimiser(), 0.1)([weight])
weight.grad = torch.ones(2)
optimiser.step()
optimiser.zero_grad()
optimiser.load_state_dict(optimiser.state_dict())
print(float(weight.sum()), "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    moved, compiler = done.stdout.split()
    assert float(moved) < 2.0
    assert compiler == "False"
