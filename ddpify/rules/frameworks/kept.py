"""Whether blocks can keep their weights from each forward to its backward.

They then do without a step's news until a backward has shared them out again; and until then what
is asked of the model by name, such as ``model.zero_grad()``, finds other parameters (measured).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Call, Forward
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.roles import backwards
from ddpify.facts.values import NOTHING, Kind
from ddpify.rules.frameworks.weights import LayerUse, method_of, use_of
from ddpify.rules.shared.shards import Shards
from ddpify.site import Site

_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Try)
_ASKS = frozenset({".parameters", ".named_parameters", ".zero_grad"})


def kept_too_long(facts: Facts) -> Iterator[tuple[Site, str]]:
    """Forwards with gradients behind which no backward is certain, and looks at weights between."""
    shards, back = Shards.of(facts), backwards(facts.calls)
    yield from _beside(facts, shards)
    for forward in facts.forwards:
        if _without(facts, forward.call) or not shards.is_sharded(forward.model, forward.order):
            continue
        after = next((call for call in back if _follows(facts, call, forward)), None)
        if after is None:
            yield forward.call.site, "a backward may not follow this forward"
            continue
        for call in facts.calls:
            asked = (call.receiver or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
            if forward.order < call.order < after.order and call.name in _ASKS and asked:
                yield call.site, "weights are asked for between a forward and its backward"


def _beside(facts: Facts, shards: Shards) -> Iterator[tuple[Site, str]]:
    """Methods that compute with gradients: what they give is not followed to a backward."""
    for call in facts.calls:
        owners = (call.receiver or NOTHING).of(Kind.MODEL, Kind.WRAPPED)
        sharded = any(shards.is_sharded(owner, call.order) for owner in owners)
        computes = (use_of(*one) is not LayerUse.NOTHING for one in method_of(call))
        if sharded and not _without(facts, call) and any(computes):
            yield call.site, "a backward may not follow this method, which computes"


def _without(facts: Facts, call: Call) -> bool:
    """Whether gradients are off, for certain."""
    switched = any(one.alone for one in facts.named("torch.set_grad_enabled"))
    return call.where.no_grad and not switched


def _follows(facts: Facts, call: Call, forward: Forward) -> bool:
    """Whether a backward through an output comes whenever its forward has been."""
    given = (call.receiver or NOTHING, *call.args)
    if call.order < forward.order or not any(forward.output in behind(flat_deps(v)) for v in given):
        return False
    here, there = forward.call.where, call.where
    alike = here.loops() == there.loops() and set(there.guards) <= set(here.guards)
    return alike and _runs_on(facts, here.statement, there.statement)


def _runs_on(facts: Facts, first: Site, last: Site) -> bool:
    """Whether nothing leaves a function, or a round of its loop, between two of its statements."""
    tree = facts.tree(first)
    start, end = tree.statement(first), tree.statement(last)
    if start is None or end is None or first.path != last.path:
        return False
    around = tree.function(start)
    tried = any(isinstance(node, ast.Try) for node in tree.ancestors(start))
    between = range(start.lineno, end.lineno + 1)
    left = (n for n in tree.nodes(around) if isinstance(n, _LEAVES) and n.lineno in between)
    return around is tree.function(end) and not tried and not any(left)
