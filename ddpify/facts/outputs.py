"""The outputs of a model, as the `return` statements of its `forward` are written.

Which ``return`` statements of a model's forward a call comes to.

A setting often decides how much a model returns, and the caller asks the same setting::

    if self.attention: return out, weights        # self.attention = args.attention, in __init__
    return out
    ...
    if args.attention: out = model(x)[0]          # not the first sample: the first of two outputs
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ddpify.facts import listed
from ddpify.facts.details import OpenLoss, UnreadOutput, call_that_made
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import join
from ddpify.facts.listed import OutputShape
from ddpify.facts.roles import whole
from ddpify.facts.rows import OUTPUTS, SEVERAL
from ddpify.facts.scopes import ClassInfo, FunctionInfo, Guard
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.facts.written_parts import OutputForm, parts_of
from ddpify.python.arguments import bind
from ddpify.source import Site, Source


def separate(
    model: Thing, whole: Value, call: Thing, guards: Iterable[Guard], trains: bool
) -> Value:
    """What a call of a model gives: each output where it returns so many there, else ``whole``.

    A list of them, perhaps where it ``trains`` only, has as many on each rank. A tuple is one, too,
    where there is one input: beside targets it may hold a loss.
    """
    if listed.is_unread(model):
        call.describe(UnreadOutput())
    found = several(model, guards)
    if found is None:
        shape = listed.returned(model, trains, tuples=whole.rows)
        return _as(shape, whole, call)
    each = listed.of_parts(model, found.values) or [listed.TENSOR] * len(found.form.keys)
    made = found.form.made(call.born, [_as(part, whole, call) for part in each])
    return whole.but(things=(made,), rows=False, blocks=0)


def any_of(results: Sequence[Value], called: Site) -> Value:
    """What one of several callees gives; a model that is not followed may return parts, too."""
    if not any(result.things for result in results):
        return join(*results)
    return join(*[_with_parts(result, called) for result in results])


def _with_parts(result: Value, called: Site) -> Value:
    made = [t for t in result.dep(Kind.FORWARD) if t.born == called and t.detail(OpenLoss)]
    whole = result.things or result.measure is Measure.MEAN or not made
    return result if whole else _as(listed.UNSURE, result, made[0])


def _as(shape: OutputShape, whole: Value, call: Thing) -> Value:
    """A value of this shape, each tensor of which is as the ``whole`` output."""
    if not shape.sure:  # a tensor, as long as nobody looks at one entry
        entry = whole.but(measure=Measure.MIXED, rows=False)
        return whole.but(things=(Thing(Kind.UNKNOWN, call.born, SEVERAL, inner=entry),))
    if shape.entries is None:
        return whole
    parts = tuple(_as(one, whole, call) for one in shape.entries)
    if shape.written and len(set(shape.entries)) > 1:
        return whole.but(things=(Thing(Kind.TUPLE, call.born, items=parts),), rows=False)
    entry = _as(shape.entry, whole, call)
    return whole.but(things=(Thing(Kind.ITERATOR, call.born, OUTPUTS, inner=entry),), rows=False)


@dataclass(frozen=True)
class Several:
    """The outputs of a model, and what each is in the `return` statements that are reached."""

    form: OutputForm
    values: tuple[tuple[ast.expr, ...], ...]


def several(model: Thing, guards: Iterable[Guard]) -> Several | None:
    """The outputs of a model that gives several; None where it may return one tensor."""
    info = method_of(model, "forward")
    if info is None:
        return None
    bound = info.module.source.once(_assigned, info.node)
    returned = reached(model, info, guards)
    found = [parts_of(_bound(value, bound), info, bound) for value in returned]
    read = Counter(n.id for n in ast.walk(info.node) if isinstance(n, ast.Name) and _is_read(n))
    for value, each in zip(returned, found, strict=True):
        grows = each is not None and each.form.kind is not Kind.TUPLE
        if isinstance(value, ast.Name) and grows and read[value.id] > 1:
            return None  # `out.update(loss=loss)`
    forms = {each.form if each is not None else None for each in found}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        return None
    return Several(form, tuple(each.values for each in found if each is not None))


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """What each name is bound to, of one among several what all are."""
    bound: dict[str, list[ast.expr]] = {}
    for each in ast.walk(function):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                for name in (n for n in ast.walk(target) if isinstance(n, ast.Name)):
                    whole = target is name
                    bound.setdefault(name.id, []).append(each.value if whole else target)
    return bound


def _bound(value: ast.expr | None, bound: dict[str, list[ast.expr]]) -> ast.expr | None:
    """The expression that a name stands for, where it is bound once."""
    if not isinstance(value, ast.Name):
        return value
    found = bound.get(value.id, [])
    return found[0] if len(found) == 1 else None


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
