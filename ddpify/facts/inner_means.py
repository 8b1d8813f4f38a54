"""Means over the batch that a model's ``forward`` returns, as critics do.

def forward(self, x):
    scores = self.layers(x)
    return scores.mean(0).view(1)

Whether a model gives one number of all its samples, a loss say, beside rows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.scopes import ClassInfo, FunctionNode

SHAPES = frozenset("view reshape squeeze unsqueeze flatten contiguous float".split())


def is_mean(function: FunctionNode) -> bool:
    """Whether the one thing returned is one number, the mean of what layers make of the samples.

    ``x.mean(0)`` alone may be over another axis: it has one entry where it is ``view(1)``.
    """
    found = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    if isinstance(function, ast.Lambda) or len(found) != 1 or found[0] is None:
        return False
    made = _made(function, found[0])
    averaged = _averaged(made, ast.unparse(found[0]).endswith((".view(1)", ".reshape(1)")))
    return averaged is not None and _is_output(function, averaged, made)


def _made(function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr) -> ast.expr:
    """What is returned but for its shape; of a name, what the body binds it to last."""
    node = _shaped(node)
    last = [s for s in function.body if isinstance(node, ast.Name) and node.id in _stored(s)][-1:]
    plain = last and isinstance(last[0], ast.Assign) and isinstance(last[0].targets[0], ast.Name)
    return _shaped(last[0].value) if plain and isinstance(last[0], ast.Assign) else node


def _shaped(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in SHAPES:
            break
        node = node.func.value
    return node


def _averaged(node: ast.expr, single: bool) -> ast.expr | None:
    """``x`` of ``x.mean()`` and ``torch.mean(x, 0)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    function = ast.unparse(node.func) == "torch.mean"
    if node.func.attr != "mean" or (function and not node.args):
        return None
    axes = [*node.args[1 if function else 0 :], *(k.value for k in node.keywords)]
    first = len(axes) == 1 and isinstance(axes[0], ast.Constant) and axes[0].value == 0
    if axes and not (first and single):
        return None
    return node.args[0] if function else node.func.value


def _is_output(function: ast.AST, node: ast.expr, made: ast.expr) -> bool:
    """Whether layers make this of what the model is given: an entry, or as many, per sample."""
    node = _shaped(node)
    if isinstance(node, ast.Name):
        given = [v for v in bindings(function).get(node.id, ()) if made not in ast.walk(v)]
        return bool(given) and all(_is_layers(_shaped(value)) for value in given)
    return _is_layers(node)


def _is_layers(node: ast.expr) -> bool:
    """``self.layers(x)``, ``nn.parallel.data_parallel(self.layers, x, gpus)``."""
    if not isinstance(node, ast.Call):
        return False
    parallel = ast.unparse(node.func).endswith("data_parallel") and node.args
    layers = node.args[0] if parallel else node.func
    return ast.unparse(layers).startswith("self.")


def bindings(function: ast.AST) -> dict[str, list[ast.expr]]:
    """All that each name is bound to; itself, which is no layer, where that is not plain."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and not _blocks(node):
            plain = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            value = node.value if plain and isinstance(node, ast.Assign) else None
        elif isinstance(node, (ast.For, ast.withitem)):
            value = None
        else:
            continue
        target = node if isinstance(node, ast.stmt) else node.optional_vars
        target = target.target if isinstance(target, ast.For) else target
        for name in _stored(target) if target is not None else ():
            found.setdefault(name, []).append(value or ast.Name(name))
    return found


def _blocks(node: ast.stmt) -> bool:
    return hasattr(node, "body")


def _stored(node: ast.AST) -> set[str]:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, ast.Store)}


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
