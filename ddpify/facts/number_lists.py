"""Lists with a mean, or a sum, of each batch: ranks have as many entries, and join each. ::

losses.append(loss.item())
...
losses[:] = reduce_mean(losses)
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.facts.events import Call
from ddpify.facts.joining import flat_deps, listed
from ddpify.facts.locality import is_local
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value

LISTS = (Kind.TUPLE, Kind.ITERATOR)


def gets(m: Machine, thing: Thing, value: Value, changes: Sequence[Call]) -> Measure | None:
    """MEAN or SUM where a list, which these calls may change, gets one in each common pass."""
    mine = [c for c in changes if c.receiver is not None and thing in c.receiver.things]
    measure = listed(value)
    return measure if mine and all(_adds(m, call, measure) for call in mine) else None


def _adds(m: Machine, call: Call, measure: Measure | None) -> bool:
    one = call.args[0] if call.name == ".append" and len(call.args) == 1 else NOTHING
    alike = not any(is_local(m, guard.test) for guard in call.where.conditions())
    return alike and one.measure is measure


def joined(value: Value) -> None:
    """Such a list after the ranks have put each entry together, in place."""
    for thing in value.of(*LISTS) if listed(value) is not None else ():
        deps = flat_deps(thing.inner or NOTHING)
        thing.inner = Value((), frozenset(d for d in deps if d.kind is not Kind.BATCH))
