"""Losses that compare the samples of a batch: where they do, and what to gather so that all do.

DataParallel computed the loss of the whole batch. On ranks, a mean of what each sample gives alone
needs nothing, but entries compared with a mean over the batch (`a - b.mean(0)`), a quotient of sums
(dice), a curve of a mean (`mse.sqrt()`) and products of all pairs (contrastive losses) are another
objective on 1/N of the samples. A `COUPLED` thing is born at such an operation. ::

    1 - 2 * (p * t).sum() / (p.sum() + t.sum())   # coupled at `/`: what is summed is gathered
    criterion(features, labels)                   # coupled inside: what has rows is gathered here
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts import tracing
from ddpify.facts.counts import counts_only
from ddpify.facts.details import Coupling, OpenForward, OpenLoss
from ddpify.facts.joining import computed, is_zero
from ddpify.facts.measures import ENTRIES, EXTREMES
from ddpify.facts.mingling import mingles
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value

REDUCED = (Measure.SUM, Measure.MEAN, Measure.RATIO)
PRODUCTS = frozenset({"mm", "matmul"})


def marked(m: Machine, f: Frame, node: ast.expr, value: Value) -> Value:
    """``value``, which ``node`` gives, with what couples the samples there."""
    if not isinstance(node, (ast.BinOp, ast.Call, ast.Subscript)) or f.no_grad:
        return value
    together = _is_in_forward(f) and mingles(m, f, node)
    if not together and not _trains(value):
        return value
    together = together or _is_together(m, f, node)
    if not together and not _perhaps(m, f, node, value):
        return value
    made = m.make(Kind.COUPLED, f, m.site(f, node))
    made.describe(Coupling(m.where(f), together))
    for pair in value.of(Kind.TUPLE) if isinstance(node, ast.Call) else ():  # made here
        pair.items = tuple(part.but(deps=part.deps | {made}) for part in pair.items or ())
    return value.but(deps=value.deps | {made}, rows=False)


def _is_together(m: Machine, f: Frame, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _operation(m, f, node)
    return isinstance(node, ast.Call) and _call(m, f, node)


def gathered(value: Value, no_grad: bool) -> Value:
    """What ``whole_batch`` makes of a value: the rows of all ranks, in training.

    It is of no rank's batch any more, but the loaders of those are the ones that train.
    """
    if no_grad:
        return value
    own = computed(value)
    whole = own.reduced()
    return whole.but(deps=whole.deps.union(own.loaders()))


def coupled(losses: Iterable[Value]) -> tuple[Thing, ...]:
    """What couples the samples of these losses, in the order of the text."""
    found = {thing for loss in losses for thing in loss.dep(Kind.COUPLED)}
    return tuple(sorted(found, key=lambda t: (t.born, t.serial)))


def certain(losses: Iterable[Value]) -> tuple[Thing, ...]:
    """What couples the samples of these losses beyond doubt."""
    details = ((thing, thing.detail(Coupling)) for thing in coupled(losses))
    return tuple(thing for thing, detail in details if detail is not None and detail.certain)


def _perhaps(m: Machine, f: Frame, node: ast.expr, value: Value) -> bool:
    """A sum along axes that may be those of a sample, or also that of the batch."""
    if not isinstance(node, ast.Call) or value.measure is not Measure.MIXED:
        return False
    name, subject = tracing.subject(m, f, node)
    if subject is None or name not in ("sum", "mean"):
        return False
    return m.values.get(m.site(f, subject), NOTHING).measure is Measure.SAMPLES


def _trains(value: Value) -> bool:
    return any(dep.kind is Kind.FORWARD for dep in value.deps)


def _operation(m: Machine, f: Frame, node: ast.BinOp) -> bool:
    left, right = (m.values.get(m.site(f, side), NOTHING) for side in (node.left, node.right))
    if isinstance(node.op, ast.MatMult):
        return _pairs((node.left, node.right), (left, right))
    if _outer((node.left, node.right), (left, right)):
        return True
    if isinstance(node.op, (ast.Div, ast.Pow)):
        curved = right if isinstance(node.op, ast.Div) else left
        return _is_reduced(curved)
    if not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
        return False
    if not isinstance(node.op, ast.Mult) and _shifted(left, right):
        return True
    if isinstance(node.op, ast.Mult) and _is_reduced(left) and _is_reduced(right):
        return True
    entries = any(v.measure in ENTRIES and not _may_be_one(v) for v in (left, right))
    return entries and (_is_reduced(left) or _is_reduced(right))


def _may_be_one(value: Value) -> bool:
    """What a criterion with weights of its own makes: one number perhaps, not rows."""
    outputs = value.dep(Kind.FORWARD) if not has_rows(value) else ()
    return any(output.detail(OpenLoss) is not None for output in outputs)


def _shifted(left: Value, right: Value) -> bool:
    """``inter + 1e-6``: a sum and a number that is there once, whatever the ranks."""
    pairs = ((left, right), (right, left))
    summed = (a for a, b in pairs if b.known and not is_zero(b) and a.measure is Measure.SUM)
    return any(_is_reduced(value) for value in summed)


def _is_reduced(value: Value) -> bool:
    """A sum or mean over the batch that gradients go through, which is no count."""
    return value.measure in REDUCED and _trains(value) and not counts_only(value)


def _call(m: Machine, f: Frame, node: ast.Call) -> bool:
    name, subject = tracing.subject(m, f, node)
    if subject is None:
        return False
    value = m.values.get(m.site(f, subject), NOTHING)
    if name in tracing.CURVES and (_is_reduced(value) or not _is_in_forward(f)):
        return _is_reduced(value)  # a norm in a loss is gathered with what it is of (DDP401)
    if name in PRODUCTS:
        pair = _operands(node, subject)
        return len(pair) == 2 and _pairs(pair, [m.values.get(m.site(f, p), NOTHING) for p in pair])
    if name == "pdist":
        return _trains(value) and value.measure is Measure.SAMPLES
    along = tracing.along_batch(m, f, node, name, subject)
    return along and name not in EXTREMES and _trains(value) and value.measure is Measure.SAMPLES


def _is_in_forward(f: Frame) -> bool:
    """Whether a model's forward is read as the function it is."""
    return f.self_thing is not None and f.self_thing.detail(OpenForward) is not None


