"""Forwards in which a sample's output depends on the others of its batch, and near ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of

PROGRAM = """class Inner(nn.Module):
    def forward(self, x):
        return x - x.mean({axis})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.inner = nn.Linear(4, 4), Inner()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
{forward}


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 4)), 4):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
"""
COMPARING = {
    "its input": "x = x - x.mean(0)\nreturn self.body(x)",
    "its features": "h = self.body(x)\nreturn h / h.norm(dim=0)",
    "each with each": "h = self.body(x)\nreturn (h @ h.t()).softmax(-1) @ h",
    "its neighbour": "h = self.body(x)\nreturn h + h.roll(1, 0)",
    "the largest": "h = self.body(x)\nreturn h - h.max(0)[0]",
    "its number": "h = self.body(x)\nreturn h + torch.rand(40, 1)[: h.size(0)]",
    "in a module that it calls": "return self.inner(self.body(x))",
}
ALONE = {
    "along the features": "x = x - x.mean(1, keepdim=True)\nreturn self.body(x)",
    "attention within a sample": "h = self.body(x).view(-1, 2, 2)\n"
    "return ((h @ h.transpose(1, 2)).softmax(-1) @ h).flatten(1)",
    "a layer for that": "return self.norm(self.body(x))",
    "time first": "h = self.body(x).view(-1, 2, 2).permute(1, 0, 2)\n"
    "return (h - h.mean(0)).permute(1, 0, 2).reshape(-1, 4)",
    "the largest feature": "h = self.body(x)\nreturn h - h.max(1, keepdim=True)[0]",
    "neighbours of a sample": "h = self.body(x)\nreturn h + h.roll(1, 1)",
    "numbers of steps": "h = self.body(x).view(-1, 2, 2).permute(1, 0, 2)\n"
    "return (h + torch.rand(40, 1, 1)[: h.size(0)]).permute(1, 0, 2).reshape(-1, 4)",
    "looked at alone": "h = self.body(x)\nself.seen = h.detach().mean(0)\nreturn h",
}


def compares(forward: str, folder: Path, axis: int = 0) -> bool:
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    return bool(facts_of(PROGRAM.format(axis=axis, forward=body), folder).compared)


@pytest.mark.parametrize("forward", COMPARING.values(), ids=COMPARING)
def test_samples_are_compared(forward: str, tmp_path: Path) -> None:
    assert compares(forward, tmp_path)


@pytest.mark.parametrize("forward", ALONE.values(), ids=ALONE)
def test_each_sample_is_computed_by_itself(forward: str, tmp_path: Path) -> None:
    assert not compares(forward, tmp_path)


def test_a_module_that_is_called_may_do_so(tmp_path: Path) -> None:
    assert not compares(COMPARING["in a module that it calls"], tmp_path, axis=1)


def test_what_is_given_need_not_be_known(tmp_path: Path) -> None:
    text = PROGRAM.format(axis=0, forward="        return self.body(x - x.mean(0))")

    assert facts_of(text.replace("net(x)", "net(*[x])"), tmp_path).compared


def test_what_is_returned_may_hold_others(tmp_path: Path) -> None:
    forward = "        h = self.body(x)\n        return h, {'aside': [h - h.mean(0)]}"
    text = PROGRAM.format(axis=0, forward=forward)

    assert facts_of(text.replace("net(x)", "net(x)[0]"), tmp_path).compared
