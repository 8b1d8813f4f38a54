"""DDP825: the ranks call one collective with arguments that have to be the same, and are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from ddpify.ranks import sizes, words
from ddpify.ranks.collective import Collective, collective, exchange
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.origins import CLOCK, DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.values import differs, spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared import groups, roots
from ddpify.rules.shared.arms import group_of, meeting
from ddpify.rules.shared.complaints import Complaint
from ddpify.rules.shared.crossed import crossed
from ddpify.rules.shared.own_numbers import own_reasons
from ddpify.rules.shared.turned import turned
from ddpify.rules.shared.unlike_wrappers import unlike
from ddpify.site import Site

_RANKS: Final = ("src", "dst", "group_src", "group_dst", "root")
# The root that a call has which names none; broadcast() and reduce() have to name it.
_FIRST: Final = frozenset("scatter gather gather_object scatter_object_list".split())
_EXCHANGED: Final = ("tensor", "buf")  # what a collective fills in on each rank
_OPERATIONS: Final = (f"{words.DIST}ReduceOp.", "mpi4py.MPI.")


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per argument that does not fit those of the other ranks."""
    yield from _in_arms(run)
    yield from _swapped(run)
    for told in (*unlike(run), *groups.out_of_step(run)):
        yield _told(told)
    for call in run.calls:
        shared = exchange(call)
        if shared is None or call.star:
            continue
        apart = any(guard.test.by_rank for guard in call.conditions)  # `if turn == rank`
        if shared.whole and call.ranks == ALL and not apart:
            yield from _others(shared)
        if collective(call) is None:
            few = roots.fixed(shared)
            if few is not None:
                yield Finding("DDP825", few.site, few.message, Severity.WARNING, advice=few.advice)
            continue
        wrong = roots.wrong(shared) if shared.group is None else groups.wrong(shared)
        wrong = wrong or groups.other_members(call)
        if wrong is not None:
            yield _told(wrong)


def _told(one: Complaint) -> Finding:
    return Finding("DDP825", one.site, one.message, Severity.ERROR, (), one.advice, one.because)


def _in_arms(run: Run) -> Iterator[Finding]:
    """The same, where each rank has a call of its own: ``if rank == 0: … else: …``."""
    in_turn = any(True for _ in turned(run))  # DDP828 speaks of that
    for one, other in meeting(run):
        if one.call.star or other.call.star:
            continue
        if not in_turn and group_of(one) != group_of(other):
            yield _finding(other, "group", ((one.call.site, "rank 0's"),))
            continue
        if one.call.method == "new_group" and groups.others(one.call, other.call):
            yield _finding(other, "ranks", ((one.call.site, "rank 0's"),))
        for name in one.parameters:
            kind = _root if name in _RANKS else _operation if name == "op" else None
            first, second = (kind(one, name, 0), kind(other, name, 1)) if kind else (None, None)
            if None not in (first, second) and first != second:
                yield _finding(other, name, ((one.call.site, f"rank 0's, with {first}"),))


def _swapped(run: Run) -> Iterator[Finding]:
    """``broadcast(mean); broadcast(std)`` on rank 0, and the other way round on the others."""
    given = [
        ((one.call, one.node(one.filled)), (other.call, other.node(other.filled)))
        for one, other in meeting(run)
        if one.filled in _EXCHANGED
    ]
    for one, first, other, second in islice(crossed(given), 1):
        yield Finding(
            "DDP825",
            other.site,
            f"`{second}` meets `{first}` of rank 0 in this {other.method}(), and the other way"
            " round: wrong numbers",
            Severity.ERROR,
            advice="exchange them in one order on all ranks",
            because=((one.site, f"rank 0 gives `{first}` here"),),
        )


def _root(shared: Collective, name: str, rank: int) -> Any:
    """The root that a rank names; None if that is not sure."""
    value = shared.given(name)
    if value is None:
        mine = name == "root" or (shared.call.method in _FIRST and not name.startswith("group_"))
        return 0 if mine and shared.given(f"group_{name}") is None else None
    atom = sizes.with_two(value.atoms[rank])
    return atom if isinstance(atom, int) else None


def _operation(shared: Collective, name: str, rank: int) -> str | None:
    """The operation that a rank asks for; None if it may be one of several."""
    value = shared.given(name)
    if value is None:
        return "SUM"
    found = _operations(value, rank)
    return found.pop() if len(found) == 1 else None


def _others(shared: Collective) -> Iterator[Finding]:
    """The root, or the operation, is another one on another rank."""
    for name in shared.parameters:
        value = shared.given(name)
        if value is None or not (_is_other(value, name) or _is_found_alone(shared, value, name)):
            continue
        yield _finding(shared, name, _first(value))


