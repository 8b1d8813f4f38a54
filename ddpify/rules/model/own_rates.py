"""Optimizers whose steps differ between ranks that have the same gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, IDENTITY, RANDOM, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.optimizers import optimizers
from ddpify.rules.shared.wrapped import wraps
from ddpify.site import Site

_SETTINGS: Final = frozenset({"lr", "weight_decay", "momentum", "betas"})
_OWN: Final = frozenset({RANDOM, CLOCK, *IDENTITY})


def own_rates(run: Run) -> Iterator[tuple[Site, Origin]]:
    """Where an optimizer of averaged gradients gets a number of each rank's own, and why it is."""
    wrapped = wraps(run)
    averaged = {model for one in averagings(run) for model in one.models}

    def covers(thing: RankThing) -> bool:
        return thing in averaged or any(wrap.covers(thing) for wrap in wrapped)

    made = optimizers(run, covers) if wrapped or averaged else []
    for call in made:
        given = (*call.args[1:], *(v for name, v in call.kwargs.items() if name != "params"))
        yield from _own(call, call.site, given)
    things = {thing for call in made if call.result is not None for thing in call.result.things}
    for store in run.stores if things else ():
        if store.key in _SETTINGS and not things.isdisjoint(store.base.sources()):
            yield from _own(store, store.site, (store.value,))  # by the rank itself: DDP419


def _own(
    at: RankCall | Store, site: Site, values: tuple[RankValue, ...]
) -> Iterator[tuple[Site, Origin]]:
    kinds = _OWN - IDENTITY if isinstance(at, Store) else _OWN
    found = [origin for value in values for origin in spread(value) if origin.kind in kinds]
    if found and at.ranks == ALL:
        yield site, min(found, key=lambda origin: origin.site)
