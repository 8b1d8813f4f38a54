"""The outputs of a model, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.fresh import method_of
from ddpify.facts.returns import reached
from ddpify.facts.scopes import Guard
from ddpify.facts.values import Kind, Thing, Value

Names = tuple[str, ...]


def separate(model: Thing, whole: Value, call: Thing, guards: Iterable[Guard]) -> Value:
    """What a call of a model gives: each output where it returns so many there, else ``whole``."""
    names = names_of(model, guards)
    if not names:
        return whole
    made = Thing(Kind.TUPLE, call.born, items=(whole,) * len(names))
    made.attrs.update({name: whole for name in names if name})
    return whole.but(things=(made,), rows=False, blocks=0)


def names_of(model: Thing, guards: Iterable[Guard]) -> Names:
    """A name, or none (""), for each output of a model; () where it may return one tensor."""
    if model.kind is Kind.WRAPPED:
        inner = model.inner.things if model.inner is not None else ()
        return names_of(inner[0], guards) if len(inner) == 1 else ()
    info = method_of(model, "forward")
    if info is None:
        return ()
    bound: dict[str, list[ast.expr]] = {}
    for each in ast.walk(info.node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                for name in (n for n in ast.walk(target) if isinstance(n, ast.Name)):
                    whole = target is name
                    bound.setdefault(name.id, []).append(each.value if whole else target)
    returned = reached(model, info, guards)
    named = {_names(_bound(value, bound), bound) for value in returned}
    return named.pop() if len(named) == 1 else ()


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
