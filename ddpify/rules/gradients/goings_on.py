"""Where a script changes what its training goes on with: rates, schedules, frozen weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.events import Where
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.source import Site

_TRAINED: Final = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS)


def states(facts: Facts) -> Iterator[tuple[Site, Where, Value, str]]:
    """The place of each such change, what is stored there, and what is done, in words."""
    for bind in facts.binds:
        tree = facts.tree(bind.site)
        node = tree.expression(bind.site)
        base = facts.values.get(tree.site(node.value)) if isinstance(node, ast.Subscript) else None
        if base is not None and base.dep(Kind.OPTIMIZER):
            yield bind.site, bind.where, bind.value, "set the optimizer's options"
    for access in facts.accesses:
        if access.stored and access.attribute == "requires_grad" and access.base.dep(*_TRAINED):
            yield access.where.statement, access.where, NOTHING, "freeze weights"
    for call in facts.calls:
        owner = call.receiver
        if owner is not None and call.name == ".load_state_dict" and owner.of(*_TRAINED):
            yield call.site, call.where, NOTHING, "load weights"
        if owner is not None and call.name == ".step" and owner.of(Kind.SCHEDULER):
            yield call.site, call.where, NOTHING, "go on with the schedule"
        if owner is not None and call.name == ".add_param_group" and owner.of(Kind.OPTIMIZER):
            yield call.site, call.where, NOTHING, "give the optimizer more parameters"
