"""The outputs of a model, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpify.facts import listed
from ddpify.facts.details import OpenLoss, UnreadOutput
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import join
from ddpify.facts.listed import OutputShape
from ddpify.facts.returns import reached
from ddpify.facts.rows import OUTPUTS, SEVERAL
from ddpify.facts.scopes import Guard
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.facts.written_parts import OutputForm, parts_of
from ddpify.source import Site


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
