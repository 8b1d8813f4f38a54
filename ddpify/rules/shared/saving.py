"""What goes into checkpoints, and whose state is not that of one process."""

from __future__ import annotations

import ast

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Value
from ddpify.strategies.base import Strategy


def saves_of(facts: Facts) -> tuple[Call, ...]:
    """Calls that write a checkpoint, those that an earlier migration has left included."""
    saves = (one.call for one in facts.effects if one.kind is EffectKind.CHECKPOINT)
    return (*saves, *facts.named("ddpify.runtime.save_on_main"))


def is_distributed(owner: Value | None, strategy: Strategy) -> bool:
    """Whether it is a model that is wrapped, or sharded as its optimizers are."""
    kinds = (Kind.WRAPPED, Kind.OPTIMIZER) if strategy.shards else (Kind.WRAPPED,)
    return owner is not None and bool(owner.of(*kinds))


def is_only_written(facts: Facts, call: Call) -> bool:
    """Whether a state goes into a file as it is: ``{"model": net.state_dict()}``."""
    tree, saves = facts.tree(call.site), {save.site for save in saves_of(facts)}
    node = tree.expression(call.site)
    for above in tree.ancestors(node) if node is not None else ():
        if not isinstance(above, (ast.Dict, ast.List, ast.Tuple, ast.keyword)):
            return isinstance(above, ast.Call) and tree.site(above) in saves
    return False
