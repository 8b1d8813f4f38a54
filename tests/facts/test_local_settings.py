"""``debug = False`` at the top of a function is a setting: of ``if debug:`` both ways are read."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

def main():
    debug = False{again}
    if debug:
        writer = SummaryWriter("debug")
    else:
        writer = SummaryWriter("run")
    net = nn.Linear(4, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
    for epoch in range(3):
        for (x,) in loader:
            loss = net(x).mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        writer.add_scalar("epoch", epoch, epoch)

main()
"""


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize(("again", "guarded"), [("", 2), ("\n    debug = True", 1)])
def test_what_is_bound_once_may_be_otherwise(
    again: str, guarded: int, owned: bool, tmp_path: Path
) -> None:
    program = PROGRAM.format(again=again)
    if owned:  # by an object: `self.debug = False`
        program = re.sub(r"\bdebug\b(?! =|\")", "self.debug", program)
        program = re.sub(r"\bdebug =", "self.debug =", program)
        body = program[program.index("def main") : program.rindex("main()")]
        whole = "class Whole:\n" + textwrap.indent(body.replace("main()", "main(self)"), "    ")
        program = program.replace(body, whole + "\n").replace("\nmain()", "\nWhole().main()")
    (tmp_path / "train.py").write_text(program)
    outcome = migrate([tmp_path / "train.py"], Settings())
    (text,) = (c.after.decode() for c in outcome.changes if c.path == "train.py")
    assert text.count("else NullWriter()") == guarded
