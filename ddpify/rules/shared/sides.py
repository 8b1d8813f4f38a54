"""The calls of torch.distributed and of mpi4py that are sides of messages, as they are made."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import other_libraries, words
from ddpify.ranks.collective import is_world
from ddpify.ranks.members import has_both
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.overlooked import out_of_turn, overlooked

# Method: whether it sends, and whether it waits for the other side.
_TORCH: Final = {
    "send": (True, True),
    "isend": (True, False),
    "recv": (False, True),
    "irecv": (False, False),
    "send_object_list": (True, True),
    "recv_object_list": (False, True),
}
_MPI: Final = {
    **dict.fromkeys(("send", "Send", "ssend", "Ssend"), (True, True)),
    **dict.fromkeys(("isend", "Isend", "issend", "Issend"), (True, False)),
    **dict.fromkeys(("recv", "Recv"), (False, True)),
    **dict.fromkeys(("irecv", "Irecv"), (False, False)),
}
_NOT_FOLLOWED: Final = frozenset(
    "batch_isend_irecv sendrecv Sendrecv Sendrecv_replace bsend"
    " Bsend rsend Rsend probe Probe mprobe iprobe Iprobe Send_init Recv_init".split()
)
NAMES: Final = frozenset((*_TORCH, *_MPI))


def among_all(run: Run, others: Iterable[RankCall] = ()) -> list[RankCall]:
    """The sides of messages that are exchanged among all ranks, and ``others``, which the caller
    follows; nothing if one is not followed, or may be overlooked. Those in a group that is made of
    some ranks never meet any of these."""
    calls = [*(call for call in run.calls if kind(call) is not None), *others]
    if not calls or any(is_beyond(call) and call not in calls for call in run.calls):
        return []
    if any(call.star or call.swallows for call in calls):
        return []
    if not run.complete or out_of_turn(run, calls):
        return []
    if overlooked(run, NAMES, not all(map(of_torch, calls))):
        return []
    groups = [_group(call) for call in calls]
    if has_both(groups[0]) and all(one.atoms == groups[0].atoms for one in groups):
        return calls
    found = [call for call in calls if _group(call).names() != {f"{words.DIST}new_group"}]
    return found if all(is_world(_group(call)) for call in found) else []


def sent_first(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """The sends behind each of which a receive follows, where no rank receives without having sent
    before, in the same turn: then nobody receives before all have sent.

    Each sends to another one: what all send to rank 0 is received by another program. A loop over
    all of one's peers that sends comes before the one that receives, too.
    """
    calls = among_all(run) if run.script else []
    if not all(map(_waits, calls)):
        return
    pairs = []
    for call in calls:
        if not sends(call):
            first = next((c for c in calls if sends(c) and _turn(c) == _turn(call)), None)
            peer = first.arg(1, peer_name(first)) if first is not None else None
            over = [one.over for one in (first.loops if first is not None else ()) if one.over]
            apart = peer is not None and any(one.by_rank for one in (peer, *over))
            if first is None or first.order > call.order or not apart:
                return
            pairs.append((first, call))
    yield from pairs


def peer_name(call: RankCall) -> str:
    """The parameter that names the other rank."""
    names = ("dst", "src") if of_torch(call) else ("dest", "source")
    return names[0] if sends(call) else names[1]


def of_objects(call: RankCall) -> bool:
    """Whether it sends or receives a list of pickled objects, as no other call does."""
    return of_torch(call) and call.method.endswith("_object_list")


def sends(call: RankCall) -> bool:
    """Whether it is the side that gives."""
    how = kind(call)
    return how is not None and how[0]


def _waits(call: RankCall) -> bool:
    how = kind(call)
    return how is not None and how[1]


def _turn(call: RankCall) -> object:
    tests = [(guard.node, guard.holds) for guard in call.conditions]
    *outer, last = call.loops or (None,)
    over = ast.unparse(last.node.iter) if last and isinstance(last.node, ast.For) else last
    return call.function, call.stack, outer, over, call.ranks, tests


def of_torch(call: RankCall) -> bool:
    """Whether a call is one of torch.distributed."""
    return call.name == f"{words.DIST}{call.method}"


def kind(call: RankCall) -> tuple[bool, bool] | None:
    """Whether it sends, and whether it waits; None if it is no side of a message."""
    if of_torch(call):
        return _TORCH.get(call.method)
    if call.name == f"{other_libraries.MPI}{call.method}":
        return _MPI.get(call.method)
    return None


def _group(call: RankCall) -> RankValue:
    """The group that a call of torch.distributed names; that of all ranks is None."""
    named = call.arg(3 if call.method == "P2POp" else 2, "group") if of_torch(call) else None
    return named or RankValue((None, None))


def is_beyond(call: RankCall) -> bool:
    """Messages that are not followed."""
    prefix = call.name.removesuffix(call.method)
    return prefix in (words.DIST, other_libraries.MPI) and call.method in _NOT_FOLLOWED
