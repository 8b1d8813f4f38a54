"""What a tensor is turned into: another type, another device. It stays the thing it was made as."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpify.ranks.assigning import is_tensor
from ddpify.ranks.model import ALL, RankCall, RankThing, RankValue
from ddpify.ranks.protocol import RankMachine


@dataclass(eq=False, repr=False)
class Cast(RankThing):
    """A tensor was turned by ``call`` on these ranks; among the things it was computed from."""

    ranks: int = ALL

    __hash__ = RankThing.__hash__


def turned(m: RankMachine, one: RankCall, receiver: RankValue) -> RankValue:
    """``x.double()``, ``x.to(device)``: the tensor, and that it was turned."""
    if not is_tensor(receiver) or any(t.name.startswith("torch.nn.") for t in receiver.things):
        return receiver
    mark = Cast("mark", one.method, one.site, one, ranks=m.live)
    return replace(receiver, deps=receiver.deps | {mark})


def casts(value: RankValue, thing: RankThing, rank: int) -> list[RankCall]:
    """What turned a thing on a rank, in order."""
    found = [
        one.call
        for one in value.made_from
        if isinstance(one, Cast) and one.call is not None and one.ranks & (1 << rank)
    ]
    mine = [c for c in found if c.receiver is not None and thing in c.receiver.things]
    return sorted(mine, key=lambda call: call.order)
