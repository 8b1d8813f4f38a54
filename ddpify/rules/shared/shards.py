"""Which values are sharded models, or weights of these: also under a name from before. ::

net = SSD()
model = nn.DataParallel(net)  # gone; what is sharded after this is `net`, too
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ddpify.facts.details import Wrapper
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.values import Kind, Thing, Value

# Optimizers that step entry by entry: of torch 2.13's, Muon trains something else on shards, and
# Adafactor and Rprop end with an error (measured).
BY_ENTRY: Final = frozenset(
    f"torch.optim.{name}"
    for name in "SGD Adam AdamW NAdam RAdam Adamax Adagrad RMSprop Adadelta ASGD".split()
)


@dataclass(frozen=True)
class Shards:
    """Models, and the moments from which on they are sharded."""

    since: dict[Thing, int]

    @classmethod
    def of(cls, facts: Facts) -> Shards:
        since: dict[Thing, int] = {}
        for forward in facts.forwards:
            wrapper = forward.model.detail(Wrapper)
            if forward.model.kind is Kind.WRAPPED and wrapper is not None:
                model = whole(forward.model)
                since[model] = min(wrapper.order, since.get(model, wrapper.order))
        return cls(since)

    def are(self, value: Value | None, order: int) -> bool:
        """Whether a value is a sharded model, a weight of one, its gradient, or made of these."""
        if value is None or value.dep(Kind.FORWARD, Kind.BATCH, Kind.STATE):  # states: see DDP602
            return False
        things = value.dep(Kind.WRAPPED, Kind.MODEL, Kind.PARAMETERS)
        return any(self.is_sharded(thing, order) for thing in things)

    def is_sharded(self, thing: Thing, order: int) -> bool:
        """Whether a model, a part of one or its parameters are shards at a moment."""
        owners = thing.inner.things if thing.kind is Kind.PARAMETERS and thing.inner else (thing,)
        return any(self._is_one(owner, order) for owner in owners)

    def _is_one(self, owner: Thing, order: int) -> bool:
        wrapped = owner.kind is Kind.WRAPPED
        return wrapped or self.since.get(whole(owner), order) < order
