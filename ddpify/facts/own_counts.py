"""Models that count their calls, or hand something on from one to the next. ::

    def forward(self, x):
        self.calls += 1
        self.state = self.cell(x, self.state)

Of an evaluation that is shared out a rank's model sees fewer batches, and ends with another count.
What only training calls do (``if self.training``) is the same on all ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ddpify.facts.carrying import led_to
from ddpify.facts.events import Forward
from ddpify.facts.norms import built, by_class
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import calls_of, whole
from ddpify.facts.scopes import ClassInfo

GROWS = frozenset("append extend add update add_ sub_ mul_ div_".split())


def counts(m: Machine, forward: Forward) -> bool:
    """Whether what a model gives may depend on how often it, or a part of it, was called."""
    classes = built(whole(forward.model), by_class(calls_of(m)))
    grown = {name for info in classes for name in _grown(info) if name}
    return not all(_is_begun(m, forward, name, classes) for name in grown)


def _grown(info: ClassInfo) -> Iterator[str]:
    """Attributes that a ``forward``, or a method that it calls, makes of what they were."""
    for method in led_to(info):
        trains = {part for node in ast.walk(method) if _asks_mode(node) for part in ast.walk(node)}
        begun = {name for statement in method.body for name in _begun(statement)}
        for node in ast.walk(method):
            if node not in trains:
                yield from set(_grows(node)) - begun


def _asks_mode(node: ast.AST) -> bool:
    """``if self.training:``"""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("self.training")


def _begun(statement: ast.stmt) -> Iterator[str]:
    """``self.found = []``: anew in each call."""
    if isinstance(statement, ast.Assign) and not set(_grows(statement)):
        yield from filter(None, map(_own, statement.targets))


def _grows(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.AugAssign(target=target):
            yield _own(target)
        case ast.Assign(targets=targets, value=value):
            stored = {
                name for target in targets for part in ast.walk(target) if (name := _own(part))
            }
            yield from stored & {_read(part) for part in ast.walk(value)}
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=kept, attr=attr))) if attr in GROWS:
            yield _own(kept)


def _own(node: ast.AST) -> str:
    """``self.name``, or an entry of it: the name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    match node:
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return name
    return ""


def _read(node: ast.AST) -> str:
    """``self.name`` or ``getattr(self, "name", 0)``: the name."""
    match node:
        case ast.Call(func=ast.Name("getattr"), args=[ast.Name("self"), ast.Constant(name), *_]):
            return str(name)
    return _own(node)


def _is_begun(m: Machine, forward: Forward, name: str, classes: Collection[object]) -> bool:
    """Whether the loop around a call begins this anew: ``model.state = None`` for each batch."""
    loop = forward.call.where.loop
    inside = {n for info in classes if isinstance(info, ClassInfo) for n in led_to(info)}
    for access in m.events.accesses(name) if loop is not None else ():
        own = access.where.function
        ours = any(thing.ref in classes for thing in map(whole, access.base.things))
        around = loop is not None and loop.site in {one.site for one in access.where.loops()}
        if access.stored and ours and around and (own is None or own.node not in inside):
            return True
    return False
