"""A model is wrapped where every way that trains it comes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of, found, wanted

PROGRAM = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


def load(net, path):
    net.load_state_dict(torch.load(path))


class Run:
    def __init__(self, device):
        self.device = device
        self.net = Net()  #: home
        self.data = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))

    def test(self):
        load(self.net, "net.pt")
        rows = DataLoader(self.data, 2)
        with torch.no_grad():
            print(sum(float(self.net(x).sum()) for x, _ in rows))

    def train(self):
        loader = DataLoader(self.data, 2)  #: training
        optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        for epoch in range(3):  #: epoch
            for x, y in loader:  #: batches
                optimizer.zero_grad()
                nn.functional.mse_loss(self.net(x), y).backward()
                optimizer.step()


import sys

run = Run(sys.argv[1])
if sys.argv[2] == "test":
    run.test()
else:
    run.train()
"""
FIRST = "        optimizer = torch.optim.SGD"
MOVED = [
    PROGRAM,
    PROGRAM.replace('== "test":', '== "test":\n    load(run.net, sys.argv[3])'),
    PROGRAM.replace("Net()  #: home", "Net()")
    .replace('        load(self.net, "net.pt")\n', "        self.net.to(self.device)\n")
    .replace(FIRST, f"        self.net.to(self.device)  #: home\n{FIRST}"),
    PROGRAM.replace("Net()  #: home", "Net()").replace(
        FIRST,
        "        print(self.net(torch.randn(2, 4)).shape)\n"
        f"        self.net.to(self.device)  #: home\n{FIRST}",
    ),
    PROGRAM.replace("Net()  #: home", "Net()")
    .replace("        self.layer = nn.Linear(4, 1)\n", "        self.layer = Encoder().layer\n")
    .replace(
        "class Net",
        "class Encoder(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(4, 1)\n\n\nclass Net",
        1,
    )
    .replace(
        FIRST,
        "        for p in self.net.layer.parameters():  #: home\n"
        f"            p.requires_grad = False\n{FIRST}",
    ),
    PROGRAM.replace("Net()  #: home", "Net()")
    .replace(FIRST, f"        self.net.begin(0.1)  #: home\n{FIRST}")
    .replace(
        "        self.layer = nn.Linear(4, 1)\n",
        "        self.layer = nn.Linear(4, 1)\n\n    def begin(self, std):\n"
        "        for name in self._modules:\n            draw(self._modules[name], std)\n",
    )
    .replace(
        "class Net", "def draw(part, std):\n    part.weight.data.normal_(0, std)\n\n\nclass Net", 1
    ),
    PROGRAM.replace("torch.load(path))\n", "torch.load(path))\n    return net\n").replace(
        '== "test":', '== "test":\n    run.net = load(run.net, sys.argv[3])'
    ),
]
# Two that a name holds in turn, in rounds of which nobody knows how many there are.
IN_TURN = """
    def both(self, x, times):
        for net in [self.net, self.other] * times:
            x = net(x)
        return x
"""
OTHER = "        self.other = Net()  #: home\n"
TWO = (
    PROGRAM.replace("    def test", f"{IN_TURN}\n    def test")
    .replace("#: home\n", f"#: home\n{OTHER}")
    .replace("SGD(self.net.parameters()", "SGD([*self.net.parameters(), *self.other.parameters()]")
    .replace("mse_loss(self.net(x), y)", "mse_loss(self.both(x, int(sys.argv[3])), y)")
)


# Resumed with an optimizer of its own, in a branch that a new run passes by.
RESUMED = PROGRAM.replace("Net()  #: home", "Net()").replace(
    FIRST,
    "        if sys.argv[3]:  #: home\n"
    "            load(self.net, sys.argv[3])\n"
    "            optimizer = torch.optim.Adam(self.net.parameters())\n"
    f"{FIRST}",
)


@pytest.mark.parametrize("text", [*MOVED, TWO, RESUMED])
def test_a_home_is_where_training_comes_by(text: str, tmp_path: Path) -> None:
    assert found(facts_of(text, tmp_path))["home"] == wanted(text)["home"]


def test_no_home_that_some_training_passes_by(tmp_path: Path) -> None:
    text = PROGRAM.replace("Net()  #: home", "Net()").replace(
        "    run.test()", "    run.net = run.net.cuda()\n    run.train()"
    )
    (model,) = facts_of(text, tmp_path).models
    assert model.home is None
