"""What an object keeps of its first batch: a tensor of its size, or one number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of

# What nobody follows: it could be a tensor as long as the batch.
PROGRAM = """
class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.mode, self.best = "min", 0

    def epoch(self):
        numbers = {{}}
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            numbers["loss"] = x.sort(0)[0][0] + loss
        return numbers

    def is_better(self, number):
{asks}

    def train(self):
        for epoch in range(3):
            numbers = self.epoch()
            print(self.is_better(numbers["loss"]))
            if self.mode == "min":
                self.best = numbers["loss"]
                self.mode = "max"


net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.zeros(8).long()), 2)
Trainer(net, loader).train()
"""
TENSORS = {
    "nobody asks": "        return True",
    "entry by entry": "        self.net.rows = number > self.best\n        return True",
    "entries are picked": "        low = number < self.best\n        return number[low].any()",
}
NUMBERS = {
    "a decision": "        if number < self.best:\n            return True",
    "one of two": "        return self.mode == 'min' and number < self.best",
    "a name": "        less = number < self.best\n        return True if less else False",
}


@pytest.mark.parametrize("asks", TENSORS.values(), ids=TENSORS)
def test_what_may_be_a_tensor_is_kept(asks: str, tmp_path: Path) -> None:
    assert facts_of(PROGRAM.format(asks=asks), tmp_path).first_batches


@pytest.mark.parametrize("asks", NUMBERS.values(), ids=NUMBERS)
def test_the_best_so_far_is_one_number(asks: str, tmp_path: Path) -> None:
    assert not facts_of(PROGRAM.format(asks=asks), tmp_path).first_batches
