"""What goes into checkpoints, and whose state is not that of one process."""

from __future__ import annotations

import ast

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind
from ddpify.names import OF_CHECKPOINTS
from ddpify.rules.shared.shards import Shards
from ddpify.strategies.base import Strategy


def saves_of(facts: Facts) -> tuple[Call, ...]:
    """Calls that write a checkpoint, those that an earlier migration has left included."""
    saves = (one.call for one in facts.effects if one.kind is EffectKind.CHECKPOINT)
    return (*saves, *facts.named(*OF_CHECKPOINTS))


def is_distributed(facts: Facts, call: Call, strategy: Strategy) -> bool:
    """Whether a method is one of a model that is wrapped, or sharded as its optimizers are."""
    owner = call.receiver or NOTHING
    if not strategy.shards:
        return bool(owner.of(Kind.WRAPPED))
    shards = Shards.of(facts)
    models = owner.of(Kind.WRAPPED, Kind.MODEL, Kind.UNKNOWN)  # `model.head` may be unknown
    return bool(owner.of(Kind.OPTIMIZER)) or any(shards.is_sharded(t, call.order) for t in models)


def is_only_written(facts: Facts, call: Call) -> bool:
    """Whether a state goes into a file as it is: ``{"model": net.state_dict()}``."""
    tree, saves = facts.tree(call.site), {save.site for save in saves_of(facts)}
    node = tree.expression(call.site)
    for above in tree.ancestors(node) if node is not None else ():
        if not isinstance(above, (ast.Dict, ast.List, ast.Tuple, ast.keyword)):
            return isinstance(above, ast.Call) and tree.site(above) in saves
    return False
