"""Loaders are followed from where they are made to the loop that decides what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of, found, wanted

STEP = """
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
"""
NET = """
net = nn.Linear(4, 1)  #: home
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TRAIN = f"""
for epoch in range(3):  #: epoch
    for x, y in loader:  #: batches{STEP}"""

FLOWS = [
    pytest.param(
        "from data import make\nloader, other = make(8)\n"
        f"{NET}{TRAIN}    for x, y in other:\n        net(x)\n"
        "## data.py\n"
        "def make(size):\n    rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\n"
        "    first = DataLoader(rows, size)  #: training\n"
        "    second = DataLoader(rows, size)  #: evaluation\n    return first, second\n",
        id="tuple-from-a-factory-in-another-file",
    ),
    pytest.param(
        'import data\nloaders = data.make()\nloader = loaders["a"]\n'
        f'{NET}{TRAIN}    for x, y in loaders["b"]:\n        net(x)\n'
        "## data.py\n"
        "def make():\n    rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\n"
        "    return {\n"
        '        "a": DataLoader(rows, 2),  #: training\n'
        '        "b": DataLoader(rows, 2),  #: evaluation\n    }\n',
        id="dict-from-a-factory-in-another-file",
    ),
    pytest.param(
        "from data import Data\ndata = Data()\nloader = data.first\n"
        f"{NET}{TRAIN}    for x, y in data.second:\n        net(x)\n"
        "## data.py\n"
        "class Data:\n    def __init__(self):\n        self.first = self.make(True)\n"
        "        self.second = DataLoader(TensorDataset(torch.rand(8, 4)))  #: evaluation\n\n"
        "    def make(self, shuffle):\n"
        "        return DataLoader(TensorDataset(torch.rand(8, 4)), 2, shuffle)  #: training\n",
        id="attributes-of-an-object",
    ),
    pytest.param(
        "def make(train):\n    rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\n"
        "    return DataLoader(rows, 2, shuffle=train)  #: training evaluation\n"
        f"loader = make(True)\nother = make(False)\n{NET}{TRAIN}"
        "    for x, y in other:\n        net(x)\n",
        id="one-factory-with-a-flag",
    ),
    pytest.param(
        "rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\n"
        "test_loader = DataLoader(rows)  #: training\n"
        "train_loader = DataLoader(rows, shuffle=True)  #: evaluation\n"
        f"{NET}{TRAIN.replace('loader:', 'test_loader:')}"
        "    for x, y in train_loader:\n        net(x)\n",
        id="names-swapped",
    ),
    pytest.param(
        "class Model(Dataset):\n    pass\n\nmodel = Model()\n"
        "loader = DataLoader(model)  #: training\n"
        "optimizer = nn.Linear(4, 1)  #: home\n"
        "dataset = torch.optim.SGD(optimizer.parameters(), 0.1)\n"
        "for batch in range(3):  #: epoch\n"
        "    for epoch in loader:  #: batches\n"
        "        nn.functional.mse_loss(optimizer(epoch), epoch).backward()\n"
        "        dataset.step()\n",
        id="names-of-other-things",
    ),
    pytest.param(
        "rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\n"
        'loaders = {name: DataLoader(rows, 2) for name in ("a", "b")}  #: training evaluation\n'
        f"{NET}"
        "for epoch in range(3):  #: epoch\n"
        '    for name in ("a", "b"):\n'
        "        for x, y in loaders[name]:  #: batches\n"
        "            loss = nn.functional.mse_loss(net(x), y)\n"
        '            if name == "a":\n'
        "                loss.backward()\n                optimizer.step()\n",
        id="dict-comprehension-with-phases",
    ),
    pytest.param(
        "rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 1))\nloaders = {\n"
        '    "a": DataLoader(rows, 2),  #: training\n'
        '    "b": DataLoader(rows, 2),  #: evaluation\n}\n'
        f"{NET}"
        "for epoch in range(3):  #: epoch\n"
        '    for name in ["a", "b"]:\n'
        "        for x, y in loaders[name]:  #: batches\n"
        "            loss = nn.functional.mse_loss(net(x), y)\n"
        '            if name == "a":\n'
        "                loss.backward()\n                optimizer.step()\n",
        id="dict-with-phases",
    ),
    pytest.param(
        "sets = [TensorDataset(torch.rand(8, 4)), TensorDataset(torch.rand(8, 4))]\n"
        "loader, other = [DataLoader(s, 2) for s in sets]  #: training\n"
        f"{NET}{TRAIN}",
        id="list-comprehension",
    ),
    pytest.param(
        "make = lambda rows, size: DataLoader(rows, size)  #: training\n"
        f"loader = make(TensorDataset(torch.rand(8, 4)), 2)\n{NET}{TRAIN}",
        id="lambda",
    ),
    pytest.param(
        "from functools import partial\n"
        "make = partial(DataLoader, batch_size=2)\n"
        f"loader = make(TensorDataset(torch.rand(8, 4)))  #: training\n{NET}{TRAIN}",
        id="partial",
    ),
    pytest.param(
        f"from data import *\n{NET}{TRAIN}"
        "## data.py\n"
        "loader = DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n",
        id="star-import",
    ),
    pytest.param(
        "try:\n    import fast_loading\n    loader = fast_loading.make()\n"
        "except ImportError:\n"
        "    loader = DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n"
        f"{NET}{TRAIN}",
        id="try-except",
    ),
    pytest.param(
        "import sys\nrows = TensorDataset(torch.rand(8, 4))\n"
        "match sys.argv[1]:\n"
        '    case "big":\n        loader = DataLoader(rows, 8)  #: training\n'
        "    case _:\n        loader = DataLoader(rows, 2)  #: training\n"
        f"{NET}{TRAIN}",
        id="match",
    ),
    pytest.param(
        "import sys\nrows = TensorDataset(torch.rand(8, 4))\n"
        "loader = (\n    DataLoader(rows, 8)  #: training\n    if len(sys.argv) > 1\n"
        "    else DataLoader(rows, 2)  #: training\n)\n"
        f"{NET}{TRAIN}",
        id="conditional-expression",
    ),
    pytest.param(
        "class Data:\n    @property\n    def stream(self):\n"
        "        return DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n\n"
        "    @staticmethod\n    def held_back():\n"
        "        return DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: evaluation\n\n"
        "    @classmethod\n    def create(cls):\n        return cls()\n\n"
        "data = Data.create()\nloader, other = data.stream, Data.held_back()\n"
        f"{NET}{TRAIN}    for x, y in other:\n        net(x)\n",
        id="property-staticmethod-classmethod",
    ),
    pytest.param(
        "from dataclasses import dataclass\n\n@dataclass\nclass Feeds:\n    one: DataLoader\n"
        "    two: DataLoader\n\n"
        "rows = TensorDataset(torch.rand(8, 4))\n"
        "feeds = Feeds(\n    DataLoader(rows),  #: training\n"
        "    two=DataLoader(rows),  #: evaluation\n)\nloader = feeds.one\n"
        f"{NET}{TRAIN}    for x, y in feeds.two:\n        net(x)\n",
        id="dataclass",
    ),
    pytest.param(
        "from types import SimpleNamespace\nrows = TensorDataset(torch.rand(8, 4))\n"
        "feeds = SimpleNamespace(\n    one=DataLoader(rows),  #: training\n)\nloader = feeds.one\n"
        f"{NET}{TRAIN}",
        id="namespace",
    ),
    pytest.param(
        "class Repeating(DataLoader):\n    def __init__(self, *args, **kwargs):\n"
        "        super().__init__(*args, **kwargs)\n\n"
        "loader = Repeating(TensorDataset(torch.rand(8, 4)), batch_size=2)  #: training\n"
        f"{NET}{TRAIN}",
        id="subclass-of-the-loader",
    ),
    pytest.param(
        "options = dict(batch_size=2, shuffle=True)\n"
        "loader = DataLoader(TensorDataset(torch.rand(8, 4)), **options)  #: training\n"
        f"{NET}{TRAIN}",
        id="options-in-a-dict",
    ),
    pytest.param(
        "import torch.utils.data as tud\n"
        "loader = tud.DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n"
        f"{NET}{TRAIN}",
        id="module-alias",
    ),
    pytest.param(
        "loader = None\n\ndef prepare():\n    global loader\n"
        "    loader = DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n\n"
        f"prepare()\n{NET}{TRAIN}",
        id="global-set-in-a-function",
    ),
    pytest.param(
        "from pkg.run import start\nstart()\n"
        "## pkg/__init__.py\n"
        "## pkg/data.py\ndef get():\n"
        "    return DataLoader(TensorDataset(torch.rand(8, 4)), 2)  #: training\n"
        "## pkg/run.py\nfrom . import data\nfrom .data import get as load\n\ndef start():\n"
        "    loader = load()\n" + "".join(f"    {line}\n" for line in f"{NET}{TRAIN}".splitlines()),
        id="relative-imports-in-a-package",
    ),
    pytest.param(
        "from a import loader\n"
        f"{NET}{TRAIN}"
        "## a.py\nfrom b import make\nrows = TensorDataset(torch.rand(8, 4))\nloader = make()\n"
        "## b.py\nimport a\n\ndef make():\n    return DataLoader(a.rows, 2)  #: training\n",
        id="circular-imports",
    ),
    pytest.param(
        "loaders = []\nfor size in (2, 4):\n"
        "    loaders.append(DataLoader(TensorDataset(torch.rand(8, 4)), size))  #: training\n"
        f"{NET}"
        "for epoch in range(3):  #: epoch\n    for loader in loaders:\n"
        f"        for x, y in loader:  #: batches\n{STEP.replace('        ', '            ')}",
        id="appended-to-a-list",
    ),
]


@pytest.mark.parametrize("text", FLOWS)
def test_loaders_have_the_roles_that_their_loops_give_them(text: str, tmp_path: Path) -> None:
    assert found(facts_of(text, tmp_path)) == wanted(text)
