"""What a loop does that outlives it: values it keeps, lists that grow, what it shows.

An evaluation can only be shared out where all of that is combined after the loop.
"""

from __future__ import annotations

import ast

from ddpify.facts import entry_sums, later, owners
from ddpify.facts.containers import GROWS
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Bind, Call, LoopEnd
from ddpify.facts.joining import is_zero
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import is_local
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.sinks import SHOWN
from ddpify.facts.values import NOTHING, Measure
from ddpify.source import Site

METER = frozenset({"self.sum", "self.count", "self.avg", "self.val"})


def keeps(m: Machine, bind: Bind, end: LoopEnd, node: ast.stmt) -> bool:
    """Whether a value outlives the loop that is not one of its sums, local or not.

    A count of passes is the same on no two ranks, though no sample is in it.
    """
    tree = m.tree(end.loop.site.path)
    own = bind.where.frame.stack == end.loop.frame.stack
    if own and bind.target in (*end.sums, *end.reduced, *end.samples, *end.batches):
        return bind.target in end.sums and _begins_again(bind)
    if "[" in bind.target:
        entries = entry_sums.stored_in(bind)
        return not entries or any(thing.born not in end.dicts for thing in entries)
    if "." in bind.target:
        if own and not later.read_after(m.trees, bind.where.frame, node, bind.target):
            return False
        return not _is_combined(m, bind, end)
    if not own:
        return _is_of_another_scope(bind) or _changes_argument(m, bind)
    return _is_of_another_scope(bind) or tree.read_after(node, bind.target)


def _is_of_another_scope(bind: Bind) -> bool:
    frame = bind.where.frame
    return bind.target in frame.globals_ | frame.nonlocals


def _begins_again(bind: Bind) -> bool:
    """``total = 0`` in the loop: what is left then is of the last batches."""
    return bind.value.measure is Measure.UNIFORM and is_zero(bind.value)


def _is_combined(m: Machine, bind: Bind, end: LoopEnd) -> bool:
    """Whether an attribute is reduced after the loop, or nobody looks at it any more."""
    key = owners.key_of(bind)
    if key in end.owned:
        return True
    if bind.target in METER and _is_one_of(bind.where.frame, end):
        return True
    known = key is not None and any(key[0] is thing for thing, _ in end.owned)
    return key is not None and known and not owners.read_elsewhere(m, *key, end.loop)


def _changes_argument(m: Machine, bind: Bind) -> bool:
    """``def add(matrix, …): matrix += …`` changes the caller's array."""
    node = m.tree(bind.site.path).statement(bind.site)
    in_place = isinstance(node, (ast.AugAssign, ast.Expr))
    return in_place and bind.target in bind.where.frame.parameters and is_local(m, bind.value)


def _is_one_of(frame: Frame, end: LoopEnd) -> bool:
    """Whether a method runs on one of the meters that are reduced after the loop."""
    meters = [end.loop.frame.lookup(name) for name in (*end.meters, *end.reduced)]
    return any(frame.self_thing in value.things for value in meters if value is not None)


def shows_local(m: Machine, call: Call) -> bool:
    """Whether a call for its own sake shows or collects something."""
    if not call.alone or call.target is not None:
        return False
    values = [*call.args, *call.kwargs.values()]
    if effect_of(call) is not None or (call.receiver and call.receiver.of(*SHOWN)):
        return any(is_local(m, value) for value in values)
    if call.name[1:] in GROWS and call.name[:1] == ".":
        return True
    return call.name not in (".eval", ".train") and any(is_local(m, value) for value in values)


def is_followed(m: Machine, call: Call, end: LoopEnd, understood: set[Site]) -> bool:
    """Whether a call only adds to what is combined after the loop, or to what ends with it."""
    changed = (call.receiver_site, *call.arg_sites[:1])
    if call.name[1:] not in GROWS:
        return any(site in understood for site in changed)
    if call.where.frame.stack == end.loop.frame.stack and call.receiver_site is not None:
        name = m.tree(call.site.path).source.segment(call.receiver_site.span)
        if name in (*end.samples, *end.batches, *end.reduced):
            return True
    return _made_in(call, end)


def _made_in(call: Call, end: LoopEnd) -> bool:
    """Whether a list is made anew in each pass: in the loop, or in a function it calls."""
    frame, receiver = call.where.frame, call.receiver
    if receiver is None or not receiver.of(*CONTAINERS):
        return False
    if frame.stack == end.loop.frame.stack:
        return all(t.born.within(end.loop.site) for t in receiver.things)
    info = frame.function
    if info is None or info is end.loop.function:
        return False
    passed = {t for name in frame.parameters for t in frame.env.get(name, NOTHING).things}
    return all(t.born.within(info.site) and t not in passed for t in receiver.things)
