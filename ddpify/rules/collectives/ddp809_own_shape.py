"""DDP809: the tensors that meet in a collective differ in size or type between the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.collective import exchange
from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.empty_sums import may_be_whole
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared import buffers
from ddpify.rules.shared.arms import meeting
from ddpify.rules.shared.blocking import pairs
from ddpify.rules.shared.extents import exceeds, extent, never
from ddpify.rules.shared.mpi_types import misnamed
from ddpify.rules.shared.picked_rows import gives_picked
from ddpify.rules.shared.rows import are_uneven
from ddpify.rules.shared.sides import of_objects, of_torch
from ddpify.rules.shared.tensors import dtype

# The parameter of each collective that takes the tensor that has to be alike on all ranks.
_SENT: Final = {
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "gather": "tensor",
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "Bcast": "buf",
    **dict.fromkeys(("Reduce", "Allreduce", "Gather", "Allgather"), "sendbuf"),
}
_OF_FRAMEWORKS: Final = {
    "accelerate.Accelerator.gather": "tensor",
    "accelerate.Accelerator.gather_for_metrics": "input_data",
    "accelerate.Accelerator.reduce": "tensor",
    "lightning.fabric.Fabric.all_gather": "data",
    "lightning.fabric.Fabric.all_reduce": "data",
}
_Given = tuple[RankValue, int]
_PAD, _TYPE = "pad to the longest first", "give the dtype"
_KEEPING: Final = frozenset(
    """cuda cpu to float double half bfloat16 int long bool contiguous detach clone squeeze
    flatten""".split()
)
_PICKING: Final = frozenset({"nonzero", "masked_select", "unique", "argwhere", "flatnonzero"})
_KEPT: Final = _PICKING | {"nms", "batched_nms"}  # what they give, as an index
_MASKS: Final = frozenset((name,) for name in "Eq NotEq Lt LtE Gt GtE".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per tensor of a size or a type of this rank's own."""
    for call in run.calls:
        value = _sent(call)
        told = _differs(value, call.ranks) if value is not None else None
        if value is not None and told is None and may_be_whole(run, value):
            told = "an integer where a rank has picked none: sum([]) is 0", _TYPE, Severity.WARNING
        if told is not None:
            yield _finding(call, *told)
        shared = exchange(call)
        unfit = buffers.wrong(shared) if shared is not None else None
        unfit = unfit or misnamed(call)
        if unfit is not None:
            yield Finding("DDP809", unfit.site, unfit.message, Severity.ERROR, advice=unfit.advice)
    for one, other in meeting(run):
        first, second = _sent(one.call), _sent(other.call)
        if first is not None and second is not None:
            yield from _unlike(other.call, (first, 0), (second, 1))
    yield from _received(run)


def _received(run: Run) -> Iterator[Finding]:
    """Messages that are received as something else than they were sent."""
    for sent, received in pairs(run):
        one, other = (_message(side.call) for side in (sent, received))
        if one is None or other is None:
            continue
        given, buffer = (one, sent.rank), (other, received.rank)
        fits = not exceeds(extent(*given), extent(*buffer))  # a longer buffer is filled in part
        yield from _unlike(received.call, given, buffer, fits)


def _message(call: RankCall) -> RankValue | None:
    """The tensor, or the buffer, of one side; a pickle has none."""
    if of_objects(call):
        return None
    if of_torch(call):
        return call.arg(0, "tensor")
    return None if call.method.islower() else call.arg(0, "buf")


def _unlike(call: RankCall, one: _Given, other: _Given, fits: bool = False) -> Iterator[Finding]:
    """Two tensors that meet, of different types or lengths."""
    kinds, first = {dtype(*one), dtype(*other)}, f"that of rank {one[1]}"
    if len(kinds) == 2 and None not in kinds:
        yield _finding(call, f"of another type than {first} ({_spoken(kinds)})", _TYPE)
    elif not fits and never(1, extent(*one), extent(*other)):
        yield _finding(call, f"of another length than {first}", "make both as long")


def _differs(value: RankValue, ranks: int) -> tuple[str, str, Severity] | tuple[str, str] | None:
    """In what the tensor is another one on each rank, and what helps; a rank that does not come
    here is asked at its own call."""
    if spread(value) and _own_size(value):
        return "as long as this rank's data make it", _PAD
    kinds = {dtype(value, rank) for rank in (0, 1)} if ranks == ALL else set()
    if len(kinds) == 2 and None not in kinds:
        return f"of another type on each rank ({_spoken(kinds)})", _TYPE
    if ranks == ALL and never(1, extent(value, 0), extent(value, 1)):
        return "of another size on each rank", _PAD
    uneven = are_uneven(value)
    if uneven is None:
        return "longer on one rank where the rows do not divide evenly", _PAD, Severity.WARNING
    return ("longer on one rank, for the rows do not divide evenly", _PAD) if uneven else None


def _spoken(kinds: set[str | None]) -> str:
    return " and ".join(sorted(filter(None, kinds)))


