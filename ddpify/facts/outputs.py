"""How many outputs a model has, as the `return` statements of its `forward` are written."""

from __future__ import annotations

import ast

from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import Kind, Thing


def number_of(model: Thing) -> int:
    """The outputs of a model that always returns a tuple of so many; 0 where that is not seen."""
    inner = [one for v in [model.inner] if v is not None for one in v.things]
    if model.kind is Kind.WRAPPED:
        return number_of(inner[0]) if len(inner) == 1 else 0
    found = model.ref.lookup("forward") if isinstance(model.ref, ClassInfo) else None
    functions = [thing.ref for thing in found.things] if found is not None else []
    if len(functions) != 1 or not isinstance(functions[0], FunctionInfo):
        return 0
    node = functions[0].node
    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
    numbers = {_length(value) for value in returned}
    return numbers.pop() if len(numbers) == 1 else 0


def _length(value: ast.expr | None) -> int:
    if not isinstance(value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in value.elts):
        return 0
    return len(value.elts)
