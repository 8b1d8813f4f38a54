"""The outputs of a model, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from ddpify.facts import listed
from ddpify.facts.details import OpenLoss, UnreadOutput
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import join
from ddpify.facts.listed import OutputShape
from ddpify.facts.returns import reached
from ddpify.facts.rows import OUTPUTS, SEVERAL
from ddpify.facts.scopes import Guard
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site

Names = tuple[str, ...]


def separate(
    model: Thing, whole: Value, call: Thing, guards: Iterable[Guard], trains: bool
) -> Value:
    """What a call of a model gives: each output where it returns so many there, else ``whole``.

    A list of them, perhaps where it ``trains`` only, has as many on each rank. A tuple is one, too,
    where there is one input: beside targets it may hold a loss.
    """
    if listed.is_unread(model):
        call.describe(UnreadOutput())
    names = names_of(model, guards)
    if not names:
        shape = listed.returned(model, trains, tuples=whole.rows)
        return _as(shape, whole, call)
    parts = listed.of_parts(model, _values(model, guards)) or [listed.TENSOR] * len(names)
    made = Thing(Kind.TUPLE, call.born, items=tuple(_as(part, whole, call) for part in parts))
    made.attrs.update({name: whole for name in names if name})
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


def names_of(model: Thing, guards: Iterable[Guard]) -> Names:
    """A name, or none (""), for each output of a model; () where it may return one tensor."""
    info = method_of(model, "forward")
    if info is None:
        return ()
    bound = info.module.source.once(_assigned, info.node)
    named = {_names(value, bound) for value in _values(model, guards)}
    return named.pop() if len(named) == 1 else ()


def _values(model: Thing, guards: Iterable[Guard]) -> list[ast.expr | None]:
    """What a forward may return here, of a name what it stands for."""
    info = method_of(model, "forward")
    if info is None:
        return []
    bound = info.module.source.once(_assigned, info.node)
    return [_bound(value, bound) for value in reached(model, info, guards)]


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


def _names(value: ast.expr | None, bound: dict[str, list[ast.expr]]) -> Names:
    """Of a tuple that is written out, or of a named tuple whose fields are."""
    if isinstance(value, ast.Tuple) and isinstance(value.ctx, ast.Load):
        return ("",) * len(value.elts) if not _starred(value.elts) else ()
    made = _bound(value.func, bound) if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or not isinstance(made, ast.Call) or len(made.args) != 2:
        return ()
    fields = made.args[1]
    if not ast.unparse(made.func).endswith("namedtuple") or not isinstance(fields, ast.List):
        return ()
    names = tuple(str(e.value) for e in fields.elts if isinstance(e, ast.Constant))
    whole = len(names) == len(value.args) and not value.keywords and not _starred(value.args)
    return names if whole and not made.keywords else ()


def _starred(parts: list[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)
