"""DDP825: the ranks call one collective with arguments that have to be the same, and are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import ALL, RANK0, RANK1, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import differs
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.site import Site

_RANKS: Final = ("src", "dst", "group_src", "group_dst")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per root, or operation, that is another one on another rank."""
    for call in run.calls:
        shared = collective(call)
        if shared is None or shared.group is not None or call.ranks != ALL or call.star:
            continue
        for name in shared.parameters:
            value = shared.given(name)
            if value is None or not (_is_other(value, name)):
                continue
            yield Finding(
                "DDP825",
                call.site,
                f"`{name}` of this {call.method}() is another one on each rank: wrong numbers or a"
                " hang",
                Severity.ERROR,
                advice=f"give all ranks the same `{name}`",
                because=_first(value),
            )


def _is_other(value: RankValue, name: str) -> bool:
    if name in _RANKS:
        return value.known and differs(value)
    return name == "op" and _operations(value, RANK0) != _operations(value, RANK1)


def _operations(value: RankValue, rank: int) -> set[str]:
    """What a rank may ask for."""
    prefix = f"{words.DIST}ReduceOp."
    held = (thing for thing in value.things if value.ranks_of(thing) & rank)
    return {thing.name for thing in held if thing.name.startswith(prefix)}


def _first(value: RankValue) -> tuple[tuple[Site, str], ...]:
    """Where the rank comes from."""
    origin = min(value.origins, key=lambda one: one.site, default=None)
    return ((origin.site, origin.what),) if origin is not None else ()


RULE = Rule(
    "DDP825",
    "arguments-of-each-rank",
    "`src` and `dst` name one rank, the same on all ranks, and so is the operation of a reduction."
    " With `src=dist.get_rank()` each rank sends and nobody receives: all wait for the time limit."
    " With MAX on one rank and SUM on the other, without an error, each makes half of the entries:"
    " of 1,000 both ranks got 500 maxima and 500 sums (measured with gloo).",
    "torch.distributed.broadcast documentation; MPI-CorrBench, parameter matching",
    lint=lint,
    bad=(
        on_ranks("""
            dist.broadcast(value, src=rank)  # DDP825
            print(rank, value)
            """),
        on_ranks("""
            operation = dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM
            dist.all_reduce(value, op=operation)  # DDP825
            """),
    ),
    good=(
        on_ranks("""
            for source in range(world):
                dist.broadcast(value, src=source)
            print(rank, value)
            """),
        on_ranks("""
            operation = dist.ReduceOp.MAX if world > 4 else dist.ReduceOp.SUM
            dist.all_reduce(value, op=operation)
            """),
    ),
)
