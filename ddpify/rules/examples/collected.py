"""Evaluations that collect more than a sum: matrices of counts, objects, lists of predictions.

Each is ``SINGLE`` with another evaluation. ``FORMS`` can be shared out over ranks; ``NEAR`` look
much like them, and each rank has to see all samples.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.rules.base import Example
from ddpify.rules.examples import SINGLE

_HEAD, _, _REST = dict(SINGLE.files)["main.py"].partition("def accuracy(net, pairs):\n")
_TAIL = "def main():\n" + _REST.partition("def main():\n")[2]


def evaluating(code: str, before: str = "") -> Example:
    """``SINGLE`` where ``code``, with the loop's line left out, is what `accuracy` does."""
    start, loop, end = (part.strip("\n") for part in code.split("---\n"))
    lines = [
        *(["", *before.strip("\n").splitlines(), "", ""] if before else []),
        "def accuracy(net, pairs):",
        "    net.eval()",
        *start.splitlines(),
        "    with torch.no_grad():",
        "        for signal, label in pairs:",
        "            guess = net(signal.cuda()).argmax(1).cpu()",
        *loop.splitlines(),
        *end.splitlines(),
    ]
    text = _HEAD.rstrip("\n") + "\n\n\n" + "\n".join(lines).lstrip("\n") + "\n\n\n" + _TAIL
    return replace(SINGLE, files=(("main.py", text),))


_TABLE = """
class Table:
    def __init__(self, kinds):
        self.kinds = kinds
        self.cells = torch.zeros(kinds, kinds)

    def update(self, label, guess):
        known = label < self.kinds
        pairs = self.kinds * label[known] + guess[known]
        self.cells += torch.bincount(pairs, minlength=self.kinds**2).reshape(self.cells.shape)

    def share(self):
        return self.cells.diag().sum() / self.cells.sum()
"""

MATRIX = evaluating("""
    cells = torch.zeros(4, 4)
---
            for kind, guessed in zip(label, guess):
                cells[kind, guessed] += 1
---
    return cells.diag().sum() / cells.sum()
""")
OBJECT = evaluating(
    """
    table = Table(4)
---
            table.update(label, guess)
---
    return table.share()
""",
    _TABLE,
)
SAMPLES = evaluating("""
    guesses, labels = [], []
---
            guesses.extend(guess.tolist())
            for kind in label:
                labels.append(int(kind))
---
    return sum(a == b for a, b in zip(guesses, labels)) / len(labels)
""")
BATCHES = evaluating("""
    guesses, labels = [], []
---
            guesses.append(guess)
            labels.append(label)
---
    return (torch.cat(guesses) == torch.cat(labels)).float().mean()
""")
FORMS = (MATRIX, OBJECT, SAMPLES, BATCHES)

NEAR = (
    evaluating("""
    guesses = []
---
            if guess[0] == 3:
                guesses.append(guess)
---
    return torch.cat(guesses).float().mean()
"""),
    evaluating(
        """
---
            seen.append(guess)
---
    return torch.cat(seen).float().mean()
""",
        "seen = []",
    ),
    evaluating("""
    means = []
---
            means.append((guess[label > 0] == label[label > 0]).float().mean())
---
    return sum(means) / len(means)
"""),
    evaluating("""
    cells, before = torch.zeros(4, 4), 0
---
            for guessed in guess:
                cells[before, guessed] += 1
                before = guessed
---
    return cells.diag().sum() / cells.sum()
"""),
)