def _sent(call: RankCall) -> RankValue | None:
    """The tensor that has to be alike on all ranks, but for its numbers."""
    if call.name in _OF_FRAMEWORKS:
        return call.arg(0, _OF_FRAMEWORKS[call.name])
    shared, name = exchange(call), _SENT.get(call.method, "")
    return shared.given(name) if shared is not None and shared.whole else None


def _finding(
    call: RankCall, what: str, advice: str, severity: Severity = Severity.ERROR
) -> Finding:
    return Finding(
        "DDP809",
        call.site,
        f"the tensor is {what}: wrong numbers or a crash",
        severity,
        advice=f"{advice}, or use all_gather_object",
    )


def _own_size(value: RankValue) -> bool:
    """Whether rows were picked by their values, and nothing brings them to one length."""
    if _is_masked(value.atoms[0]):
        return True
    return bool(value.things) and all(
        thing.call is not None and thing.kind == "result" and _keeps_own_size(thing.call)
        for thing in value.things
    )


def _keeps_own_size(call: RankCall) -> bool:
    if call.name == "torch.cat" and call.args:
        return any(map(_own_size, call.args[0].items or ()))
    if call.method == "__call__" and call.receiver is not None:
        forwards = [t.cls.method("forward") for t in call.receiver.things if t.cls is not None]
        return any(one is not None and gives_picked(one) for one in forwards)
    kept = call.receiver if call.method in _KEEPING else None
    return call.method in _PICKING or (kept is not None and _own_size(kept))


def _is_masked(atom: object) -> bool:
    """``scores[scores > 2]``."""
    if not isinstance(atom, Symbol) or atom.parts[:1] != (ITEM,):
        return False
    index = atom.parts[2]
    if isinstance(index, Symbol) and index.key.partition("@")[0].rpartition(".")[2] in _KEPT:
        return True
    return isinstance(index, bool) or (isinstance(index, Symbol) and index.parts[:1] in _MASKS)


RULE = Rule(
    "DDP809",
    "shapes-may-differ",
    "A collective moves as many bytes as each rank's own tensor has. Rows that a mask, nonzero() or"
    " unique() leaves differ in number between ranks, so do those of rows[rank::world] and of a"
    " last rank that takes the rest, where they do not divide evenly; and torch.tensor(x) takes its"
    " type from x: measured, an abort on one rank, 1065353216 instead of 1 where a float met an"
    " integer, numbers that nobody has sent where lengths differed; float64 on rank 0 and float32"
    " on the other end in a broken connection, and a broadcast of three floats into int64 gave"
    " 4611686019509518336. Arrays of NumPy are float64 where nothing else is said. A message that"
    " is longer than the buffer aborts the receiver, integers received as floats are 1.4e-45;"
    " reduce_scatter_tensor() gives 1/N of what it takes, all_gather_into_tensor() N times that, or"
    " torch refuses; and what a peer sends in an all_to_all_single() is counted by that peer"
    " (measured: an abort where a rank gave its own counts for both). Pad to the longest, state the"
    " dtype, or send objects.",
    "pytorch#156627; ignite#1569; lightning#7773; BUGS C17",
    lint=lint,
    bad=(
        on_ranks("""
            scores = torch.arange(4.0) + rank
            mine = scores[scores > 2]
            parts = [torch.zeros_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)  # DDP809
            """),
        on_ranks("""
            count = torch.tensor(1.0 if rank == 0 else 2)
            dist.all_reduce(count)  # DDP809
            """),
        on_ranks("""
            weights = torch.ones(8)
            if rank == 0:
                weights = weights.double()
            part = weights * 2
            dist.all_reduce(part)  # DDP809
            """),
        on_ranks("""
            if rank == 0:
                ids = torch.tensor([4.0, 2.0])
                dist.broadcast(ids, src=0)
            else:
                ids = torch.zeros(2, dtype=torch.long)
                dist.broadcast(ids, src=0)  # DDP809
            """),
        on_ranks("""
            mine = torch.arange(21)[rank::world]
            parts = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)  # DDP809
            """),
        on_ranks("""
            rows = torch.ones(17, 3)
            share = rows.size(0) // world
            start = rank * share
            stop = rows.size(0) if rank == world - 1 else start + share
            mine = rows[start:stop] * 2
            parts = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)  # DDP809
            """),
    ),
    good=(
        on_ranks("""
            scores = torch.arange(4.0) + rank
            mine = scores[scores > 2]
            parts = [None] * world
            dist.all_gather_object(parts, mine)
            """),
        on_ranks("""
            scores = torch.arange(4.0) + rank
            total = scores[scores > 2].sum()
            dist.all_reduce(total)
            """),
        on_ranks("""
            rows = torch.ones(64, 3)
            mine = rows[rank * (64 // world) : (rank + 1) * (64 // world)].half().float()
            parts = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)
            total = torch.arange(21)[rank::world].sum()
            dist.all_reduce(total)
            """),
        on_ranks("""
            count = torch.tensor(1 if rank == 0 else 2, dtype=torch.float32)
            dist.all_reduce(count)
            """),
    ),
    fixes=False,
)
