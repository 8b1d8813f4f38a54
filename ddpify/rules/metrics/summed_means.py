"""Means of the ranks that are added up, shown as they are: N times what they should be.

``dist.all_reduce(loss)`` and ``loss.item()``, with nothing that divides by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ddpify.ranks.collective import collective
from ddpify.ranks.mixing import Mark, Of, marks
from ddpify.ranks.model import RANK0, RankCall, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, DATA, IDENTITY, RANDOM, TEXT, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.ranks.words import DIST
from ddpify.rules.metrics.averages import made_of
from ddpify.rules.metrics.batch_means import adds_means, is_own_mean, over_batches
from ddpify.rules.metrics.metrics import shows
from ddpify.rules.shared.by_ranks import power
from ddpify.rules.shared.losses import reduction
from ddpify.site import Site

_MEANS: Final = frozenset({"mean", "nanmean"})
_SUM: Final = {f"{DIST}ReduceOp.SUM"}
_SCALES: Final = ("div", "mul", "true_divide")  # and in place, with an underscore


def summed_means(run: Run) -> Iterator[tuple[Site, RankCall]]:
    """(where, shown): where the ranks' means are added up, be it before each is divided by how
    many batches it is of, and what shows the sum."""
    shown = [(call, value) for call in run.calls if _shows(call) for value in call.given]
    for call in run.named(f"{DIST}all_reduce") if shown else ():
        shared = collective(call)
        value = shared.given(shared.filled) if shared is not None else None
        if shared is None or value is None or shared.group is not None or not call.everywhere:
            continue
        op = shared.given("op")
        if op is not None and op.names() != _SUM:
            continue
        if _is_mean(run, call, value):
            where = next((one for one, given in shown if _is_sum_of(call, given)), None)
            if where is not None:
                yield call.site, where
        elif adds_means(run, value):
            over = ((one, over_batches(run, call, given)) for one, given in shown)
            yield from islice(((at.site, one) for one, at in over if at and at.site), 1)


def _shows(call: RankCall) -> bool:
    return bool(shows(call) and call.target is None and call.ranks & RANK0)


def _is_mean(run: Run, reduces: RankCall, value: RankValue) -> bool:
    """Whether a number is a mean over this rank's samples, which nothing scales in place."""
    if not any(o.kind in (DATA, RANDOM, *IDENTITY) for o in value.all_origins):
        return False
    if Of.PART in marks(value) or any(o.kind == CLOCK for o in value.all_origins):
        return False
    if power(value) != 0:  # ``loss / world_size``
        return False
    atom, things = value.atoms[0], set(value.things)
    if things and isinstance(atom, Symbol) and atom.parts:  # `loss /= world_size`
        return False
    for call in run.methods(*(f"{name}_" for name in _SCALES)):
        if call.receiver is not None and not things.isdisjoint(call.receiver.things):
            return False
    return _is_quotient(run, value) or any(
        made.method in _MEANS or reduction(made) == "mean" for made in made_of(value)
    )


def _is_quotient(run: Run, value: RankValue) -> bool:
    """``total / count`` of a count of this rank's samples, or of its batches, or what holds it as
    it is."""
    held = value
    while len(held.things) == 1 and (made := held.things[0].call) is not None:
        given = [made.receiver] if made.receiver is not None else [*made.args[:1]]
        if made.method not in ("tensor", "item", "float", "to", "cuda", "as_tensor") or not given:
            break
        held = given[0].items[0] if given[0].items and len(given[0].items) == 1 else given[0]
    atom = held.atoms[0]
    if not isinstance(atom, Symbol) or atom.parts[:1] != ("Div",):
        return False
    return _is_own_count(atom.parts[2], held) or is_own_mean(run, held)


def _is_own_count(below: Any, value: RankValue) -> bool:
    """Whether what a number is divided by counts this rank's samples: not ``len(dataset)``."""
    counted = marks(value).get(Of.COUNT)
    if counted is None or not isinstance(below, Symbol) or "numel" in text(below):
        return False  # the entries of one output are no samples
    made = (t.call for t in value.sources() if t.key == below.key)
    given = [one for call in made if call is not None for one in call.args]
    return (bool(counted.key) and counted.key in text(below)) or any(
        Of.COUNT in marks(one) for one in given
    )


def _is_sum_of(reduces: RankCall, value: RankValue) -> bool:
    """Whether what is shown is the sum itself, or a text with it and nothing that is divided."""
    said = [*map(text, getattr(value.atoms[0], "parts", ()))]
    if any(f"({thing.key}Div" in part for thing in value.sources() for part in said):
        return False
    for mark in marks(value).values():
        if mark.of is Of.ALL and mark.site == reduces.site:
            return any(mark.is_of(part) for part in _parts(value))
    return False


def _parts(value: RankValue) -> Iterator[RankValue]:
    yield value
    atom = value.atoms[0]
    if isinstance(atom, Symbol) and atom.parts[:1] == (TEXT,):
        for part in atom.parts[1:]:
            for thing in value.sources():
                if _is_named(part, thing):
                    yield RankValue((part, part), (thing,))


def _is_named(atom: Any, thing: RankThing) -> bool:
    """Whether a part of a text is a thing, however it is formatted."""
    known = isinstance(atom, Symbol) and not isinstance(thing, Mark)
    return known and f"{atom.key}:".startswith(f"{thing.key}:")
