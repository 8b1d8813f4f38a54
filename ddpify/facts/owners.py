"""Attributes of project objects that a loop changes: meters, confusion matrices, metrics.

``meter.update(...)`` in a loop changes what ``meter`` holds; after the loop it is reached by the
name the object has in the loop's function.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ddpify.facts.events import Bind
from ddpify.facts.joining import parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value

SHOWN = frozenset({"__str__", "__repr__", "__format__"})


@dataclass(frozen=True)
class Owned:
    """An attribute of an object: ``name`` is how the loop's function says it (``meter.sum``)."""

    name: str
    thing: Thing
    attribute: str
    adds: bool  # each statement that changes it in the loop adds to what was there


def changed(m: Machine, f: Frame, loop: Loop) -> tuple[Owned, ...]:
    """The attributes that methods change in a loop, of objects that have one name here."""
    binds: dict[tuple[Thing, str], list[Bind]] = {}
    for event in m.events.during(loop):
        if isinstance(event, Bind) and _runs_in(event, loop):
            key = key_of(event)
            if key is not None:
                binds.setdefault(key, []).append(event)
    found = []
    for (thing, attribute), events in binds.items():
        owner = _path(f, thing)
        if owner is not None:
            adds = all(_adds(m, event) for event in events)
            found.append(Owned(f"{owner}.{attribute}", thing, attribute, adds))
    return tuple(found)


def key_of(bind: Bind) -> tuple[Thing, str] | None:
    """The object and the attribute that a method binds."""
    thing = bind.where.frame.self_thing
    owner, _, attribute = bind.target.partition(".")
    names = bind.where.frame.parameters
    first = next(iter(names), None)
    if thing is None or thing.kind is not Kind.INSTANCE or owner != first:
        return None
    return (thing, attribute) if attribute.isidentifier() else None


def _runs_in(bind: Bind, loop: Loop) -> bool:
    return bind.where.frame.stack != loop.frame.stack and bind.where.runs_in(loop)


def _path(f: Frame, thing: Thing) -> str | None:
    """The expression by which a function names an object."""
    return next((name for name, value in f.named() if value.things == (thing,)), None)


def _adds(m: Machine, bind: Bind) -> bool:
    """Whether a statement adds to what it binds, or starts it where there was nothing."""
    tree = m.tree(bind.site.path)
    statement = tree.statement(bind.site)
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, (ast.Add, ast.Sub))
    if isinstance(statement, ast.Assign):
        reads = {ast.unparse(n) for n in ast.walk(statement.value) if isinstance(n, ast.Attribute)}
        return bind.target in reads or _started(tree, statement, bind.target)
    return isinstance(statement, ast.Expr) and "zero_" not in ast.unparse(statement)


def _started(tree: Tree, statement: ast.stmt, target: str) -> bool:
    """``if self.matrix is None: self.matrix = …``"""
    around = tree.ancestors(statement)
    return any(isinstance(a, ast.If) and ast.unparse(a.test) == f"{target} is None" for a in around)


def read_elsewhere(m: Machine, thing: Thing, attribute: str, loop: Loop) -> bool:
    """Whether anything outside of the loop looks at an attribute, as far as can be seen."""
    for event in m.events.accesses(attribute):
        if not event.stored and thing in event.base.things and not event.where.runs_in(loop):
            return True
    return any(_mentions(m.tree(path), attribute) for path in m.modules)


def _mentions(tree: Tree, attribute: str) -> bool:
    """``"{meter.val:.3f}".format(meter=meter)``, or a ``__str__`` that nobody sees called."""
    for node in tree.nodes():
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and f".{attribute}" in text and "{" in text:
            return True
        shown = isinstance(node, ast.FunctionDef) and node.name in SHOWN
        inside = ast.walk(node) if shown else ()
        if any(isinstance(n, ast.Attribute) and n.attr == attribute for n in inside):
            return True
    return False


def is_half(each: Owned, owned: list[Owned], unknown: tuple[Measure, ...]) -> bool:
    """Whether its class divides an attribute and another one that ranks cannot combine: `sum` of
    numbers that are not followed `/ count`."""
    info = each.thing.ref
    if not isinstance(info, ClassInfo):
        return False
    others = (o.attribute for o in owned if o.thing is each.thing)
    mixed = {a for a in others if each.thing.attrs.get(a, NOTHING).measure in unknown}
    mixed |= {a for a, value in each.thing.attrs.items() if _holds(value, unknown)}
    divisions = [n for n in ast.walk(info.node) if isinstance(n, ast.BinOp)]
    named = [_attributes_in(n) for n in divisions if isinstance(n.op, ast.Div)]
    return any(each.attribute in names and names & mixed for names in named)


def _holds(value: Value, unknown: tuple[Measure, ...]) -> bool:
    """Whether a list or a dict has entries that ranks cannot combine."""
    parts = (part for thing in value.of(*CONTAINERS) for part in parts_of(thing))
    return any(part.measure in unknown and part.measure is not Measure.UNIFORM for part in parts)


def _attributes_in(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
