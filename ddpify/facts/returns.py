"""Which ``return`` statements of a model's forward a call comes to.

A setting often decides how much a model returns, and the caller asks the same setting::

    if self.attention: return out, weights        # self.attention = args.attention, in __init__
    return out
    ...
    if args.attention: out = model(x)[0]          # not the first sample: the first of two outputs
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ddpify.facts.details import call_that_made
from ddpify.facts.fresh import method_of
from ddpify.facts.roles import whole
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Guard
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.python.arguments import bind
from ddpify.source import Source

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

    return _returned(info.module.source, body, truth)[0]


def _returned(
    source: Source, body: Sequence[ast.stmt], truth: Truth
) -> tuple[list[ast.expr | None], bool]:
    """What statements may return, and whether none comes after them."""
    found: list[ast.expr | None] = []
    for statement in body:
        taken = truth(statement.test) if isinstance(statement, ast.If) else None
        if isinstance(statement, ast.If) and taken is not None:
            block = statement.body if taken else statement.orelse
            inner, ended = _returned(source, block, truth)
        else:
            inner, ended = source.once(_returns, statement), isinstance(statement, ast.Return)
        found += inner
        if ended:
            return found, True
    return found, False


def _returns(node: ast.stmt) -> list[ast.expr | None]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]


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
        node for each in classes for node in each.module.source.once(_stores, each.node)[name]
    ]
    assigned = [
        node
        for node in init.module.source.once(_assignments, init.node)
        if len(stores) == 1 and node.targets == stores
    ]
    bound = init.module.source.once(_binds, init.node)
    source = ast.unparse(assigned[0].value).split(".") if assigned else []
    return [] if bound & set(source) or not all(map(str.isidentifier, source)) else source


def _stores(owner: ast.AST) -> defaultdict[str, list[ast.Attribute]]:
    """Where attributes are bound, by name."""
    found = defaultdict[str, list[ast.Attribute]](list)
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found[node.attr].append(node)
    return found


def _assignments(function: ast.AST) -> list[ast.Assign]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Assign)]


def _binds(function: ast.AST) -> set[str]:
    names = (n for n in ast.walk(function) if isinstance(n, ast.Name))
    return {n.id for n in names if not isinstance(n.ctx, ast.Load)}
