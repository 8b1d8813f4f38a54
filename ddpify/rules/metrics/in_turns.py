"""Results of samples that a sampler dealt in turns, put together rank by rank: not in their order.

``torch.cat(parts)`` is 0, 2, 4, …, 1, 3, 5, …; the names of the data set are 0, 1, 2, ….
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import loaders_in
from ddpify.ranks.run import Run
from ddpify.rules.shared.feeds import dealt_by

_GATHERS: Final = tuple(
    f"{words.DIST}{one}" for one in "all_gather gather all_gather_object gather_object".split()
)
_JOINS: Final = frozenset("cat concat concatenate hstack vstack sum from_iterable".split())
_SAME: Final = frozenset("tolist numpy cpu list detach float squeeze flatten int".split())


def out_of_order(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(what puts the parts together, the ``zip`` with a list in the order of the samples)."""
    joined = dict(_joined(run))
    for call in run.named("builtins.zip") if joined else ():
        parts = [_root(value) for value in call.args]
        found = next((joined[one] for one in parts if one in joined), None)
        others = [v for v, one in zip(call.args, parts, strict=True) if one not in joined]
        if found is not None and any(map(_is_whole, others)):
            yield found, call


def _joined(run: Run) -> Iterator[tuple[RankThing, RankCall]]:
    """What is made of the ranks' parts, one after the other."""
    parts: set[object] = set()
    for call in run.named(*_GATHERS):
        shared = collective(call)
        given = shared.given("obj") or shared.given("tensor") if shared is not None else None
        names = ("gather_list", "object_gather_list", "tensor_list", "object_list")
        into = next((v for n in names if shared and (v := shared.given(n)) is not None), None)
        if given is not None and into is not None and any(map(_in_turns, loaders_in(given))):
            parts.add(into.atoms[0])
    for call in run.calls if parts else ():
        made = call.result.things if call.result is not None else ()
        if call.method in _JOINS and made and call.args and call.args[0].atoms[0] in parts:
            yield made[0], call


def _in_turns(loader: RankThing) -> bool:
    samplers = dealt_by(loader)
    return bool(samplers) and all(one.name == words.SAMPLER for one in samplers)


def _root(value: RankValue) -> RankThing | None:
    """What a value is, as a list or a part of it from the start."""
    thing = value.things[0] if len(value.things) == 1 else None
    made = thing.call if thing is not None else None
    if made is not None and made.method in _SAME:
        inner = made.receiver or (made.args[0] if made.args else None)
        return _root(inner) if inner is not None else thing
    return thing


def _is_whole(value: RankValue) -> bool:
    """Whether a list is the same on all ranks, and was in no loader: ``dataset.names``."""
    return not value.local and not loaders_in(value)
