"""Methods of a trained model: when the wrapper may be given for ``self``, and when not.

A wrong "may" trains on local gradients, or asks the wrapper for what only the model has: each use
of ``self`` that is no call has a row.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from ddpify.rules.gradients import ddp403_bypass
from ddpify.rules.model import ddp303_inner_module
from tests.facts.marks import facts_of
from tests.projects import judged

PROGRAM = """import torch.nn.functional as F
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.also = self.plain
    def forward(self, x):
        return self.head(x)
    def plain(self, x, y):
        return F.cross_entropy(self(x), y)
{methods}
class Net(Base):
    pass
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
{before}
for x, y in DataLoader(rows, 2):
    loss = {call}
    loss.backward()
    optimizer.step()
"""
REFUSED = ["refused"]


def fixes(methods: str, call: str, folder: Path, before: str = "") -> list[str]:
    """What the rules put in place of what, and that a method is refused."""
    text = PROGRAM.format(methods=indent(methods, "    "), call=call, before=before)
    facts = facts_of(text, folder)
    found = judged(facts, [ddp403_bypass.RULE, ddp303_inner_module.RULE])
    refused = {"refused" for finding in found if not finding.fix}
    return [e.code.replace("{}", facts.text(e.site)) for f in found for e in f.fix] + sorted(
        refused
    )


METHODS = [
    pytest.param("", "net.plain(x, y)", ["Net", "net"], id="inherited"),
    pytest.param(
        "def loss(self, x, y):\n    return self.plain(x, y)",
        "net.loss(x, y)",
        ["type(unwrap(self))", "self", "Net", "net"],
        id="another-method",
    ),
    pytest.param(
        "def loss(self, out, y):\n    return F.cross_entropy(out, y)",
        "net.loss(net(x), y)",
        ["unwrap(net)"],
        id="nothing-of-self",
    ),
    pytest.param(
        "def loss(self, x, y):\n    return F.cross_entropy(self.forward(x), y)",
        "sum([net.loss(part, y) for part in (x, x)])",
        ["Net", "net"],
        id="forward",
    ),
    pytest.param(
        "def loss(self, x, y):\n    return F.cross_entropy(self.head(x), y)",
        "net.loss(x, y)",
        ['through_wrapper(net, "loss")'],
        id="a-part",
    ),
    pytest.param(
        "def loss(self, x, y):\n    return self(x).mean() + self.head.weight.norm()",
        "net.loss(x, y)",
        ['through_wrapper(net, "loss")'],
        id="a-weight",
    ),
    pytest.param(
        "def loss(self, x, y):\n    return F.cross_entropy(criterion(self, x), y)",
        "net.loss(x, y)",
        ['through_wrapper(net, "loss")'],
        id="handed-on",
    ),
    pytest.param(
        "def loss(self, x, y):\n    net = self\n    return F.cross_entropy(net(x), y)",
        "net.loss(x, y)",
        ['through_wrapper(net, "loss")'],
        id="under-another-name",
    ),
    pytest.param(
        "def loss(self, x, y):\n    return F.cross_entropy(super().forward(x) + self(x), y)",
        "net.loss(x, y)",
        ['through_wrapper(net, "loss")'],
        id="super",
    ),
    pytest.param(
        "@torch.enable_grad()\ndef loss(self, x, y):\n    return F.cross_entropy(self(x), y)",
        "net.loss(x, y)",
        REFUSED,
        id="decorated",
    ),
    pytest.param("", "net.also(x, y)", REFUSED, id="kept-in-an-attribute"),
    pytest.param(
        "def loss(self, x):\n    return self.head(x).norm()",
        "F.cross_entropy(net(x), y) + net.loss(x)",
        REFUSED,
        id="beside-a-forward",
    ),
    pytest.param(
        "",
        "F.cross_entropy(net(x), y) + net.head(x).norm()",
        REFUSED,
        id="a-layer-beside-a-forward",
    ),
]


@pytest.mark.parametrize(("methods", "call", "wanted"), METHODS)
def test_a_method_is_given_the_wrapper_where_it_only_calls_it(
    methods: str, call: str, wanted: list[str], tmp_path: Path
) -> None:
    found = fixes(methods, call, tmp_path)
    assert found == wanted if wanted != REFUSED else "refused" in found
    assert not (wanted == REFUSED and "Net" in found)


def test_of_an_argument_the_class_is_asked(tmp_path: Path) -> None:
    before = "def cost(model, x, y):\n    return model.plain(x, y)"
    assert fixes("", "cost(net, x, y)", tmp_path, before) == ["type(unwrap(model))", "model"]


def test_one_of_several_classes_is_asked_for(tmp_path: Path) -> None:
    other = "class Other(Base):\n    pass\nif len(rows) > 3:\n    net = Other()"
    before = f"{other}\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
    found = fixes("", "net.plain(x, y)", tmp_path, before)
    assert found[:2] == ["type(unwrap(net))", "net"]


AT_REST = [
    pytest.param("def save(self, to):\n    torch.save(self.state_dict(), to)", True, id="saves"),
    pytest.param(
        "name = 'n'\ndef keep(self, to):\n    self.name = to\n"
        "    torch.save(self.head.state_dict(), to)\n"
        "def save(self, to):\n    self.keep(to)",
        True,
        id="through-another",
    ),
    pytest.param(
        "def save(self, to):\n    torch.save(self.head.weight, to)", False, id="a-weight-is-used"
    ),
    pytest.param("def save(self, to):\n    torch.save(self, to)", False, id="handed-on"),
    pytest.param(
        "def save(self, to):\n    for part in self.children():\n        to = part(to)\n"
        "    torch.save(to, 'out')",
        False,
        id="layers-are-called",
    ),
    pytest.param(
        "def save(self, to):\n    torch.save(self.head(torch.ones(1, 4)), to)", False, id="a-pass"
    ),
]


@pytest.mark.parametrize(("methods", "read"), AT_REST)
def test_a_method_without_a_pass_is_read(methods: str, read: bool, tmp_path: Path) -> None:
    text = PROGRAM.format(methods=indent(methods, "    "), call="net.plain(x, y)", before="")
    facts = facts_of(f"{text}net.save('net.pt')\n", tmp_path)
    assert read is any(call.name == "torch.save" for call in facts.calls)
