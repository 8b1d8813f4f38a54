"""Results of samples that a sampler repeated, put together from all ranks and counted as they are.

Of 101 samples on two ranks each has 51: ``torch.cat(parts).mean()`` is over 102.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import loaders_in
from ddpify.ranks.run import Run

_GATHERS: Final = {"all_gather": "tensor_list", "all_gather_into_tensor": "output_tensor"}
_COUNTS: Final = frozenset("mean sum count_nonzero".split())
# What leaves the results of all samples, one each: whatever else may drop some.
_KEEPS: Final = frozenset(
    """cat concat concatenate stack reshape view flatten float long int double bool cpu numpy
    tolist argmax eq softmax sigmoid round""".split()
)


def gathered_whole(run: Run) -> Iterator[tuple[RankThing, RankCall, RankCall]]:
    """(loader, what gathers results of its samples, what counts all of them)."""
    for call in run.named(*(f"{words.DIST}{name}" for name in _GATHERS)):
        shared = collective(call)
        given = shared.given("tensor") or shared.given("input_tensor") if shared else None
        into = shared.given(_GATHERS[call.method]) if shared is not None else None
        loaders = loaders_in(given) if call.everywhere else []
        if into is None or len(loaders) != 1 or _is_cut(run, loaders[0]):
            continue
        counted = next((c for c in run.once(_counting) if _counts(c, call, into)), None)
        if counted is not None:
            yield loaders[0], call, counted


def _is_cut(run: Run, loader: RankThing) -> bool:
    """Whether the end of anything that was computed from its batches is cut off."""
    return any(loader in value.sources() for value in run.cut)


def _counting(run: Run) -> list[RankCall]:
    """What adds up, or averages, something."""
    scores = "sklearn.metrics."
    return [c for c in run.calls if c.method in _COUNTS or c.name.startswith(scores)]


def _counts(call: RankCall, gather: RankCall, into: RankValue) -> bool:
    """Whether it does so with all that was gathered, once for each."""
    if call.order < gather.order:
        return False
    late = [t for value in call.inputs for t in value.sources() if _is_after(t, gather)]
    joined = [t.call for t in late if t.call and any(_is(v, into) for v in t.call.inputs)]
    whole = bool(joined) or any(_is(value, into) for value in call.inputs)
    return whole and all(t.call is not None and t.call.method in _KEEPS for t in late)


def _is(value: RankValue, into: RankValue) -> bool:
    return value.atoms == into.atoms


def _is_after(thing: RankThing, gather: RankCall) -> bool:
    return thing.call is not None and thing.call.order > gather.order
