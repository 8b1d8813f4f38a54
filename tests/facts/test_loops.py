"""The loops that train are found by what happens in them, wherever their parts stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of, found, wanted

HEAD = """loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)  #: training
net = nn.Linear(4, 1)  #: home
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
BESIDE = "other = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)  #: training\n"


def step(indent: int, x: str = "x", y: str = "y") -> str:
    lines = f"nn.functional.mse_loss(net({x}), {y}).backward()\noptimizer.step()\n"
    return "".join(f"{' ' * indent}{line}\n" for line in lines.splitlines())


FLOWS = [
    pytest.param(
        f"{HEAD}epoch = 0\nwhile epoch < 3:  #: epoch\n    for x, y in loader:  #: batches\n"
        f"{step(8)}    epoch += 1\n",
        id="while-epochs",
    ),
    pytest.param(
        f"{HEAD}for fold in (1, 2):\n    for epoch in range(3):  #: epoch\n"
        f"        for x, y in loader:  #: batches\n{step(12)}",
        id="folds-around-epochs",
    ),
    pytest.param(
        "from tqdm import tqdm, trange\n"
        f"{HEAD}for epoch in trange(3):  #: epoch\n"
        "    for i, (x, y) in enumerate(tqdm(loader, total=4)):  #: batches\n"
        f"{step(8)}",
        id="progress-bars",
    ),
    pytest.param(
        "from itertools import islice\n"
        f"{HEAD}for epoch in range(3):  #: epoch\n"
        f"    for x, y in islice(loader, 2):  #: batches\n{step(8)}",
        id="islice",
    ),
    pytest.param(
        f"{HEAD}for epoch in range(3):  #: epoch\n    for batch in loader:  #: batches\n"
        f"        x, y = [part.cuda() for part in batch]\n{step(8)}",
        id="batch-unpacked-in-a-comprehension",
    ),
    pytest.param(
        f"{HEAD}batches = iter(loader)\nfor number in range(100):  #: batches\n    try:\n"
        "        x, y = next(batches)\n    except StopIteration:\n        batches = iter(loader)\n"
        f"        x, y = next(batches)\n{step(4)}",
        id="iterations-instead-of-epochs",
    ),
    pytest.param(
        "def for_ever(loader):\n    while True:\n        for batch in loader:\n"
        "            yield batch\n\n"
        f"{HEAD}for x, y in for_ever(loader):  #: batches\n{step(4)}",
        id="generator",
    ),
    pytest.param(
        f"{HEAD}def once(epoch, x, y):\n{step(4)}\n"
        "def epoch_of(number):\n    for x, y in loader:  #: batches\n        once(number, x, y)\n\n"
        "for number in range(3):  #: epoch\n    epoch_of(number)\n",
        id="three-functions",
    ),
    pytest.param(
        f"from engine import Engine\n{HEAD}"
        "def update(engine, batch):\n    x, y = batch\n"
        f"{step(4)}\nEngine(update).run(loader, 3)\n"
        "## engine.py\nclass Engine:\n    def __init__(self, update):\n"
        "        self.update = update\n\n    def run(self, data, most):\n"
        "        for epoch in range(most):  #: epoch\n            for batch in data:  #: batches\n"
        "                self.update(self, batch)\n",
        id="callback-in-another-file",
    ),
    pytest.param(
        f"{HEAD}import functools\n"
        "def timed(function):\n    @functools.wraps(function)\n"
        "    def inner(*args, **kwargs):\n        return function(*args, **kwargs)\n"
        "    return inner\n\n"
        f"@timed\ndef train(data):\n    for x, y in data:  #: batches\n{step(8)}\n"
        "for epoch in range(3):  #: epoch\n    train(data=loader)\n",
        id="decorated-function",
    ),
    pytest.param(
        f"{HEAD}def train(left):\n    for x, y in loader:  #: batches\n{step(8)}"
        "    if left:\n        train(left - 1)\n\ntrain(3)\n",
        id="recursion",
    ),
    pytest.param(
        f"{HEAD}class Trainer:\n    def __init__(self, **parts):\n"
        "        self.__dict__.update(parts)\n\n    def __call__(self):\n"
        "        for epoch in range(3):  #: epoch\n            self.one()\n\n"
        "    def one(self):\n        for x, y in self.data:  #: batches\n"
        f"{step(12)}\nTrainer(data=loader)()\n",
        id="attributes-from-keywords",
    ),
    pytest.param(
        f"{HEAD}scaler = torch.amp.GradScaler()\nfor epoch in range(3):  #: epoch\n"
        "    for x, y in loader:  #: batches\n        with torch.autocast('cuda'):\n"
        "            loss = nn.functional.mse_loss(net(x), y)\n"
        "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n"
        "        scaler.update()\n",
        id="scaler",
    ),
    pytest.param(
        f"{HEAD}def closure():\n    loss = nn.functional.mse_loss(net(x), y)\n"
        "    loss.backward()\n    return loss\n\n"
        "for epoch in range(3):  #: epoch\n    for x, y in loader:  #: batches\n"
        "        optimizer.step(closure)\n",
        id="closure-given-to-step",
    ),
    pytest.param(
        f"{HEAD}if __name__ == '__main__':\n    for epoch in range(3):  #: epoch\n"
        f"        for x, y in loader:  #: batches\n{step(12)}",
        id="under-the-main-guard",
    ),
    pytest.param(
        f"{HEAD}try:\n    for epoch in range(3):  #: epoch\n"
        f"        for x, y in loader:  #: batches\n{step(12)}"
        "except KeyboardInterrupt:\n    pass\n",
        id="until-interrupted",
    ),
    pytest.param(
        f"{HEAD}for epoch in range(3):  #: epoch\n    batches, i = iter(loader), 0\n"
        "    while i < len(loader):\n        for _ in range(2):  #: batches\n"
        f"            x, y = next(batches)\n            i += 1\n{step(12)}",
        id="some-batches-of-an-epoch-at-a-time",
    ),
    pytest.param(
        f"{HEAD}{BESIDE}for epoch in range(3):  #: epoch\n    more = iter(other)\n"
        f"    for x, y in loader:  #: batches\n        x = x + next(more)[0]\n{step(8)}",
        id="batches-taken-beside-those-of-the-loop",
    ),
    pytest.param(
        f"{HEAD}{BESIDE}first, second = enumerate(loader), enumerate(other)\n"
        f"for number in range(100):  #: batches\n    _, (x, y) = first.__next__()\n"
        f"    nn.functional.mse_loss(net(x), y).backward()\n"
        f"    _, (x, y) = second.__next__()\n{step(4)}",
        id="a-backward-for-each-loader",
    ),
]


@pytest.mark.parametrize("text", FLOWS)
def test_the_loops_of_training_are_found(text: str, tmp_path: Path) -> None:
    assert found(facts_of(text, tmp_path)) == wanted(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            f"{HEAD}for x, y in loader:\n    net(x)\n".replace("  #: training", ""),
            id="only-evaluates",
        ),
        pytest.param(
            f"{HEAD}x, y = next(iter(loader))\n{step(0)}".replace("  #: training", ""),
            id="one-step-without-a-loop",
        ),
        pytest.param(
            "class Line:\n    def backward(self):\n        pass\n\n"
            "for x in range(3):\n    Line().backward()\n",
            id="a-method-of-that-name",
        ),
    ],
)
def test_what_does_not_train_is_no_training_loop(text: str, tmp_path: Path) -> None:
    assert facts_of(text, tmp_path).training == ()
