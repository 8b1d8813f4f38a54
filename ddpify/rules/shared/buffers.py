"""Outputs of a collective that are too long or too short for what the ranks give."""

from __future__ import annotations

from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import Collective
from ddpify.ranks.inflight import array_of
from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import DATA, RANDOM
from ddpify.ranks.other_libraries import MPI
from ddpify.rules.shared.complaints import Complaint
from ddpify.rules.shared.extents import Extent, exceeds, extent, never
from ddpify.rules.shared.tensors import dtype

# What is filled in, what is given, and which of both is so many times as long: by the number of
# processes, or (0) neither.
_PAIRS: Final = {
    "reduce_scatter_tensor": ("output", "input", -1),
    "reduce_scatter_single": ("output", "input", -1),
    "all_gather_into_tensor": ("output_tensor", "input_tensor", 1),
    "all_gather_single": ("output_tensor", "input_tensor", 1),
    "all_to_all_single": ("output", "input", 0),
}
# The same of mpi4py, where what is filled in may be longer than needed.
_BUFFERS: Final = {
    "Gather": ("recvbuf", "sendbuf", 1),
    "Allgather": ("recvbuf", "sendbuf", 1),
    "Allreduce": ("recvbuf", "sendbuf", 0),
    "Reduce": ("recvbuf", "sendbuf", 0),
    "Scatter": ("recvbuf", "sendbuf", -1),
}
# Lists with an element for each rank, each as long as the tensor.
_LISTS: Final = {
    "all_gather": ("tensor_list", "tensor"),
    "gather": ("gather_list", "tensor"),
    "scatter": ("scatter_list", "tensor"),
}
_SPLITS: Final = ("output_split_sizes", "input_split_sizes")


def wrong(shared: Collective) -> Complaint | None:
    """What is wrong with the lengths in a call, if anything is."""
    call = shared.call
    known = (f"{words.DIST}{call.method}", f"{MPI}{call.method}")
    if shared.group is not None or call.star or call.name not in known:
        return None
    for rank in (0, 1):
        if not call.ranks & (1 << rank):
            continue
        found = _split(shared, rank) or _pair(shared, rank) or _list(shared, rank)
        found = found or _typed(shared, rank)
        if found is not None:
            return Complaint(call.site, *found)
    return None


def _pair(shared: Collective, rank: int) -> tuple[str, str] | None:
    filled, given, way = _PAIRS.get(shared.call.method, ("", "", 0))
    if shared.call.method in _BUFFERS:
        return _buffer(shared, rank)
    if not filled or any(_told(shared, name) for name in _SPLITS):
        return None
    out, into = (_extent(shared.given(name), rank) for name in (filled, given))
    if way == 0:
        told = "as long as" if never(1, out, into) else ""
    elif way > 0:
        told = "N times as long as" if never(0, into, out) else ""
    else:
        told = "1/N as long as" if never(0, out, into) else ""
    if not told:
        return None
    fits = f"{told} `{given}`" + (", for N ranks" if way else "")
    what = f"`{filled}` of this {shared.call.method}() is not {fits}: a crash"
    return what, f"make `{filled}` {told} `{given}`"


def _buffer(shared: Collective, rank: int) -> tuple[str, str] | None:
    """A buffer of mpi4py that is too short for what comes."""
    filled, given, way = _BUFFERS[shared.call.method]
    held = (shared.given(name) for name in (filled, given))
    into, out = (_extent(one and array_of(one), rank) for one in held)
    if way < 1 or not exceeds(out, into, 0):
        return None
    what = f"`{filled}` of this {shared.call.method}() is shorter than `{given}` of all ranks"
    return f"{what}: a crash", f"make `{filled}` N times as long as `{given}`, for N ranks"


def _list(shared: Collective, rank: int) -> tuple[str, str] | None:
    held, given = _LISTS.get(shared.call.method, ("", ""))
    parts, one = shared.given(held), _extent(shared.given(given), rank)
    items = parts.items if parts is not None else None
    if not items or parts is None or parts.atoms[rank] is None:
        return None
    lengths = {extent(item, rank) for item in items}
    if len(lengths) != 1 or not never(1, lengths.pop(), one):
        return None
    what = f"the tensors in `{held}` of this {shared.call.method}() are not as long as `{given}`"
    return f"{what}: a crash", f"make them as long as `{given}`"


def _typed(shared: Collective, rank: int) -> tuple[str, str] | None:
    """What is filled in is of another type than what is given."""
    method = shared.call.method
    held, given = _LISTS.get(method) or (_PAIRS | _BUFFERS).get(method, ("", "", 0))[:2]
    into, one = shared.given(held), shared.given(given)
    if into is None or one is None:
        return None
    kinds = {dtype(value, rank) for value in (into.items or (into,))}
    kind, other = kinds.pop() if len(kinds) == 1 else None, dtype(one, rank)
    if None in (kind, other) or kind == other:
        return None
    what = f"`{held}` of this {shared.call.method}() is {kind}, and `{given}` is {other}: a crash"
    return f"{what} or wrong numbers", "make both of one type"


def _split(shared: Collective, rank: int) -> tuple[str, str] | None:
    """``all_to_all_single(…, output_split_sizes=counts, input_split_sizes=counts)``: what comes
    from a peer is as long as that peer says, not as what goes there."""
    out, into = (_told(shared, name) for name in _SPLITS)
    if into is None or not any(origin.kind in (DATA, RANDOM) for origin in into.all_origins):
        return None
    if out is not None and (_numbers(out, rank) != _numbers(into, rank) or not out.all_origins):
        return None
    what = "this rank's own counts say here how much the others send it: a crash"
    return what, "exchange the counts first, with an all_to_all_single of their own"


def _numbers(value: RankValue, rank: int) -> object:
    """What it is; of ``counts.tolist()`` the counts, which each time are the same."""
    made = value.things[0].call if len(value.things) == 1 else None
    if made is not None and made.method == "tolist" and made.receiver is not None:
        return made.receiver.atoms[rank]
    return value.atoms[rank]


def _told(shared: Collective, name: str) -> RankValue | None:
    value = shared.given(name)
    return None if value is None or value.atoms == (None, None) else value


def _extent(value: RankValue | None, rank: int) -> Extent | None:
    return extent(value, rank) if value is not None else None
