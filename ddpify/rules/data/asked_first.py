"""What is asked of the disk before something is fetched or built."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.source import Site


def asked_first(facts: Facts, calls: Sequence[Call]) -> Site | None:
    """``if not exists(path): fetch(path)``: who asks once rank 0 has begun would not come along.

    The whole `if` goes first, where nothing else is done in it.
    """
    tree = facts.tree(calls[0].site)
    node = tree.statement(calls[0].site)
    around = next(tree.ancestors(node), None) if node is not None else None
    if not isinstance(around, ast.If) or around.body != [node] or around.orelse:
        return None
    test = tree.site(around.test)
    tests = [g for call in calls for g in call.where.guards if g.site.within(test)]
    return tree.site(around) if any(g.test.dep(Kind.FILES) for g in tests) else None
