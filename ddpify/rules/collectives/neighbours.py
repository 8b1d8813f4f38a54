"""Peers that are computed from the rank: whether they fit with three and with four processes."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.more_ranks import MORE, may_be_more, tells_apart
from ddpify.rules.shared.rank_numbers import RankNumbers
from ddpify.rules.shared.sides import among_all, peer_name, sends

_POSTED: Final = f"{words.DIST}P2POp"
Edges = Counter[tuple[int, int]]


@dataclass(frozen=True)
class _Side:
    """A side of a message, and the expression of its peer."""

    call: RankCall
    sends: bool
    peer: ast.expr | None


def unmet_with_more(run: Run) -> RankCall | None:
    """A receive that waits for who sends to somebody else, with three and with four processes,
    where all is right with two."""
    others = run.named(f"{words.DIST}batch_isend_irecv", _POSTED)
    found = [_side(c) for c in among_all(run, others) if c.method != "batch_isend_irecv"]
    if not found or any(_is_for_some(run, one.call) for one in found):
        return None
    apart = _meet(run, found, 2) is True and all(_meet(run, found, n) is False for n in MORE)
    if apart and may_be_more(run):
        return next((one.call for one in found if not one.sends), None)
    return None


def _side(call: RankCall) -> _Side:
    if call.name != _POSTED:
        return _Side(call, sends(call), call.node_of(1, peer_name(call)))
    way = call.arg(0, "op")
    names = way.names() if way is not None else set()
    return _Side(
        call, names == {f"{words.DIST}isend"}, call.node_of(2, "peer") if len(names) == 1 else None
    )


def _is_for_some(run: Run, call: RankCall) -> bool:
    """Whether some ranks make it, or all of them with some numbers of processes only."""
    if call.ranks != ALL or any(guard.test.by_rank for guard in call.conditions):
        return True
    return any(tells_apart(run, one) for one in call.way)


def _meet(run: Run, found: list[_Side], world: int) -> bool | None:
    """Whether each message has both sides; None if a peer is not known, or is no rank."""
    sent, received = Edges(), Edges()
    for rank in range(world):
        numbers = RankNumbers(run, rank, world)
        for one in found:
            peer = numbers.of(one.call, one.peer)
            if not isinstance(peer, int) or not 0 <= peer < world:
                return None
            edges, way = (sent, (rank, peer)) if one.sends else (received, (peer, rank))
            edges[way] += 1
    return sent == received
