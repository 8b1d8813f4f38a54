"""The outputs of a model, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast

from ddpify.facts.inner_losses import forward_of
from ddpify.facts.values import Kind, Thing, Value

Names = tuple[str, ...]


def separate(model: Thing, whole: Value, call: Thing) -> Value:
    """What a call of a model gives: each output where it always returns so many, else ``whole``."""
    names = names_of(model)
    if not names:
        return whole
    made = Thing(Kind.TUPLE, call.born, items=(whole,) * len(names))
    made.attrs.update({name: whole for name in names if name})
    return whole.but(things=(made,), rows=False, blocks=0)


def names_of(model: Thing) -> Names:
    """A name, or none (""), for each output of a model; () where it may return one tensor."""
    info = forward_of(model)
    if info is None:
        return ()
    node = info.node
    bound: dict[str, list[ast.expr]] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                for name in (n for n in ast.walk(target) if isinstance(n, ast.Name)):
                    whole = target is name
                    bound.setdefault(name.id, []).append(each.value if whole else target)
    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
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
