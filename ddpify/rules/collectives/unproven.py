"""What is not proven of ranks that part.

Read by people on 60 repositories, a decision by a value that came from a file that the way to the
decision does not pass was right 1 time in 57, one by a value from the same files 9 times in 21: too
much lies between, such as a configuration of which one entry is each process's own.
"""

from __future__ import annotations

from itertools import dropwhile

from ddpify.ranks.model import RankGuard
from ddpify.ranks.origins import CLOCK, DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Mismatch

_OF_RANKS = (
    *("dist", "rank", "world", "parallel", "process", "multi", "ddp", "fsdp"),
    *("sync", "gather", "reduc", "master", "main", "gpu"),
)


def is_far(run: Run, one: Mismatch, guard: RankGuard) -> bool:
    """Whether what differs comes from a file that the way to the condition does not pass, and not
    from a function that the file of the condition calls."""
    own = [origin.site for origin in guard.test.origins if origin.kind in (DATA, CLOCK, RANDOM)]
    near = {guard.site.path, *(call.site.path for call in one.event.stack)}
    if not own or any(site.path in near for site in own):
        return False
    asked = {c.target for c in run.calls if c.target and c.site.path == guard.site.path}
    return not any(site.within(function.site) for function in asked for site in own)


def is_conditional(one: Mismatch, guard: RankGuard) -> bool:
    """Whether a helper that is called under the condition communicates only where something else
    holds that is not known, and is not about the ranks: ``if self.training: all_gather(…)``."""
    below = dropwhile(lambda c: all(g.node is not guard.node for g in c.guards), one.event.stack)
    first = next(below, None)
    if first is None:
        return False
    inner = one.event.guards[len(first.guards) :]
    rank = (one.ranks & -one.ranks).bit_length() - 1
    return any(g.is_open(rank) and not _says_ranks(g.text) for g in inner)


def _says_ranks(text: str) -> bool:
    return any(word in text.lower() for word in _OF_RANKS)
