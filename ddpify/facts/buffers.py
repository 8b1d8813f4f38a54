"""Tensors that are made once and filled anew in each pass: from there on they are what fills them.

input.resize_as_(images).copy_(images)
labels.data.resize_(batch[1].size()).copy_(batch[1])
noise.resize_(batch_size, 100).normal_(0, 1)             # as torch.randn(batch_size, 100)
"""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_deps, flat_measure
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame
from ddpify.facts.tensor_calls import is_batch_size
from ddpify.facts.values import NO_CONST, NOTHING, Kind, Measure, Value

DRAWS = frozenset({"normal_", "uniform_"})


def fill(m: Machine, f: Frame, node: ast.Call, call: Call) -> Value | None:
    """What a call fills a tensor with wholly, which is bound to it; None of any other call.

    It is given its shape in the same expression: a copy of another shape would repeat rows.
    """
    shaped = node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(shaped, ast.Call) or not isinstance(shaped.func, ast.Attribute):
        return None
    target = shaped.func.value
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    value = _value(m, f, node, shaped, call)
    if value is not None and isinstance(target, (ast.Name, ast.Attribute)):
        m.assign(f, target, value, node)
    return value


def _value(m: Machine, f: Frame, node: ast.Call, shaped: ast.Call, call: Call) -> Value | None:
    assert isinstance(node.func, ast.Attribute)
    assert isinstance(shaped.func, ast.Attribute)
    if node.func.attr in DRAWS and shaped.func.attr == "resize_":
        return _drawn(m, f, shaped, call)
    if node.func.attr != "copy_" or not node.args or not _takes_shape(shaped, node.args[0]):
        return None
    given = call.args[0]
    return given.but(
        things=(),
        deps=flat_deps(given),
        measure=flat_measure(given),
        const=NO_CONST,
        rows=has_rows(given),
    )


def _takes_shape(shaped: ast.Call, source: ast.expr) -> bool:
    """``resize_as_(x)``, ``resize_(x.size())``."""
    text, given = ast.unparse(source), [ast.unparse(one) for one in shaped.args]
    name = shaped.func.attr if isinstance(shaped.func, ast.Attribute) else ""
    return (name, given) in (
        ("resize_as_", [text]),
        ("resize_", [f"{text}.size()"]),
        ("resize_", [f"{text}.shape"]),
    )


def _drawn(m: Machine, f: Frame, shaped: ast.Call, call: Call) -> Value:
    """A draw, with a row for each sample where the first length is how many there are."""
    lengths = tuple(m.values.get(m.site(f, one), NOTHING) for one in shaped.args)
    measure = Measure.SAMPLES if any(map(is_batch_size, lengths[:1])) else Measure.UNIFORM
    value = computed(*lengths, measure=measure)
    drawn = m.make(Kind.RANDOM, f, call.site, call.name)
    return value.but(deps=value.deps | {drawn}, rows=measure is Measure.SAMPLES)
