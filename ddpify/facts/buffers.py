"""Tensors that are made once and filled from each batch: from there on they are the batch.

input.resize_as_(images).copy_(images)
labels.data.resize_(batch[1].size()).copy_(batch[1])
"""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.joining import flat_deps, flat_measure
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NO_CONST


def fill(m: Machine, f: Frame, node: ast.Call, call: Call) -> None:
    """Bind what a call fills wholly to what it is filled from."""
    target = _filled(node)
    if target is None or not call.args:
        return
    given = call.args[0]
    value = given.but(
        things=(),
        deps=flat_deps(given),
        measure=flat_measure(given),
        const=NO_CONST,
        rows=has_rows(given),
    )
    m.assign(f, target, value)


def _filled(node: ast.Call) -> ast.Name | ast.Attribute | None:
    """The tensor that ``copy_`` fills, where it was given the shape of what is copied right before.

    Of another shape it would be filled with rows that are repeated, or not at all.
    """
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "copy_" or not node.args:
        return None
    shaped = node.func.value
    if not isinstance(shaped, ast.Call) or not isinstance(shaped.func, ast.Attribute):
        return None
    if not _takes_shape(shaped.func.attr, shaped.args, ast.unparse(node.args[0])):
        return None
    target = shaped.func.value
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    return target if isinstance(target, (ast.Name, ast.Attribute)) else None


def _takes_shape(method: str, args: list[ast.expr], source: str) -> bool:
    given = [ast.unparse(one) for one in args]
    if method == "resize_as_":
        return given == [source]
    return method == "resize_" and given in ([f"{source}.size()"], [f"{source}.shape"])
