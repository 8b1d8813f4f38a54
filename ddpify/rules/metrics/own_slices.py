"""Numbers that rank 0 shows, of the slice of the samples that it has cut for itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RANK0, RankCall, RankValue
from ddpify.ranks.origins import PART, PIECE, STRIDE, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.metrics.metrics import reduces, shown_by_one
from ddpify.site import Site

_SLICES: Final = (PART, PIECE, STRIDE)


def shown_slices(run: Run) -> Iterator[tuple[RankCall, Site]]:
    """Where rank 0 alone shows what it evaluated, and where it took its slice.

    Nothing that any of its slices went into is sent to other ranks.
    """
    sent = {one for call in run.calls if reduces(call) for one in _given(call)}
    for call in shown_by_one(run):
        if call.ranks != RANK0 or any(loop.node in run.step_loops for loop in call.loops):
            continue
        for value in call.given:
            own = _slices(value)
            if own and own.isdisjoint(sent) and _is_evaluated(value, own):
                yield call, min(one.site for one in own)
                break


def _given(call: RankCall) -> Iterator[Origin]:
    for value in call.inputs:
        yield from _slices(value)


def _slices(value: RankValue) -> set[Origin]:
    return {origin for origin in spread(value) if origin.what in _SLICES}


def _is_evaluated(value: RankValue, own: set[Origin]) -> bool:
    """Whether a model that all ranks have was given the slice, without gradients."""
    made = (thing.call for thing in value.sources() if thing.call is not None)
    return any(
        call.method == "__call__"
        and not call.grad
        and call.everywhere
        and any(not own.isdisjoint(_slices(given)) for given in call.given)
        for call in made
    )
