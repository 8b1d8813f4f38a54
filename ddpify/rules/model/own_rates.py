"""Optimizers whose steps differ between ranks that have the same gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY, RANDOM, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.values import differs, spread
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.optimizers import optimizers
from ddpify.rules.shared.own_numbers import own_reasons
from ddpify.rules.shared.wrapped import wraps
from ddpify.site import Site

_SETTINGS: Final = frozenset({"lr", "weight_decay", "momentum", "betas"})


def own_rates(run: Run) -> Iterator[tuple[Site, Origin]]:
    """Where an optimizer of averaged gradients gets a number of each rank's own, and why it is."""
    wrapped = wraps(run)
    averaged = {model for one in averagings(run) for model in one.models}

    def covers(thing: RankThing) -> bool:
        return thing in averaged or any(wrap.covers(thing) for wrap in wrapped)

    made = optimizers(run, covers) if wrapped or averaged else []
    for call in made:
        named = (value for name, value in call.kwargs.items() if name in _SETTINGS)
        given = (*call.args[1:2], *named)  # `fused` and the like change no weights
        yield from _own(call, call.site, given)
    things = {thing for call in made if call.result is not None for thing in call.result.things}
    for store in run.stores if things else ():
        if store.key in _SETTINGS and not things.isdisjoint(store.base.sources()):
            yield from _own(store, store.site, (store.value,))


def _own(
    at: RankCall | Store, site: Site, values: tuple[RankValue, ...]
) -> Iterator[tuple[Site, Origin]]:
    found = [origin for value in values for origin in _reasons(value, at)]
    if found and at.ranks == ALL:
        yield site, min(found, key=lambda origin: origin.site)


def _reasons(value: RankValue, at: RankCall | Store) -> Iterator[Origin]:
    """Why a number is each rank's own: drawn, or seen to be another. What is set by the rank is
    DDP419's."""
    yield from own_reasons(value, (RANDOM,))
    if value.known and differs(value) and isinstance(at, RankCall):
        yield from (origin for origin in spread(value) if origin.kind in IDENTITY)
