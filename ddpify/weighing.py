"""How much a finding of ``ddpify check`` weighs: as its rule says, or a note.

A note is what would be wrong if something were so that was not proven: that a script is seen to
call the function which was read, that several processes run the program, that a large one was
understood. What was read of public repositories which nobody had seen (``benchmarks/
check_unseen.md``) says where that is so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ddpify.ranks.run import Run
from ddpify.ranks.single import runs_alone, trains_for_several
from ddpify.rules.base import Finding, Severity
from ddpify.source import Site

_AS_ONE: Final = (
    "starts this program as one process, and nothing that was seen starts it as several"
)
LARGE: Final = 20  # functions that a run comes to: of reports in larger ones more were false
# Rules whose warnings there were not false eight times in ten and more, in three repositories at
# least, of five that were read.
_TRIED: Final = frozenset(
    f"DDP{number}" for number in (106, 111, 204, 209, 217, 504, 601, 605, 606, 806, 951)
)
# Files that every rank writes: nearly all were right of programs that train, of the tools beside
# them half.
_WRITES: Final = frozenset(("DDP502", "DDP503", "DDP508"))


def is_proven(run: Run) -> bool:
    """Whether a script, or a framework, surely starts what was read, and on several ranks."""
    if run.assumed or runs_alone(run):
        return run.assumed
    return run.hook or run.opener is not None or (run.script and bool(run.frameworks))


def is_note(one: Finding) -> bool:
    """Whether a finding is advice only."""
    return one.severity is Severity.NOTE


def lowered(one: Finding) -> Finding:
    """The finding as a note."""
    return replace(one, severity=Severity.NOTE)


def as_one_process(one: Finding, line: Site) -> Finding:
    """What would happen if several processes ran a program that ``line`` starts as one."""
    return replace(lowered(one), way=((line, _AS_ONE), *one.way))


def is_shown(run: Run, one: Finding) -> bool:
    """Whether reports like this one are known to be right, in programs of this size."""
    if run.assumed or len(run.entered) <= LARGE:
        return True
    if one.rule in _WRITES:
        return run.once(trains_for_several)
    return one.rule in _TRIED and one.severity is Severity.WARNING
