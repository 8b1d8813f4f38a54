"""Batches of which each rank takes its own: rows by its number, or whole batches in turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import Pass, differentiated
from ddpify.ranks.run import Run

_MOVES: Final = frozenset({"to", "cuda", "npu", "xpu", "tensor", "as_tensor"})
_NO_PART: Final = frozenset({"device", "disable", "position", "desc"})  # of a tensor, of a bar
_SENDS: Final = ("torch.distributed.scatter", "torch.distributed.scatter_object_list")


def parts(run: Run) -> Iterator[RankValue]:
    """What a part is taken of by the rank's number: ``x[rank::world]``, ``x.narrow(0, …)``.

    A library's function that is given samples and the number, and makes what is trained on of
    them, may take a part.
    """
    yield from (whole for _, whole in run.parted)
    flowing = _made(run)
    for call in run.calls:
        if call.target is None and call.method not in _MOVES and _is_told(call):
            made = call.result.sources() if call.result is not None else ()
            if any(thing.call is call and thing in flowing for thing in made):
                yield from call.given
                yield from (call.receiver,) if call.receiver is not None else ()


def takes_turns(run: Run, one: Pass) -> bool:
    """Whether it is the rank's number that decides which batches of a pass it trains on, or
    another rank sends it what to train on."""
    left = (e for e in run.exits if e.loops[-1:] == (one.loop,) and e.order < one.backward.order)
    skips = any(guard.test.by_rank for each in left for guard in each.guards)
    asks = any(guard.test.by_rank for guard in one.backward.conditions_in(one.loop))
    around = (loop.node for call in run.named(*_SENDS) for loop in call.loops)
    return skips or asks or one.loop.node in around


def _made(run: Run) -> set[RankThing]:
    """What losses, and the passes they are of, are made from."""
    losses = (loss for call in run.backwards if (loss := differentiated(call)) is not None)
    over = (loop.over for call in run.backwards for loop in call.loops if loop.over is not None)
    return {thing for value in (*losses, *over) for thing in value.sources()}


def _is_told(call: RankCall) -> bool:
    """Whether a call is given the rank's number."""
    named = (value for name, value in call.kwargs.items() if name not in _NO_PART)
    return any(_is_number(value) for value in (*call.args, *named))


def _is_number(value: RankValue) -> bool:
    word = any(isinstance(atom, (str, bool)) for atom in value.atoms)
    return value.by_rank and not word and value.made_by("torch.device") is None
