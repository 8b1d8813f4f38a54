"""Calls that a file makes when it is imported, before the script that imports it joins a group."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import Module
from ddpify.ranks.run import Run

_DEEP = 6
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension)


def made_by_imports(run: Run, join: RankCall) -> Iterator[RankCall]:
    """The calls of top levels that are run before a join, whenever they were read."""
    first = join.way[0]
    if first.function is not None or not run.script:
        return
    early = set(_imported(run, first.module, first.node.lineno, _DEEP))
    for call in run.calls:
        if call.function is None and call.module in early and _is_plain(call):
            yield call


def _imported(run: Run, module: Module, line: int | None, depth: int) -> Iterator[Module]:
    """The modules that a file imports at its top level, before a line, and those that they do."""
    known = {one.name: one for one in run.modules.values()}
    names = [name for node in module.tree.body for name in _names(module, node, line)]
    for found in (known[name] for name in names if name in known and depth):
        yield found
        yield from _imported(run, found, None, depth - 1)


def _names(module: Module, node: ast.stmt, line: int | None) -> Iterator[str]:
    if line is not None and node.lineno >= line:
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parent = module.name.rsplit(".", node.level)[0] if node.level else ""
        name = ".".join(part for part in (parent, node.module or "") if part)
        yield name
        yield from (f"{name}.{alias.name}" for alias in node.names)


def _is_plain(call: RankCall) -> bool:
    """Whether it is in a statement of the top level, under no condition."""
    for statement in call.module.tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
            nodes = list(ast.walk(statement))
            if any(node is call.node for node in nodes):
                return not any(isinstance(node, _BRANCHES) for node in nodes)
    return False
