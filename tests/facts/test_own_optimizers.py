"""An optimizer that the project writes is followed where each rank takes the same step with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

UPDATE = 'p.add_(torch.sign(p.grad), alpha=-group["lr"])'
INIT = "super().__init__(params, dict(lr=lr))"
MAKE = "Lion(model.parameters())"
STEP = "optimizer.step()"
TRAIN = f"""\
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, TensorDataset


class Lion(Optimizer):
    def __init__(self, params, lr=0.1):
        if lr < 0:
            raise ValueError("negative")
        {INIT}

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
                    {UPDATE}
        return loss

    # another method


loader = DataLoader(TensorDataset(torch.randn(48, 3), torch.randn(48, 1)), batch_size=8)
model = nn.Linear(3, 1)
optimizer = {MAKE}
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        {STEP}
"""
SCHEDULES = """def cosine(x, warmup=0.1):
    return x / warmup if x < warmup else 0.5 * (1 + math.cos(math.pi * x))


def linear(x, warmup=0.1):
    return max((x - 1) / (warmup - 1), 0)


TABLE = {"cosine": cosine, "linear": linear}


"""
SCHEDULED = """share = TABLE["cosine"]
                    lr = self.rate(group, share(self.state[p]["steps"] / 99))
                    clip_grad_norm_(p, 1.0)
                    self.scale[self.state[p]["steps"] % 10] = lr
                    slow = self.state[p]["slow"] = torch.empty_like(p)
                    slow.copy_(p)
                    p.add_(p.grad - slow, alpha=-lr)"""
RATE = """def rate(self, group, share):
        return group["lr"] * share"""
KEPT = "def keep(self, x):\n        self.state['x'] = x"


def _refusals(text: str, folder: Path) -> list[str]:
    outcome = migrate([put({"train.py": text}, folder) / "train.py"], Settings())
    return [refusal.message for refusal in outcome.refusals]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (MAKE, 'Lion([{"params": model.parameters(), "lr": 0.2}])'),
        (MAKE, "Lion(filter(lambda p: p.requires_grad, model.parameters()), lr=0.2)"),
        ("(Optimizer)", "(torch.optim.SGD)"),
    ],
)
def test_a_step_made_of_gradients_own_state_and_numbers_is_one(
    old: str, new: str, tmp_path: Path
) -> None:
    assert _refusals(TRAIN.replace(old, new) if old else TRAIN, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (UPDATE, "p.add_(torch.randn_like(p))"),
        (UPDATE, "p.add_(p.clone().normal_())"),
        (UPDATE, "p.add_(p.noise)"),
        (UPDATE, "p.mul_(self.scale)"),
        (UPDATE, "p.mul_(model(p))"),
        (UPDATE, "p.add_(torch.autograd.grad(p.sum(), p)[0])"),
        (UPDATE, 'group["update"](p)'),
        (INIT, f"{INIT}\n        for p in params:\n            p.register_hook(print)"),
        (MAKE, f"{MAKE}\nLion.step = lambda self: None"),
        (MAKE, "Lion(model.parameters(), model)"),
        (STEP, "optimizer.step(lambda: loss)"),
        (
            UPDATE,
            "p.add_(self.alike(p))\n\n    def alike(self, p):\n        return torch.randn_like(p)",
        ),
        (UPDATE, "p.add_(jitter(p))"),
        (UPDATE, "p.add_(torch.empty_like(p))"),
    ],
)
def test_a_step_that_may_use_what_ranks_do_not_share_is_none(
    old: str, new: str, tmp_path: Path
) -> None:
    assert old in TRAIN
    text = TRAIN.replace(old, new)
    assert any("no optimizer that can be followed" in why for why in _refusals(text, tmp_path))


def test_what_a_method_is_given_elsewhere_may_be_samples(tmp_path: Path) -> None:
    text = TRAIN.replace("# another method", KEPT)
    assert _refusals(text, tmp_path / "unused") == []
    text = text.replace(STEP, f"{STEP}\n        optimizer.keep(x)")
    assert any("no optimizer that can" in why for why in _refusals(text, tmp_path / "used"))
    text = TRAIN.replace(INIT, f"{INIT}\n        self.scale = 1").replace(
        UPDATE, "p.mul_(self.scale)"
    )
    assert _refusals(text, tmp_path / "kept") == []
    text = text.replace(STEP, f"{STEP}\n        optimizer.scale = loss.item()")
    assert any("no optimizer that can" in why for why in _refusals(text, tmp_path / "stored"))


@pytest.mark.parametrize("table", [True, False])
def test_its_own_schedule_methods_and_functions_are_read(table: bool, tmp_path: Path) -> None:
    text = TRAIN.replace(UPDATE, SCHEDULED).replace("class Lion", f"{SCHEDULES}class Lion")
    text = text.replace("# another method", RATE)
    text = text.replace(INIT, f"{INIT}\n        self.scale = [None] * 10")
    if not table:  # what the function uses may be drawn
        text = text.replace("math.cos(math.pi * x)", "float(torch.rand(1))")
    whys = _refusals(text.replace("import torch\n", "import math\nimport torch\n", 1), tmp_path)
    assert any("no optimizer that can" in why for why in whys) is not table