def _finding(shared: Collective, name: str, because: tuple[tuple[Site, str], ...]) -> Finding:
    return Finding(
        "DDP825",
        shared.call.site,
        f"`{name}` of this {shared.call.method}() is another one on each rank: wrong numbers or a"
        " hang",
        Severity.ERROR,
        advice=f"give all ranks the same `{name}`",
        because=because,
    )


def _is_other(value: RankValue, name: str) -> bool:
    if name in _RANKS:
        return value.known and differs(value)
    return name == "op" and _operations(value, 0) != _operations(value, 1)


def _is_found_alone(shared: Collective, value: RankValue, name: str) -> bool:
    """Whether each rank names the root by what it alone has: its own scores, its own draw."""
    if name not in _RANKS or shared.group is not None or value.known:
        return False
    whole = (loop.over for loop in shared.call.loops if loop.over is not None)
    turned = {origin for over in whole for origin in spread(over)}  # see DDP828
    return any(one not in turned for one in own_reasons(value, (DATA, RANDOM, CLOCK)))


def _operations(value: RankValue, rank: int) -> set[str]:
    """What a rank may ask for."""
    names = (thing.name for thing in value.things_on(rank))
    return {name.rpartition(".")[2] for name in names if name.startswith(_OPERATIONS)}


def _first(value: RankValue) -> tuple[tuple[Site, str], ...]:
    """Where the rank comes from."""
    origin = min(value.origins, key=lambda one: one.site, default=None)
    return ((origin.site, origin.what),) if origin is not None else ()


RULE = Rule(
    "DDP825",
    "arguments-of-each-rank",
    "`src` and `dst` name one rank, the same on all ranks, and so is the operation of a reduction."
    " With `src=dist.get_rank()` each rank sends and nobody receives: all wait for the time limit."
    " So it is where each finds the best rank in scores that it has not shared."
    " With MAX on one rank and SUM on the other, without an error, each makes half of the entries:"
    " of 1,000 both ranks got 500 maxima and 500 sums (measured with gloo). A list to gather into,"
    " or to scatter, is given by that rank alone, with an element for each rank: torch raises"
    " ValueError where another gives one, RuntimeError where it has another length. What is left"
    " out counts, too: SUM, and rank 0. The n-th call of one rank meets the n-th of the other,"
    " whatever its variable is called: broadcast in another order, weight and bias are swapped. All"
    " members name one group: a group on some ranks and that of all on the others is a hang"
    " (measured); and `src` is a number among all ranks (`Global rank 0 is not part of group`). A"
    " group is made by all ranks with the same members. So it is with wrappers: a hook that halves"
    " the numbers on one rank, or a map of unused parameters that one sends, is an abort or a"
    " timeout (measured).",
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
        on_ranks("""
            if rank == 0:
                dist.all_reduce(value, op=dist.ReduceOp.MAX)
            else:
                dist.all_reduce(value, op=dist.ReduceOp.SUM)  # DDP825
            """),
        on_ranks("""
            parts = None
            if rank == world - 1:
                parts = [torch.empty_like(value) for _ in range(world)]
            dist.gather(value, parts, dst=0)  # DDP825
            """),
        on_ranks("""
            parts = [value * i for i in range(1, world)] if rank == 0 else None
            dist.scatter(value, parts, src=0)  # DDP825
            """),
        on_ranks("""
            even = dist.new_group(list(range(0, world, 2)))
            group = even if rank % 2 == 0 else None
            dist.all_reduce(value, group=group)  # DDP825
            """),
        on_ranks("""
            low = dist.new_group(list(range(world // 2)))
            high = dist.new_group(list(range(world // 2, world)))
            if rank < world // 2:
                dist.broadcast(value, src=0, group=low)
            else:
                dist.broadcast(value, src=0, group=high)  # DDP825
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
        on_ranks("""
            parts = [torch.empty_like(value) for _ in range(world)] if rank == 0 else None
            dist.gather(value, parts, dst=0)
            dist.scatter(value, [part * 2 for part in parts] if rank == 0 else None, src=0)
            """),
        on_ranks("""
            parts = []
            if rank == 0:
                parts = [torch.zeros(1)]
                parts += [value * i for i in range(1, world)]
            dist.scatter(value, parts, src=0)
            """),
        on_ranks("""
            half = world // 2
            low, high = (dist.new_group(list(range(a, b))) for a, b in ((0, half), (half, world)))
            group, root = (low, 0) if rank < half else (high, half)
            dist.broadcast(value, src=root, group=group)
            """),
    ),
    fixes=False,
)
