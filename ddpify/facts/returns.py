"""Which ``return`` statements of a model's forward a call comes to.

A setting often decides how much a model returns, and the caller asks the same setting::

    if self.attention: return out, weights        # self.attention = args.attention, in __init__
    return out
    ...
    if args.attention: out = model(x)[0]          # not the first sample: the first of two outputs
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from ddpify.facts.details import call_that_made
from ddpify.facts.fresh import method_of
from ddpify.facts.roles import whole
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Guard
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.python.arguments import bind

Truth = Callable[[ast.expr], bool | None]


def reached(model: Thing, info: FunctionInfo, guards: Iterable[Guard]) -> list[ast.expr | None]:
    """What a forward may return where these conditions hold."""
    body = info.node.body
    if isinstance(body, ast.expr):
        return [body]
    asked = {g.test.things: g.holds for g in guards if len(g.test.of(Kind.ARGUMENT)) == 1}
    parameters = info.node.args.args
    owner = parameters[0].arg if parameters else ""

    def truth(test: ast.expr) -> bool | None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = truth(test.operand)
            return None if inner is None else not inner
        own = isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name)
        if (
            not own
            or not asked
            or model.part_of is not None
            or ast.unparse(test).partition(".")[0] != owner
        ):
            return None
        assert isinstance(test, ast.Attribute)
        return asked.get(_setting(whole(model), test.attr).things)

    return _returned(body, truth)[0]


def _returned(body: Sequence[ast.stmt], truth: Truth) -> tuple[list[ast.expr | None], bool]:
    """What statements may return, and whether none comes after them."""
    found: list[ast.expr | None] = []
    for statement in body:
        taken = truth(statement.test) if isinstance(statement, ast.If) else None
        if isinstance(statement, ast.If) and taken is not None:
            inner, ended = _returned(statement.body if taken else statement.orelse, truth)
        else:
            inner = [n.value for n in ast.walk(statement) if isinstance(n, ast.Return)]
            ended = isinstance(statement, ast.Return)
        found += inner
        if ended:
            return found, True
    return found, False


def _setting(model: Thing, name: str) -> Value:
    """The option that a model keeps under a name, from its constructor's arguments on."""
    init, made = method_of(model, "__init__"), call_that_made(model)
    if init is None or made is None or made.star or made.bound:
        return NOTHING
    source = _kept(model, init, name)
    given = bind(init.node.args, (NOTHING, *made.args), made.kwargs).given
    value = given.get(source[0], NOTHING) if source else NOTHING
    for attribute in source[1:]:  # `configs.attention`
        held = [t.attrs.get(attribute, NOTHING) for t in value.of(Kind.ARGUMENT)]
        value = held[0] if len(held) == len(value.things) == 1 else NOTHING
    later = model.attrs.get(name, value)  # what is set from outside
    return value if value.things == later.things and not value.known else NOTHING


def _kept(model: Thing, init: FunctionInfo, name: str) -> list[str]:
    """The parameter that a constructor stores under a name, where nothing else does."""
    classes = model.ref.mro() if isinstance(model.ref, ClassInfo) else []
    stores = [
        node
        for info in classes
        for node in ast.walk(info.node)
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
    ]
    assigned = [
        node
        for node in ast.walk(init.node)
        if isinstance(node, ast.Assign) and len(stores) == 1 and node.targets == stores
    ]
    bound = {n.id for n in ast.walk(init.node) if isinstance(n, ast.Name) and _binds(n)}
    source = ast.unparse(assigned[0].value).split(".") if assigned else []
    return [] if bound & set(source) or not all(map(str.isidentifier, source)) else source


def _binds(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
