"""Numbers of a batch that are kept where nothing puts them together later, to be shown then."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit


def kept(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per place where such a number is kept: that of all samples is."""
    for site, how in facts.kept:
        yield Finding(
            "DDP702",
            site,
            "what is kept here would be of one rank's samples, to show it or to decide from it",
            Severity.WARNING,
            (edit(facts, How.REPLACE, site, f"{how}({{}})"),),
        )


# An object that adds up what it is given in a table of a library's.
TRACKER = (
    (
        "def accuracy",
        "class Tracker:\n    def __init__(self):\n"
        '        self.table = pandas.DataFrame(0.0, ["loss"], ["total", "times"])\n\n'
        "    def update(self, name, value):\n"
        '        self.table.loc[name, "total"] += value\n'
        '        self.table.loc[name, "times"] += 1\n\n\ndef accuracy',
    ),
    ("import torch\n", "import pandas\nimport torch\n"),
)
# A writer of the project's own, of which other ranks have a stand-in.
BOARD = (
    (
        "def accuracy",
        "class Board(SummaryWriter):\n    def training(self, loss, step):\n"
        '        self.add_scalar("loss", loss, step)\n\n\ndef accuracy',
    ),
    ("import nn\n", "import nn\nfrom torch.utils.tensorboard import SummaryWriter\n"),
    ("    for round_", '    board = Board("runs")\n    for round_'),
    (
        "adam.step()\n",
        "adam.step()\n            board.training(objective.item(), 1)  # DDP702\n",
    ),
)
TRACKED = (
    ("    for round_", "    tracker = Tracker()\n    for round_"),
    (
        "adam.step()\n",
        'adam.step()\n            tracker.update("loss", objective.item())  # DDP702\n',
    ),
)
# Numbers of which ranks have unlike weights, or that are not added up.
_ZEROS = "        net.train()\n"
_STEP = "            adam.step()\n"
WEIGHED = (
    (
        (_ZEROS, f"{_ZEROS}        odd = words = 0\n"),
        (
            _STEP,
            f"{_STEP}            some = (label > 0).sum().item()\n"
            "            odd += objective.item() * some  # DDP702\n            words += some\n",
        ),
        ('        print("round"', '        print(odd / words)\n        print("round"'),
    ),
    (
        (_ZEROS, f"{_ZEROS}        odd = 1.0\n"),
        (_STEP, f"{_STEP}            odd *= objective.item()  # DDP702\n"),
        ('        print("round"', '        print(odd)\n        print("round"'),
    ),
)
