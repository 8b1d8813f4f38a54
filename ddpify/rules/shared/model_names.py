"""What a model is called by where a loop begins that calls it, be it in functions below."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Forward
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.values import Value


def name_at(facts: Facts, forward: Forward, loop: Loop) -> str | None:
    """What the model is called where the loop is."""

    def same(value: Value) -> bool:
        return bool(value.things) and all(whole(t).born in alike for t in value.things)

    model = whole(forward.model).born
    alternatives = ({t.born for t in m.things} for m in facts.models)
    alike = next((one for one in alternatives if model in one), {model})
    tree = facts.tree(forward.call.site)
    node = tree.expression(forward.call.owner_site)
    if isinstance(node, ast.Call) and node.args:  # unwrap(net)(inputs)
        node = node.args[0]
    if isinstance(node, (ast.Name, ast.Attribute)) and forward.call.where.function is loop.function:
        return ast.unparse(node)
    names = (*loop.frame.env.items(), *_fields(loop), *_around(loop))
    found = next((name for name, value in names if same(value)), None)
    return found or _own_field(node, forward.call.where.frame, loop)


def _own_field(node: ast.AST | None, frame: Frame, loop: Loop) -> str | None:
    """``self.net``, which may be any of many, as another method of the loop's object calls it."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return None
    own, there = (next(iter(f.parameters), "") for f in (loop.frame, frame))
    same = frame.self_thing is not None and frame.self_thing is loop.frame.self_thing
    return f"{own}.{node.attr}" if same and node.value.id == there else None


def _fields(loop: Loop) -> Iterator[tuple[str, Value]]:
    """What the object whose method the loop is in keeps: ``self.model``."""
    me, own = loop.frame.self_thing, next(iter(loop.frame.parameters), "")
    for field, kept in me.attrs.items() if me is not None else ():
        yield f"{own}.{field}", kept


def _around(loop: Loop) -> Iterator[tuple[str, Value]]:
    """What the functions around the loop's own, and its module, bind and nothing nearer does."""
    names = {*loop.frame.env}
    frame = loop.frame.outer
    while frame is not None:
        yield from ((name, kept) for name, kept in frame.env.items() if name not in names)
        names |= {*frame.env}
        frame = frame.outer
    held = loop.frame.module.globals
    yield from ((name, kept) for name, kept in held.items() if name not in names)
