"""Steps that a program takes itself, without an optimizer. ::

for p in model.parameters():
    p.data.add_(p.grad, alpha=-lr)      # or `p -= lr * p.grad`
"""

from __future__ import annotations

import ast

from ddpify.facts.details import Optimized
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value, one
from ddpify.source import Site

ADDS = frozenset({".add_", ".sub_"})


def by_call(m: Machine, f: Frame, receiver: Value, call: Call) -> None:
    """Say of ``p.data.add_(p.grad, alpha=-lr)`` which parameters it steps."""
    node = m.tree(call.site.path).expression(call.site) if call.name in ADDS else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if _adds_gradients(m.tree(call.site.path), node.func.value, given):
            call.steps = _stepped(m, f, receiver, call.site)


def by_assignment(m: Machine, f: Frame, node: ast.AugAssign, target: ast.expr) -> None:
    """Record ``p -= lr * p.grad`` as a step."""
    plain = isinstance(node.op, (ast.Add, ast.Sub)) and not isinstance(target, ast.Subscript)
    if plain and _adds_gradients(m.tree(f.module.source.path), target, [node.value]):
        value, site = m.evaluate(f, target), m.site(f, node)
        call = Call(m.tick(), ".sub_", site, site, m.where(f), (), {}, (), {}, value)
        call.steps = _stepped(m, f, value, site)
        if call.steps is not None:
            m.record(call)


def _adds_gradients(tree: Tree, target: ast.expr, given: list[ast.expr]) -> bool:
    """Whether gradients are added to what is none."""
    parts = (part for each in given for part in ast.walk(each))
    return any(_is_gradient(tree, part) for part in parts) and not _is_gradient(tree, target)


def _stepped(m: Machine, f: Frame, value: Value, site: Site) -> Thing | None:
    """What stands for an optimizer of these parameters; an optimizer's own method is one."""
    parameters = value.dep(Kind.PARAMETERS)
    own = f.self_thing is not None and f.self_thing.kind is Kind.OPTIMIZER
    if not parameters or own:
        return None
    made = m.make(Kind.OPTIMIZER, f, site, "by hand")
    made.describe(Optimized(one(parameters[0], parameters)))
    return made


def _is_gradient(tree: Tree, node: ast.AST) -> bool:
    """``p.grad``, ``p.grad.data``, and a name that is bound to that."""
    while isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    if isinstance(node, ast.Name):
        return any(
            isinstance(each, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
            and any(
                isinstance(part, ast.Attribute) and part.attr == "grad"
                for part in ast.walk(each.value)
            )
            for each in tree.nodes(tree.function(node))
        )
    return isinstance(node, ast.Attribute) and node.attr == "grad"
