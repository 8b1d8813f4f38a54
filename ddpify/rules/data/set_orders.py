"""Where a program goes by the order of a set, before it trains.

Python draws anew in each process what it hashes texts by, so that each rank has another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts.containers import SETS
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.preparation import prepared
from ddpify.facts.scopes import Loop
from ddpify.facts.values import Kind, Value
from ddpify.rules.edits import is_local
from ddpify.source import Site

# What takes the elements one after another.
TAKES = tuple(f"builtins.{name}" for name in "list tuple enumerate iter zip".split())
# What gives the same whatever the order is; and `broadcast`, which makes it one.
_ANY_ORDER = (
    *(f"builtins.{name}" for name in "sorted set frozenset len sum min max any all".split()),
    "ddpify.runtime.broadcast",
)
_GROWS = (".append", ".extend", ".insert", "builtins.len")
# Texts, numbers and tuples of them: what comes of these is not theirs.
_NO_TEXTS = (
    *(Kind.MODEL, Kind.WRAPPED, Kind.CRITERION, Kind.PARAMETERS, Kind.OPTIMIZER, Kind.SCHEDULER),
    *(Kind.LOADER, Kind.SAMPLER, Kind.BATCH, Kind.FORWARD, Kind.STATE, Kind.TRACKER, Kind.LOGGER),
    *(Kind.MODULE, Kind.FUNCTION, Kind.CLASS, Kind.METHOD, Kind.INSTANCE, Kind.INDEX, Kind.DEVICE),
)
_PARTS = (".parameters", ".named_parameters", ".modules", ".named_modules", ".children")


@dataclass(frozen=True)
class Ordered:
    """A place that goes by the order of a set: a list made of it, or else the set."""

    site: Site
    is_list: bool
    use: Call


def set_orders(facts: Facts) -> Iterator[Ordered]:
    """Each place, once for every way that leads there."""
    for call in facts.named(*TAKES):
        for value, site in zip(call.args, call.arg_sites, strict=False):
            if _of_texts(facts, value, site) and not _in_any_order(facts, call):
                whole = call.name == TAKES[0]
                yield Ordered(call.site if whole else site, whole, call)
    for loop, use in _loops(facts):
        if _of_texts(facts, loop.over, loop.header):
            yield Ordered(loop.header, False, use)


def _loops(facts: Facts) -> Iterator[tuple[Loop, Call]]:
    """Loops that add to a list, or number what they meet."""
    for call in facts.named(*_GROWS):
        if call.where.loop is not None:
            yield call.where.loop, call


def _of_texts(facts: Facts, value: Value, site: Site) -> bool:
    """Whether a value is a set, perhaps of texts."""
    sets = [t for t in value.things if t.name in SETS and t.kind in (Kind.ITERATOR, Kind.TUPLE)]
    parts = [each for t in sets for each in (*(t.items or ()), t.inner) if each is not None]
    if not sets or len(sets) < len(value.things) or not parts:
        return False
    if any(each.of(*_NO_TEXTS) or each.dep(*_NO_TEXTS) for each in parts):
        return False
    if all(each.known and not isinstance(each.const, str) for each in parts):
        return False
    return not any(call.name in _PARTS and call.site.within(site) for call in facts.calls)


def _in_any_order(facts: Facts, call: Call) -> bool:
    """``sorted(list(names))``, or a list that is sorted later."""
    around = (site for one in facts.named(*_ANY_ORDER) for site in one.arg_sites)
    later = (c.receiver for c in facts.named(".sort") if c.order > call.order)
    things = set(call.result.things)
    return call.site in around or any(not things.isdisjoint(v.things) for v in later if v)


def while_training(facts: Facts, use: Call) -> bool:
    """Whether this is in the loops that train, or after them: no rank goes by it."""
    loops = {loop.site for one in facts.training for loop in (one.batch, one.epoch) if loop}
    first = min((one.backward.order for one in facts.training), default=use.order)
    return use.order > first or any(loop.site in loops for loop in use.where.loops())


def cannot_meet(facts: Facts, use: Call) -> bool:
    """Whether ranks cannot tell each other there: some do not come, or each in its turn."""
    first = use.where.stack[0] if use.where.stack else use.site
    guard = facts.entry.guard
    inside = not guard or any(first.within(statement) for statement in guard)
    if first.path != facts.entry.path or not inside:
        return True  # before there is a process group
    local = any(is_local(facts, one.test) for one in use.where.conditions())
    return local or prepared(use, facts.preparations)
