"""Models of which a forward may pass by some parameters, and those nearest to them that use all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of

TRAIN = """
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 4)), 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
"""
LISTS = """class Net(nn.Module):
    def __init__(self, deep=True):
        super().__init__()
        self.deep = deep
        self.first = nn.ModuleList()
        self.other = nn.ModuleList()
        for i in range(3):
            self.first.append(nn.Linear(4, 4))
            self.other.append(nn.Linear(4, 4))

    def forward(self, x, mask=None):
        skip = x
        for i in range(3):
            FIRST
            OTHER
        return skip


net = Net()
"""
ONE = """class Net(nn.Module):
    def __init__(self, deep=True, kind="a"):
        super().__init__()
        self.deep, self.kind = deep, kind
        self.body = nn.Linear(4, 4)
        self.side = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        FORWARD

    def more(self, x):
        return self.side(x)


net = Net()
"""
NAMED = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(2):
            setattr(self, f"layer{i}", nn.Linear(4, 4))

    def forward(self, x):
        return getattr(self, f"layer{len(x) % 2}")(x)


net = Net()
"""
CHOSEN = ONE.replace("def forward(", "def plain(").replace(
    "        self.body =",
    "        self.forward = self.plain if deep else self.more\n        self.body =",
)
INHERITED = """class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.body(x))


class Net(Base):
    def forward(self, x):
        FORWARD


net = Net()
"""
BORROWED = INHERITED.replace("class Net(Base):", "class Net(nn.Module):").replace(
    "    def forward(self, x):\n        FORWARD",
    "    def __init__(self):\n        super().__init__()\n        self.base = Base()\n\n"
    "    def forward(self, x):\n        FORWARD",
)


def lists(first: str, other: str) -> str:
    return LISTS.replace("FIRST", first).replace("OTHER", other)


def one(text: str, program: str = ONE) -> str:
    return program.replace("FORWARD", text.replace("\n", "\n        "))


SKIP, NEXT = "skip = skip + self.first[i](x)", "x = self.other[i](x)"
OPEN = {
    "one of two lists": (
        lists("x = self.first[i](x) if self.deep else self.other[i](x)", "skip = x"),
        "`first` is used under a condition only",
    ),
    "the last of a chain": (
        lists(SKIP, NEXT),
        "nothing reads what the last of `other` gives",
    ),
    "experts that no row may come to": (
        one("for rows, expert in zip(x, [0]):\n    pass\nreturn self.body(x)"),
        "`side` is never used",
    ),
    "a list that is gone over under a condition": (
        lists("skip = x = self.first[i](x)", "pass").replace(
            "        return skip",
            "        for layer in self.other:\n            if x.sum() > 0:\n"
            "                skip = layer(skip)\n        return skip",
        ),
        "`other` is used under a condition only",
    ),
    "one of a list": (
        lists("skip = x = self.first[i](x)", "skip = skip + self.other[0](x)"),
        "of `other` only parts are used",
    ),
    "an early end": (
        one('x = self.body(x)\nif self.kind == "a":\n    return x\nreturn self.side(x)'),
        "`side` is used under a condition only",
    ),
    "an argument that nobody knows": (
        one("x = self.body(x)\nif x.shape[0] > 1:\n    x = x + self.side(x)\nreturn x"),
        "`side` is used under a condition only",
    ),
    "another method's": (one("return self.body(x)"), "`side` is never used"),
    "a name that is made": (NAMED, "layers are looked up by their names"),
    "a forward that is chosen": (
        one("return self.body(x)", CHOSEN),
        "which `forward` runs is decided while the program runs",
    ),
    "what a base makes": (one("return self.body(x)", INHERITED), "`head` is never used"),
    "a part of a part": (
        one("return self.base.body(x)", BORROWED),
        "of `base` only parts are used",
    ),
    "what nothing reads": (
        one("extra = self.side(x)\nreturn self.body(x)"),
        "nothing reads what the last of `side` gives",
    ),
}
CLOSED = {
    "both lists": lists("x = self.first[i](x)", "skip = x = self.other[i](x)"),
    "the last of a chain, left out by its place": lists(
        SKIP, "if i < 2:\n                x = self.other[i](x)"
    ),
    "a condition that made it": one(
        "x = self.body(x)\nif self.deep:\n    x = self.side(x)\nreturn x"
    ).replace("        self.side =", "        if deep:\n            self.side ="),
    "both sides": one(
        "x = self.body(x)\nif self.deep:\n    return self.side(x) * 2\n"
        "else:\n    return self.side(x)"
    ),
    "one that ends the job": one(
        "if self.deep:\n    x = self.side(x)\nelse:\n    raise ValueError\nreturn self.body(x)"
    ),
    "while it trains": one(
        "x = self.body(x)\nif not self.training:\n    return x\nreturn self.side(x)"
    ),
    "an argument that is not given": one(
        "x = self.side(x)\nif mask is not None:\n    return x\nreturn self.body(x)"
    ),
    "a method of its own": one("return self.more(self.body(x))"),
    "what a base makes": one("return super().forward(x)", INHERITED),
    "all parts of a part": one("return self.base.head(self.base.body(x))", BORROWED),
    "all that there is": one("for one in self.children():\n    x = one(x)\nreturn x"),
}


@pytest.mark.parametrize("case", OPEN)
def test_a_part_that_a_forward_may_pass_by_is_named(case: str, tmp_path: Path) -> None:
    text, why = OPEN[case]
    (model,) = facts_of(text + TRAIN, tmp_path).models
    assert model.unused == why


@pytest.mark.parametrize("case", CLOSED)
def test_one_whose_parts_are_all_used_needs_nothing(case: str, tmp_path: Path) -> None:
    (model,) = facts_of(CLOSED[case] + TRAIN, tmp_path).models
    assert model.unused == ""
