"""Branches that a setting rules out today: `SAVE = False` at a script's top is true tomorrow."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing


def other_branch(m: Machine, f: Frame, node: ast.If, holds: bool) -> Sequence[ast.stmt]:
    """The branch that is not taken, if only a setting decides that; none where code does."""
    other = node.orelse if holds else node.body
    if not other or not isinstance(node.test, (ast.Name, ast.Subscript, ast.UnaryOp)):
        return ()
    test = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    return other if _is_setting(m, f, test) else ()


def _is_setting(m: Machine, f: Frame, test: ast.expr) -> bool:
    if isinstance(test, ast.Name):
        return _is_switch(m, f, test.id)
    if not isinstance(test, ast.Subscript) or not isinstance(test.value, ast.Name):
        return False
    table = f.lookup(test.value.id)
    things = table.things if table is not None else ()
    return bool(things) and all(_is_table(m, thing) for thing in things)


def _is_switch(m: Machine, f: Frame, name: str) -> bool:
    """``SAVE = False`` of this module, which nothing else binds."""
    frame: Frame | None = f
    while frame is not None:
        if name in frame.env and (frame.function is not None or frame.in_class):
            return False
        frame = frame.outer
    module = m.tree(f.module.source.path).module
    bound = [n for n in ast.walk(module) if isinstance(n, ast.Name) and n.id == name]
    stored = [n for n in bound if not isinstance(n.ctx, ast.Load)]
    made = [s for s in module.body if isinstance(s, ast.Assign) and s.targets == stored]
    return len(made) == 1 and _is_literal(made[0].value)


def _is_table(m: Machine, thing: Thing) -> bool:
    """``args = {"save": False}`` at the top of a module."""
    if thing.kind is not Kind.DICT or not thing.born.path.endswith(".py"):
        return False
    tree = m.tree(thing.born.path)
    node = tree.expression(thing.born)
    return isinstance(node, ast.Dict) and isinstance(tree.function(node), ast.Module)


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)
