"""Evaluations that add up what whole batches give: means over the targets that count, batch means.

``DEALT`` as one process runs them; a share of single samples would give another number, every N-th
batch gives the same. ``NEAR`` look much like them, and each rank has to see all samples.
"""

from __future__ import annotations

from ddpify.rules.base import Example
from ddpify.rules.examples import PROJECT, changed
from ddpify.rules.examples.collected import evaluating

PICKED = evaluating(
    """
    share, seen = Average(), 0
---
            known = label.cpu() < 3
            share.update((guess[known] == label[known]).float().mean().item(), len(label))
---
    return share.avg
""",
    """
class Average:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)
""",
)
BY_BATCHES = evaluating("""
    right = 0.0
---
            right += (guess == label).float().mean().item()
---
    return right / len(pairs)
""")
FIRST = changed(
    BY_BATCHES,
    ("    net = nn.Sequential", "    shown, kinds = next(iter(holdout))\n    net = nn.Sequential"),
    ("    torch.save", "    print(net(shown.cuda()).argmax(1).cpu() == kinds)\n    torch.save"),
)
DEALT = (PICKED, BY_BATCHES, FIRST)

_LOADER = "DataLoader(TensorDataset(signals[800:], labels[800:]), 100)"


def _with(option: str) -> Example:
    return changed(PICKED, (_LOADER, f"{_LOADER[:-1]}, {option})"))


NEAR = (
    _with("shuffle=True"),
    _with("drop_last=True"),
    _with("batch_sampler=None, collate_fn=None, sampler=list(range(200))"),
    changed(PICKED, ("        share.update", "        print(share.avg)\n            share.update")),
    changed(BY_BATCHES, ("right += (", "right = 0.9 * right + (")),
    changed(BY_BATCHES, ("len(pairs)", "len(list(pairs))")),
    changed(FIRST, ("next(iter(holdout))", "list(holdout)[0]")),
)

# As ranks run it.
TAKEN = changed(
    PROJECT,
    ("sampler, evaluation_share", "sampler, evaluation_sampler"),
    ("evaluation_share(unseen)", "evaluation_sampler(unseen, 100)"),
    ("        hits += (guess == kind.to(place)).sum().item()\n", ""),
    (
        "        seen += kind.size(0)\n",
        "        hits += (guess == kind.to(place)).float().mean()\n",
    ),
    ("    hits = seen = 0\n", "    hits = 0\n"),
    ("    hits, seen = reduce_sum(hits, seen)\n", "    hits = reduce_sum(hits)\n"),
    ("    return hits / seen\n", "    return hits / len(stream)\n"),
    (
        "    brain = Classifier().to(place)\n",
        "    brain = Classifier().to(place)\n    drawn, _ = next(iter(hold))\n"
        "    if is_main_process():\n        print(drawn.shape)\n",
    ),
)
HANDED_ON = changed(
    TAKEN,
    ("next(iter(hold))", "broadcast(next(iter(hold), None))"),
    ("import distributed_session,", "import broadcast, distributed_session,"),
)
