"""Tensors that are made once and filled anew in each pass: from there on they are what fills them.

input.resize_as_(images).copy_(images)
labels.data.resize_(batch[1].size()).copy_(batch[1])
noise.resize_(batch_size, 100).normal_(0, 1)             # as torch.randn(batch_size, 100)
noise.data.resize_(images.size(0), 100); noise.data.normal_(0, 1)
"""

from __future__ import annotations

import ast

from ddpify.facts.counts import without_gradient
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

    A copy is given its shape in the same expression: one of another shape would repeat rows.
    """
    if not isinstance(node.func, ast.Attribute):
        return None
    target, shaped = node.func.value, node.func.value
    if isinstance(shaped, ast.Call) and isinstance(shaped.func, ast.Attribute):
        target = shaped.func.value
        value = _value(m, f, node, shaped, call)
    else:
        value = _in_place(m, f, node.func.attr, call)
    if isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    if value is not None and isinstance(target, (ast.Name, ast.Attribute)):
        m.assign(f, target, value, node)
    return value


def _in_place(m: Machine, f: Frame, name: str, call: Call) -> Value | None:
    """A tensor that gets a row for each sample, and one with such rows that is drawn anew."""
    if name == "resize_" and any(map(is_batch_size, call.args[:1])):
        return without_gradient(computed(*call.args, measure=Measure.SAMPLES)).but(rows=True)
    if name in DRAWS and call.receiver is not None and has_rows(call.receiver):
        drawn = m.make(Kind.RANDOM, f, call.site, call.name)
        return call.receiver.but(deps=flat_deps(call.receiver) | {drawn})
    return None


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
