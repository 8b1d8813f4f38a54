"""Which conditions let rank 0 in, and no other: ``rank == 0``, ``is_main``, ``is_main()``."""

from __future__ import annotations

import ast

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind


def is_first_rank(facts: Facts, tree: Tree, node: ast.expr, depth: int = 3) -> bool:
    """Whether a condition holds on rank 0 alone, or in one process."""
    if depth == 0:
        return False
    if isinstance(node, ast.Compare):
        return _is_compared(facts, tree, node)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return any(is_first_rank(facts, tree, one, depth) for one in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return "rank" in tree.text(node.operand).lower() and _is_rank(facts, tree, node.operand)
    if isinstance(node, ast.Name | ast.Attribute):
        return _all_so(facts, _assigned(facts, _last(node)), depth)
    if isinstance(node, ast.Call):
        return _all_so(facts, _returned(facts, _last(node.func)), depth)
    return False


def _all_so(facts: Facts, found: list[tuple[Tree, ast.expr]], depth: int) -> bool:
    """Whether one of these is such a condition, and the others are those of one process."""
    others = [node for tree, node in found if not is_first_rank(facts, tree, node, depth - 1)]
    alone = all(isinstance(one, ast.Constant) and one.value is True for one in others)
    return len(others) < len(found) and alone


def _is_compared(facts: Facts, tree: Tree, node: ast.Compare) -> bool:
    """``rank == 0``, ``rank in (-1, 0)``, ``rank < 1``."""
    if len(node.ops) != 1:
        return False
    one, other = node.left, node.comparators[0]
    if isinstance(one, ast.Constant):
        one, other = other, one
    values = {n.value for n in ast.walk(other) if isinstance(n, ast.Constant)}
    if isinstance(node.ops[0], ast.Eq):
        first = isinstance(other, ast.Constant) and other.value == 0 and other.value is not False
    else:
        first = isinstance(node.ops[0], ast.In) and values in ({0}, {0, 1}, {0, -1})
        first = first and ast.unparse(other).replace("-1", "").count("1") == 0
    return first and _is_rank(facts, tree, one)


def _is_rank(facts: Facts, tree: Tree, node: ast.expr) -> bool:
    value = facts.values.get(tree.site(node))
    return value is not None and bool(value.dep(Kind.RANK))


def _last(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _assigned(facts: Facts, name: str) -> list[tuple[Tree, ast.expr]]:
    """What any name or attribute that is called so is given."""
    found = []
    for tree in facts.trees.values():
        for node in tree.nodes():
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if isinstance(node, ast.Assign) and any(_last(one) == name for one in targets):
                found.append((tree, node.value))
    return found


def _returned(facts: Facts, name: str) -> list[tuple[Tree, ast.expr]]:
    found = []
    for tree in facts.trees.values():
        for node in tree.nodes():
            if isinstance(node, ast.FunctionDef) and node.name == name:
                returns = (one for one in ast.walk(node) if isinstance(one, ast.Return))
                found += [(tree, one.value) for one in returns if one.value is not None]
    return found