def _operands(node: ast.Call, subject: ast.expr) -> list[ast.expr]:
    return list(node.args) if subject in node.args else [subject, *node.args]


def _pairs(nodes: Iterable[ast.expr], values: Iterable[Value]) -> bool:
    """``a @ b.t()`` of outputs: one row and one column per sample."""
    return all(_of_samples(v) for v in values) and any(transposed(node) for node in nodes)


def _outer(nodes: Iterable[ast.expr], values: Iterable[Value]) -> bool:
    """``x.unsqueeze(0) - x.unsqueeze(1)``: each sample with each."""
    return all(_of_samples(v) for v in values) and any(_lifted(node) for node in nodes)


def _of_samples(value: Value) -> bool:
    return value.measure in (Measure.SAMPLES, Measure.MIXED) and _trains(value)


def _lifted(node: ast.expr) -> bool:
    """A new axis before that of the batch."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first = node.args[0] if len(node.args) == 1 else None
        return node.func.attr == "unsqueeze" and ast.dump(first or node) == _ZERO
    if isinstance(node, ast.Subscript):
        index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        return isinstance(index, ast.Constant) and index.value is None
    return False


_ZERO = ast.dump(ast.Constant(0))


def transposed(operand: ast.expr) -> bool:
    """``x.t()``, ``x.T``, ``x.transpose(1, 0)``: the samples become the columns."""
    for node in ast.walk(operand):
        if isinstance(node, ast.Attribute) and node.attr in ("t", "T"):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".transpose"):
            axes = {a.value for a in node.args if isinstance(a, ast.Constant)}
            if axes == {0, 1}:
                return True
    return False
