"""How far torch's optimizers go with twice the gradient: DDP401, DDP424 and DDP978 go by it."""

from __future__ import annotations

import inspect
import os
from unittest.mock import patch

import pytest
import torch

from ddpify.rules.shared.optimizers import GROWING

pytestmark = pytest.mark.thorough
OPTIMIZERS = [
    cls
    for cls in vars(torch.optim).values()
    if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
    if cls not in (torch.optim.Optimizer, torch.optim.SparseAdam)
]


def _gone(cls: type[torch.optim.Optimizer], times: float) -> float:
    """How far 20 steps with a gradient of this size lead."""
    torch.manual_seed(0)
    weights, goal = torch.nn.Parameter(torch.zeros(4, 4)), torch.randn(4, 4)

    def loss() -> float:
        weights.grad = times * (weights.detach() - goal) / 16
        return 0.0

    with patch.dict(os.environ):  # torch.compile, which some ask for, sets a few
        optimizer = cls([weights], lr=1e-3)  # type: ignore[call-arg]
        for _ in range(20):
            optimizer.step(loss)
    return weights.detach().norm().item()


@pytest.mark.parametrize("cls", OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_only_some_optimizers_go_farther_with_a_larger_gradient(
    cls: type[torch.optim.Optimizer],
) -> None:
    grown = _gone(cls, 2.0) / _gone(cls, 1.0)
    if cls.__name__ in GROWING:
        assert grown == pytest.approx(2, rel=0.02)
    else:
        assert grown < 1.3  # RAdam's first five steps are those of SGD
