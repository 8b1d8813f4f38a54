"""Findings as a check of a small project would give them."""

from __future__ import annotations

from pathlib import Path

from ddpify.checking.model import Checked, Named
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.source import Site, Span

MAIN = """\
import torch.distributed as dist

rank = dist.get_rank()
if rank == 0:
\tdist.all_reduce(total)
torch.save(
    model.state_dict(),
    "ü, 100%.pt",
)
"""
HANG = Finding(
    "DDP801",
    Site("main.py", Span(5, 1, 5, 23)),
    "rank 0 enters all_reduce alone: wrong numbers, or a hang",
    Severity.ERROR,
    advice="call it on all ranks",
    because=(
        (Site("main.py", Span(3, 7, 3, 22)), "the rank"),
        (Site("lib/a b.py", Span(1, 0, 1, 6)), "used"),
    ),
)
SAVE = Finding(
    "DDP601",
    Site("main.py", Span(6, 0, 9, 1)),
    "every rank writes 100%, a:b",
    Severity.WARNING,
    fix=(Edit(How.GATE, Site("main.py", Span(6, 0, 9, 1)), "rank == 0"),),
)
PRINT = Finding("DDP501", Site("lib/a b.py", Span(1, 0, 1, 6)), "every rank prints", Severity.NOTE)
RULES = {
    "DDP801": Named("collective-on-some-ranks", True),
    "DDP601": Named("save-on-every-rank", True),
    "DDP501": Named("console-on-every-rank", True),
}
ALL = Checked((PRINT, HANG, SAVE), RULES, files=3, applies=True)
NONE = Checked(files=3, applies=True)


def put(folder: Path) -> None:
    """The files that the findings are about."""
    (folder / "lib").mkdir()
    (folder / "main.py").write_text(MAIN)
    (folder / "lib" / "a b.py").write_text("print()\n")
