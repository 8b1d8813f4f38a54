"""Lists with a mean of each batch: ranks have as many entries, and average each. ::

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


def gets_means(m: Machine, thing: Thing, value: Value, changes: Sequence[Call]) -> bool:
    """Whether a list, which these calls may change, gets one mean in each pass that ranks make."""
    mine = [c for c in changes if c.receiver is not None and thing in c.receiver.things]
    return bool(mine) and listed(value) is Measure.MEAN and all(_adds(m, call) for call in mine)


def _adds(m: Machine, call: Call) -> bool:
    one = call.args[0] if call.name == ".append" and len(call.args) == 1 else NOTHING
    alike = not any(is_local(m, guard.test) for guard in call.where.conditions())
    return alike and one.measure is Measure.MEAN


def averaged(value: Value) -> None:
    """Such a list after the ranks have averaged each entry, in place."""
    for thing in value.of(*LISTS) if listed(value) is Measure.MEAN else ():
        deps = flat_deps(thing.inner or NOTHING)
        thing.inner = Value((), frozenset(d for d in deps if d.kind is not Kind.BATCH))
