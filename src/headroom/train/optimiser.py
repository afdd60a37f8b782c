"""AdamW (arXiv 1711.05101) as torch computes it, without the import of torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from headroom.config.models import Optimiser


def _undecorated(method: Any) -> Any:
    return inspect.unwrap(method)


class AdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` to the bit.

    The library's own methods, each without the decorator that keeps ``torch.compile`` out of it: that one imports the
    compiler at its first call, a second of processor time in each of some forty jobs that compile nothing.
    """

    add_param_group = _undecorated(torch.optim.AdamW.add_param_group)
    zero_grad = _undecorated(torch.optim.AdamW.zero_grad)
    state_dict = _undecorated(torch.optim.AdamW.state_dict)
    load_state_dict = _undecorated(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(_undecorated(torch.optim.AdamW.step))


def adamw(settings: Optimiser, rate: float) -> Callable[[list[nn.Parameter]], AdamW]:
    """What makes AdamW over a list of parameters, with ``rate`` as its learning rate until a step sets another."""
    return lambda parameters: AdamW(
        parameters,
        lr=rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )
