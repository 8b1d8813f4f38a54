"""Where ``requires_grad`` of parameters is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import Wrap, parameters_of


@dataclass(frozen=True, eq=False)
class Freezing:
    """``requires_grad`` of the parameters of ``owners`` is set to ``on`` (None: not known)."""

    where: Store | RankCall
    owners: frozenset[RankThing]
    on: bool | None
    chosen: bool  # by a condition on the parameter: not all of them

    @property
    def value(self) -> RankValue:
        """What is frozen or unfrozen: a model, a part of it, a parameter."""
        base = self.where.base if isinstance(self.where, Store) else self.where.receiver
        assert base is not None
        return base


def is_partial(wrap: Wrap, change: Freezing) -> bool:
    return change.chosen or not _whole(wrap, change)


def _whole(wrap: Wrap, change: Freezing) -> bool:
    return any(owner is wrap.wrapper or owner in wrap.inner for owner in change.owners)


def freezings(run: Run) -> Iterator[Freezing]:
    """The changes of what is trained, in order."""
    for store in run.stores:
        if store.key == "requires_grad" and not store.element:
            owners = frozenset(parameters_of(store.base)) or frozenset(store.base.things)
            yield Freezing(store, owners, _truth(store.value), _chosen(store))
    for call in run.methods("requires_grad_"):
        assert call.receiver is not None
        owners = frozenset(parameters_of(call.receiver)) or frozenset(call.receiver.things)
        given = call.arg(0, "requires_grad")
        yield Freezing(call, owners, True if given is None else _truth(given), _chosen(call))


def _truth(value: RankValue) -> bool | None:
    return bool(value.constant) if value.known else None


def _chosen(one: Store | RankCall) -> bool:
    """Whether a condition inside the loop over the parameters decides."""
    if isinstance(one, Store) and not one.value.known:
        return True
    if not one.loops or not one.guards:
        return False
    return any(g.site.within(one.loops[-1].site) for g in one.guards)
