"""What a loop over batches does with their number, which is another on ranks with shares."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts import carried
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.sinks import SHOWN
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind


def numbers(m: Machine, tree: Tree, node: ast.For) -> Iterator[str]:
    """The names that ``enumerate`` gives the number of a batch and that the loop looks at."""
    body = [tree.site(statement) for statement in node.body]
    for inner in (n for statement in node.body for n in ast.walk(statement)):
        value = m.values.get(tree.site(inner)) if isinstance(inner, ast.Name) else None
        for index in value.dep(Kind.INDEX) if value is not None else ():
            outside = not any(index.born.within(site) for site in body)
            if index.name == "enumerate" and outside and isinstance(inner, ast.Name):
                yield inner.id


def decide(m: Machine, tree: Tree, node: ast.stmt, calls: Iterable[Call]) -> bool:
    """Whether anything but a message depends on how many batches there were, or on earlier ones.

    ``if i < 5: total += …`` takes other samples where each rank counts the batches of its share.
    """
    if not isinstance(node, ast.For):
        return False
    names = carried.carried(node) | set(numbers(m, tree, node))
    messages = {call.site for call in calls if _is_message(call)}
    for inner in (n for statement in node.body for n in ast.walk(statement)):
        if isinstance(inner, (ast.If, ast.While, ast.IfExp)) and _mentions(inner.test, names):
            blocks = [] if isinstance(inner, ast.IfExp) else [*inner.body, *inner.orelse]
            if not blocks or any(
                not isinstance(s, ast.Expr) or tree.site(s.value) not in messages for s in blocks
            ):
                return True
    return False


def _mentions(test: ast.expr, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(test))


def _is_message(call: Call) -> bool:
    shown = call.receiver is not None and bool(call.receiver.of(*SHOWN))
    return shown or effect_of(call) is not None
