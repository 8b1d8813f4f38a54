"""Methods that Python calls by itself: for ``with``, ``x[i]``, ``x + y``, decorators."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, functions_in
from ddpify.facts.values import Kind, Thing, Value, one
from ddpify.source import Site

OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.BitOr: "__or__",
    ast.RShift: "__rshift__",
    ast.MatMult: "__matmul__",
}
CALLABLE: Final = (Kind.FUNCTION, Kind.METHOD, Kind.CLASS, Kind.INSTANCE, Kind.UNKNOWN)


def special(
    m: Machine, f: Frame, thing: Thing, name: str, args: tuple[Value, ...], site: Site
) -> Value | None:
    """What a method of an object gives, None when its class does not write one."""
    if thing.kind is not Kind.INSTANCE or not isinstance(thing.ref, ClassInfo):
        return None
    found = thing.ref.lookup(name)
    if found is None:
        return None
    return m.apply(f, m.bind_method(thing, found, site), args, site)


def entered(m: Machine, f: Frame, value: Value) -> Value:
    """What ``with value as x`` binds: what ``__enter__`` gives, or what a generator yields."""
    if not value.things:
        return value
    assert f.statement is not None
    given = []
    for thing in value.things:
        own = special(m, f, thing, "__enter__", (), f.statement)
        if own is None and thing.kind is Kind.ITERATOR and thing.inner is not None:
            own = thing.inner
        given.append(own if own is not None else value.but(things=(thing,)))
    return join(*given)


def operated(m: Machine, f: Frame, node: ast.BinOp, left: Value, right: Value) -> Value | None:
    """``left + right`` where a class of the project says what that is."""
    name = OPERATORS.get(type(node.op))
    if name is None or not left.of(Kind.INSTANCE):
        return None
    found = [special(m, f, thing, name, (right,), m.site(f, node)) for thing in left.things]
    given = [value for value in found if value is not None]
    return join(*given) if given else None


def attach_setter(f: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef, made: Thing) -> bool:
    """``@loader.setter``: the property of this name stays, and knows what sets it."""
    written = [ast.unparse(decorator) for decorator in node.decorator_list]
    known = f.env.get(node.name)
    if f"{node.name}.setter" not in written or known is None:
        return f"{node.name}.deleter" in written
    for thing in known.things:
        if isinstance(thing.ref, FunctionInfo) and isinstance(made.ref, FunctionInfo):
            thing.ref.setter = made.ref
    return True


def setter(thing: Thing, name: str) -> FunctionInfo | None:
    """What runs when an attribute of an object is set, None when it is just kept."""
    found = thing.ref.lookup(name) if isinstance(thing.ref, ClassInfo) else None
    return next((info.setter for info in functions_in(found)), None)


def decorated(
    m: Machine, f: Frame, made: Thing, decorators: tuple[Value, ...], site: Site
) -> Value:
    """What the name is bound to: decorators of the project are called, for what they register.

    The function itself is kept where they give a callable: the wrapper would call it anyway.
    """
    value = one(made)
    for decorator in reversed(decorators):
        if any(isinstance(t.ref, FunctionInfo) for t in decorator.things):
            given = m.apply(f, decorator, (value,), site)
            if given.things and not any(t.kind in CALLABLE for t in given.things):
                value = given
    return value
