"""Where random numbers come from: the same on all ranks, one stream each, or no seed."""

from __future__ import annotations

import ast
from enum import Enum

from ddpify.python.choices import library_drawn
from ddpify.ranks.model import RANK0, RANK1, RankCall, RankValue
from ddpify.ranks.origins import CLOCK, IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.streams import SEED, seeded_by
from ddpify.ranks.values import spread
from ddpify.ranks.words import SEEDERS

_OWN = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "torch.Generator")
_DIFFER = IDENTITY | {CLOCK, RANDOM}


class Stream(Enum):
    """How the draws of one call compare between ranks."""

    SAME = "same"  # or not known to differ
    APART = "apart"  # seeded with something that differs
    UNSEEDED = "unseeded"  # each process has a seed of its own


def stream(run: Run, draw: RankCall, library: str) -> tuple[Stream, RankCall | None]:
    """The stream that ``draw`` takes from, and the call that seeded it."""
    own = _own_generator(draw)
    if own is not None:
        return _of_own(own)
    last: RankCall | None = None
    apart: list[RankCall] = []
    for call in run.calls:
        if call.order >= draw.order:
            break
        if library in seeded_by(call) and process(run, call) is process(run, draw):
            last, apart = call, []
        elif not call.everywhere and _draws_from(call, library):
            apart.append(call)
    if len({sum(bool(call.ranks & rank) for call in apart) for rank in (RANK0, RANK1)}) == 2:
        return Stream.APART, apart[0]
    if last is None:
        sure = run.script and run.complete
        return (Stream.UNSEEDED if sure else Stream.SAME), None
    return (Stream.APART if _differs(last) else Stream.SAME), last


def _draws_from(call: RankCall, library: str) -> bool:
    """Whether a call draws from a library's own stream."""
    return library_drawn(call.name) == library and _own_generator(call) is None


def process(run: Run, call: RankCall) -> ast.AST | None:
    """The call of ``mp.spawn`` in whose processes this one is made: they start with no seed."""
    starts = {c.node for c in run.named("torch.multiprocessing.spawn")}
    return next((c.node for c in call.stack if c.node in starts), None)


def _own_generator(draw: RankCall) -> RankValue | None:
    """``rng.permutation(…)``, ``generator=g``: not the library's global stream."""
    for keyword in ("generator", "random_state", "rng"):
        given = draw.kwargs.get(keyword)
        if given is not None and not (given.known and given.constant is None):
            return given
    if draw.name.endswith(".random_split") and len(draw.args) > 2:
        return draw.args[2]
    receiver = draw.receiver
    return receiver if receiver is not None and draw.name.startswith(_OWN) else None


def _of_own(own: RankValue) -> tuple[Stream, RankCall | None]:
    states = [thing.state[SEED] for thing in own.things if SEED in thing.state]
    if any(origin.kind in IDENTITY for value in states or (own,) for origin in spread(value)):
        return Stream.APART, None
    return Stream.SAME, None


def _differs(seeding: RankCall) -> bool:
    if not seeding.everywhere:
        return True
    values = seeding.given if seeding.name in SEEDERS else seeding.args
    return any(o.kind in _DIFFER for value in values for o in spread(value))
