"""Where in a loop's body a batch can be divided: right before the model is called, or earlier.

Between an earlier place and the model's call, tensors are only moved, cast, or flattened: above
``label = label.view(-1)`` there still is an axis of samples, and it is the same one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts.batch_names import BatchNames
from ddpify.facts.bodies import CutBody, merges_axes
from ddpify.facts.carried import read_early

# What leaves the axes of a tensor where they are, or only says how long they are.
KEEPS = frozenset(
    """to cuda cpu type long int float double half contiguous detach clone requires_grad_ size
    dim""".split()
)
MERGES = frozenset("view reshape flatten ravel".split())
TURNS = frozenset("t T mT transpose permute movedim swapaxes swapdims rearrange".split())
VARIABLE = "torch.autograd.Variable"


def places(
    body: Sequence[ast.stmt], last: int, targets: set[str], bound: BatchNames
) -> Iterator[int]:
    """Numbers of statements before which a batch can be divided, the ``last`` first."""
    yield last
    states = read_early(body, targets)
    for number in reversed(range(last)):
        after = CutBody(body[: number + 1], body[number + 1 :], targets)
        made = CutBody(body[:number], body[number:], targets).made
        if not _keeps(body[number], set(after.live) - states, made, bound):
            return
        yield number


def turns(node: ast.AST) -> bool:
    """``x.t()``: samples lie along another axis of ``x`` than of what is made from it."""
    inner = (n.attr if isinstance(n, ast.Attribute) else "" for n in ast.walk(node))
    return any(name in TURNS for name in inner)


def _keeps(node: ast.stmt, tensors: set[str], made: set[str], bound: BatchNames) -> bool:
    """Whether these tensors have the axes that what they are ``made`` from had before."""
    if not any(isinstance(n, ast.Name) and n.id in tensors for n in ast.walk(node)):
        return True
    if isinstance(node, ast.If):
        inner = all(_keeps(each, tensors, made, bound) for each in (*node.body, *node.orelse))
        return inner and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test))
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name):
        return _is_kept(value, made, bound)
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return False
    pairs = zip(target.elts, value.elts, strict=False)
    whole = len(target.elts) == len(value.elts)
    return whole and all(isinstance(t, ast.Name) and _is_kept(v, made, bound) for t, v in pairs)


def _is_kept(value: ast.expr, made: set[str], bound: BatchNames) -> bool:
    """Whether this is a tensor that the pass has made before, moved, cast or flattened."""
    while isinstance(value, ast.Call):
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        if method in KEEPS or (method in MERGES and merges_axes(ast.Expression(value))):
            assert isinstance(value.func, ast.Attribute)
            value = value.func.value
        elif bound.called(value) == VARIABLE and value.args:
            value = value.args[0]
        else:
            return bound.raises(value)
    return isinstance(value, ast.Name) and value.id in made
