"""Means over the batch that a model's ``forward`` returns, as critics do.

def forward(self, x):
    scores = self.layers(x)
    return scores.mean(0).view(1)
"""

from __future__ import annotations

import ast

from ddpify.facts.scopes import FunctionNode

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
