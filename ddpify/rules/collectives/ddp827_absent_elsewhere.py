"""DDP827: what one rank alone has is used on all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from operator import itemgetter
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import IDENTITY, Origin
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.roots import wrong
from ddpify.site import Site

# Functions that fail with None as their first argument.
_TAKING: Final = frozenset(
    [f"builtins.{name}" for name in "len sum min max sorted list tuple set dict enumerate".split()]
    + [f"builtins.{name}" for name in "zip iter next float int abs round reversed".split()]
    + [f"torch.{name}" for name in "stack cat vstack hstack concat mean sum".split()]
    + [f"numpy.{name}" for name in "concatenate vstack hstack stack load".split()]
    + [f"os.path.{name}" for name in "join exists isfile isdir basename dirname".split()]
    + "builtins.open torch.load torch.jit.load pathlib.Path os.makedirs os.remove".split()
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per value that is None on a rank that uses it."""
    said = set()
    for _, value, rank, site, unset in sorted(_uses(run), key=itemgetter(0)):
        whose = (origin for origin in value.origins if origin.kind in IDENTITY)
        origin = unset or min(whose, key=lambda one: one.site)
        decorated = origin.what.endswith(words.RANK0_DECORATORS[0])  # DDP954 tells of it
        if origin.site not in said and not decorated:
            said.add(origin.site)
            what = "None" if unset is None else "not set"
            yield Finding(
                "DDP827",
                site,
                f"this is {what} on rank {rank}, which uses it, too: a crash",
                Severity.ERROR,
                advice="use it on the rank that has it alone, or broadcast it first",
                because=((origin.site, f"who has it: {origin.what}"),),
            )


def _uses(run: Run) -> Iterator[tuple[int, RankValue, int, Site, Origin | None]]:
    """When, what is None on which rank, and where: at the first use it crashes."""
    ends = (call.order for call in run.calls if (one := collective(call)) and wrong(one))
    ended = next(ends, inf)  # there the program has ended already
    for lacking in run.absent:
        known = lacking.order < ended
        if known and not _may_have_left(run, lacking.function, lacking.order, lacking.rank):
            yield lacking.order, lacking.value, lacking.rank, lacking.site, lacking.unset
    for call in run.calls:
        rank = _without(call) if call.order < ended else None
        if rank is not None and not _may_have_left(run, call.function, call.order, rank):
            yield call.order, call.args[0], rank, call.site, None


def _without(call: RankCall) -> int | None:
    """The rank that calls a function with the None that it has instead of something."""
    if call.name not in _TAKING or not call.args or call.swallows or not call.args[0].by_rank:
        return None
    given = call.args[0].atoms
    if (given[0] is None) is (given[1] is None):
        return None
    rank = 0 if given[0] is None else 1
    known = not any(guard.is_open(rank) for guard in call.conditions)
    return rank if known and call.ranks & (1 << rank) else None


def _may_have_left(run: Run, function: FunctionDefinition | None, order: int, rank: int) -> bool:
    """Whether something that is not known may have led the rank away from there before."""
    return any(
        left.order < order
        and left.ranks & (1 << rank)
        and any(guard.is_open(rank) for guard in left.guards)
        for left in run.exits_of.get(function, ())
    )


RULE = Rule(
    "DDP827",
    "absent-elsewhere",
    "What gather_object() collects, and what comm.reduce() and comm.gather() of mpi4py give, is on"
    " one rank alone. The others have None, and fail where they use it (measured: TypeError:"
    " 'NoneType' object is not iterable on rank 1), while the first waits for them in its next"
    " collective. The same is true of anything that only one rank makes.",
    "torch.distributed.gather_object and mpi4py.MPI.Comm.reduce documentation",
    lint=lint,
    bad=(
        on_ranks("""
            parts = [None] * world if rank == 0 else None
            dist.gather_object(float(value), parts, dst=0)
            print(rank, sum(parts))  # DDP827
            """),
        on_ranks("""
            parts = None
            if rank == 0:
                parts = [torch.zeros(1) for _ in range(world)]
            dist.gather(value, parts, dst=0)
            for part in parts:  # DDP827
                print(part)
            """),
        on_ranks("""
            if rank == 0:
                size = 4
            model = nn.Linear(size, 1)  # DDP827
            """),
    ),
    good=(
        on_ranks("""
            parts = [None] * world if rank == 0 else None
            dist.gather_object(float(value), parts, dst=0)
            if rank == 0:
                print(rank, sum(parts))
            """),
        on_ranks("""
            parts = None
            if rank == 0:
                parts = [torch.zeros(1) for _ in range(world)]
            dist.gather(value, parts, dst=0)
            for part in parts or ():
                print(part)
            """),
        on_ranks(
            "print(rank)",
            top="""
            import os

            if os.environ["RANK"] != "0":
                print = str
            print("begins")
            """,
        ),
        on_ranks(
            "print(join('logs', PLACE))",
            top="""
            import os
            from os.path import *

            if int(os.environ["RANK"]) == 0:
                join = "/".join
            PLACE = join("a", "b")
            """,
        ),
    ),
    fixes=False,
)
