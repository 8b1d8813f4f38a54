"""Hooks on parameters, which are given the gradient of a rank's own samples, before it is averaged.

weight.register_hook(lambda g: g * mask)           # a mean of multiples is the multiple of the mean
weight.register_hook(lambda g: g.clamp(-1, 1))     # that of clamped gradients is not
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.values import NOTHING, Kind
from ddpify.rules.base import Finding, Severity

_HOOKS: Final = (".register_hook", ".register_post_accumulate_grad_hook")
_WEIGHTS: Final = (Kind.PARAMETERS, Kind.MODEL, Kind.WRAPPED)
_SCALES: Final = ("mul", "div", "multiply", "divide")
_SAME: Final = ("clone", "detach", "neg", "contiguous")


def hooked(facts: Facts) -> Iterator[Finding]:
    """Yield a finding per hook on a parameter that makes of a mean of gradients another."""
    for call in facts.named(*_HOOKS):
        owner = call.receiver or NOTHING
        if not owner.dep(*_WEIGHTS) or owner.dep(Kind.FORWARD, Kind.BATCH):
            continue  # of what a model computes, each sample has a gradient of its own
        if not all(_keeps_means(one) for one in _functions(call)):
            yield Finding(
                "DDP405",
                call.site,
                "the hook is given the gradient of a rank's own samples, before it is averaged:"
                " what it makes of it is not what it made of that of the whole batch",
                Severity.ERROR,
                advice="change the gradients between backward() and step()",
            )


def _functions(call: Call) -> list[ast.AST | None]:
    """What is called with the gradient; None for what is not read."""
    given = call.arg(0, "hook") or NOTHING
    refs = [thing.ref for thing in given.things]
    return [one.node if isinstance(one, FunctionInfo) else None for one in refs] or [None]


def _keeps_means(function: ast.AST | None) -> bool:
    """Whether it gives a multiple of what it is given, entry by entry, or gives nothing."""
    if not isinstance(function, (ast.FunctionDef, ast.Lambda)) or not function.args.args:
        return False
    name = function.args.args[-1].arg
    if isinstance(function, ast.Lambda):
        return _is_multiple(function.body, name)
    simple = all(isinstance(one, (ast.Return, ast.Expr)) for one in function.body)
    given = [one.value for one in function.body if isinstance(one, ast.Return) and one.value]
    return simple and all(_is_multiple(one, name) for one in given)


def _is_multiple(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return _is_multiple(node.operand, name)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        pairs = [(node.left, node.right)]
        pairs += [(node.right, node.left)] if isinstance(node.op, ast.Mult) else []
        return any(_is_multiple(one, name) and not _says(other, name) for one, other in pairs)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        same = _is_multiple(node.func.value, name) and not any(_says(a, name) for a in node.args)
        return same and node.func.attr in (*_SCALES, *_SAME)
    return False


def _says(node: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))
