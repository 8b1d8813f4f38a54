"""Whether a model gives one number of all its samples, a loss say, beside rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.scopes import ClassInfo

# What makes a number of a number.
OF_ONE = frozenset("exp log sqrt abs neg detach clone clamp square pow relu float".split())


def reduces(node: ast.AST) -> bool:
    """``x.mean()``, ``F.mse_loss(x, y)``: one number of all that is there."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    library = ast.unparse(node.func).startswith(("torch.", "F.", "np."))
    told = len(node.args) > library or bool(node.keywords)
    whole = not any(keyword.arg == "reduction" for keyword in node.keywords)
    return (name in ("mean", "sum", "norm") and not told) or ("loss" in name.lower() and whole)


def gives_number(info: ClassInfo) -> bool:
    """Whether ``forward`` returns such a number among other things: ``return rows, loss``."""
    methods = (n for n in info.node.body if isinstance(n, ast.FunctionDef))
    for method in (one for one in methods if one.name == "forward"):
        numbers = _numbers(method)
        for node in (n for n in ast.walk(method) if isinstance(n, ast.Return)):
            if any(_is_number(part, numbers) for part in _several(node.value)):
                return True
    return False


def _several(value: ast.expr | None) -> Iterator[ast.expr]:
    if isinstance(value, ast.Tuple | ast.List):
        yield from value.elts
    elif isinstance(value, ast.Dict):
        yield from value.values
    elif isinstance(value, ast.Call) and ast.unparse(value.func) == "dict":
        yield from (keyword.value for keyword in value.keywords)


def _numbers(method: ast.FunctionDef) -> set[str]:
    """The names of a function that stand for such numbers, and for nothing else but None."""
    bound = [
        (n.targets[0].id, n.value)
        for n in ast.walk(method)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    ]
    names: set[str] = set()
    while new := {name for name, value in bound if _is_number(value, names)} - names:
        names |= new
    return names


def _is_number(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.UnaryOp(operand=inner):
            return _is_number(inner, names)
        case ast.BinOp(left=left, right=right):
            sides = (left, right)
            plain = all(_is_number(one, names) or _is_setting(one) for one in sides)
            return plain and any(_is_number(one, names) for one in sides)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if attr in OF_ONE:
            return any(_is_number(one, names) for one in (inner, *args[:1]))
    return reduces(node)


def _is_setting(node: ast.expr) -> bool:
    """``2``, ``self.beta``"""
    return isinstance(node, ast.Constant) or ast.unparse(node).startswith("self.")
