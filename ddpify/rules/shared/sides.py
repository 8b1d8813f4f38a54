"""The calls of torch.distributed and of mpi4py that are sides of messages, as they are made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks import other_libraries, words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.overlooked import out_of_turn, overlooked

# Method: whether it sends, whether it waits for the other side, and the positions of peer and tag.
_TORCH: Final = {
    "send": (True, True, 1, 3),
    "isend": (True, False, 1, 3),
    "recv": (False, True, 1, 3),
    "irecv": (False, False, 1, 3),
}
_MPI: Final = {
    **{name: (True, True, 1, 2) for name in ("send", "Send", "ssend", "Ssend")},
    **{name: (True, False, 1, 2) for name in ("isend", "Isend", "issend", "Issend")},
    **{name: (False, True, 1, 2) for name in ("recv", "Recv")},
    **{name: (False, False, 1, 2) for name in ("irecv", "Irecv")},
}
_NOT_FOLLOWED: Final = frozenset(
    "batch_isend_irecv send_object_list recv_object_list sendrecv Sendrecv Sendrecv_replace bsend"
    " Bsend rsend Rsend probe Probe mprobe iprobe Iprobe Send_init Recv_init".split()
)
NAMES: Final = frozenset((*_TORCH, *_MPI))


def sent_first(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """The sends behind each of which a receive follows, where no rank receives without having sent
    before, in the same turn: then nobody receives before all have sent.

    Each sends to another one: what all send to rank 0 is received by another program.
    """
    calls = [call for call in run.calls if kind(call) is not None]
    if (
        all(map(_sends, calls))
        or not run.complete
        or not run.script
        or any(map(is_beyond, run.calls))
        or out_of_turn(run, calls)
    ):
        return
    if not all(_waits(call) for call in calls):
        return
    if overlooked(run, NAMES, not all(map(of_torch, calls))):
        return
    pairs = []
    for call in calls:
        if not _sends(call):
            first = next((c for c in calls if _sends(c) and _turn(c) == _turn(call)), None)
            if first is None or first.order > call.order or call.star or call.swallows:
                return
            peer = first.arg(1, peer_name(first))
            if peer is None or not peer.by_rank:
                return
            pairs.append((first, call))
    yield from pairs


def sides(run: Run) -> Iterator[tuple[RankCall, bool, ast.expr]]:
    """All sides of messages of a run: the call, whether it sends, and the expression of the peer;
    nothing where one is not understood."""
    found = []
    calls = [call for call in run.calls if kind(call) is not None or is_beyond(call)]
    posted = [*run.named(f"{words.DIST}P2POp")]
    both = [*calls, *posted]
    if not both or not run.complete or out_of_turn(run, both):
        return
    if overlooked(run, NAMES, not all(map(of_torch, both))):
        return
    for call in both:
        parts = _peers(call)
        if parts is None:
            return
        found += [(call, sends, node) for sends, node in parts]
    yield from found


def _peers(call: RankCall) -> list[tuple[bool, ast.expr]] | None:
    """Whether it sends, and to whom; None if that is not understood."""
    if call.method == "batch_isend_irecv":
        return []
    if call.method == "P2POp":
        way, given = call.arg(0, "op"), call.node_of(2, "peer")
        names = {name.rpartition(".")[2] for name in way.names()} if way is not None else set()
        if given is None or call.arg(3, "group") is not None or len(names) != 1:
            return None
        return [(names == {"isend"}, given)]
    if kind(call) is None and call.method not in ("Sendrecv", "sendrecv"):
        return None
    if call.method in ("Sendrecv", "sendrecv"):
        to, source = call.node_of(1, "dest"), call.node_of(4, "source")
        return None if to is None or source is None else [(True, to), (False, source)]
    given = call.node_of(1, peer_name(call))
    grouped = of_torch(call) and call.arg(2, "group") is not None
    return None if given is None or grouped else [(_sends(call), given)]


def peer_name(call: RankCall) -> str:
    """The parameter that names the other rank."""
    names = ("dst", "src") if of_torch(call) else ("dest", "source")
    return names[0] if _sends(call) else names[1]


def _sends(call: RankCall) -> bool:
    how = kind(call)
    return how is not None and how[0]


def _waits(call: RankCall) -> bool:
    how = kind(call)
    return how is not None and how[1]


def _turn(call: RankCall) -> object:
    tests = [(guard.node, guard.holds) for guard in call.conditions]
    return call.function, call.stack, call.loops, call.ranks, tests


def of_torch(call: RankCall) -> bool:
    """Whether a call is one of torch.distributed."""
    return call.name == f"{words.DIST}{call.method}"


def kind(call: RankCall) -> tuple[bool, bool, int, int] | None:
    """Whether it sends, whether it waits, and where the peer and the tag are given."""
    if of_torch(call):
        return _TORCH.get(call.method)
    if call.name == f"{other_libraries.MPI}{call.method}":
        return _MPI.get(call.method)
    return None


def is_beyond(call: RankCall) -> bool:
    """Messages that are not followed."""
    prefix = call.name.removesuffix(call.method)
    return prefix in (words.DIST, other_libraries.MPI) and call.method in _NOT_FOLLOWED
