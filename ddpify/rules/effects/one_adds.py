"""Files that all ranks open to add to, and one adds to: it alone fills the list of lines."""

from __future__ import annotations

import ast

from ddpify.ranks.model import RANK0, RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import scope, scope_nodes

_FILLS = frozenset(("append", "extend", "insert"))
_WRITES = frozenset(("write", "writelines"))
_IDLE = frozenset(("close", "flush", "__enter__", "__exit__"))
_ASKS = frozenset(("print", "len", "enumerate"))


def one_adds(run: Run, call: RankCall) -> bool:
    """``for line in lines: log.write(line)`` where ``lines.append(…)`` is of one rank: the file is
    opened to add to, so that the other ranks, whose lists are empty, leave it as it is."""
    opened = set(call.result.things) if call.result is not None else set()
    uses = [
        one
        for one in run.calls
        if one.method not in _IDLE and any(not opened.isdisjoint(v.things) for v in one.inputs)
    ]
    return bool(uses) and all(one.method in _WRITES and _is_of_one(run, one) for one in uses)


def _is_of_one(run: Run, add: RankCall) -> bool:
    if add.ranks in (RANK0, RANK1):
        return True
    around = (n for n in scope_nodes(add) if isinstance(n, ast.For))
    names = [
        loop.iter.id
        for loop in around
        if isinstance(loop.iter, ast.Name) and add.node in ast.walk(loop)
    ]
    return any(_is_filled_by_one(run, add, name) for name in names)


def _is_filled_by_one(run: Run, add: RankCall, name: str) -> bool:
    """Whether a list is empty wherever it is bound, and only one rank puts something into it."""
    here = scope(add)
    named = [n for n in ast.walk(here) if isinstance(n, ast.Name) and n.id == name]
    bound = [n for n in named if isinstance(n.ctx, ast.Store)]
    empty = [
        node
        for node in ast.walk(here)
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and node.targets[0] in bound
        and isinstance(node.value, ast.List)
        and not node.value.elts
    ]
    filled: set[ast.expr] = set()
    seen: set[ast.expr] = {*bound}
    for node in ast.walk(here):
        if isinstance(node, ast.For):
            seen.add(node.iter)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            seen |= set(node.args) if node.func.id in _ASKS else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            filled |= {node.func.value} if node.func.attr in _FILLS else set()
    if not set(named) <= seen | filled:
        return False  # another name for it, or what may fill it: nobody knows
    filled.intersection_update(named)
    fills = [
        one
        for one in run.methods(*_FILLS)
        if isinstance(one.node.func, ast.Attribute) and one.node.func.value in filled
    ]
    read = {one.node.func.value for one in fills if isinstance(one.node.func, ast.Attribute)}
    known = len(empty) == len(bound) > 0 and filled <= read
    return known and all(one.ranks in (RANK0, RANK1) for one in fills)
