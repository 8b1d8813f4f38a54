"""What a model's ``forward`` takes from other samples of its batch, which a rank may not have. ::

rows + rows.roll(1, 0)               # of its neighbour
rows - rows.max(0)[0]                # of all of them
steps + self.table[:steps.size(0)]   # by its number in the batch
steps[:, :1]                         # of the first one, where samples lie along axis 1
"""

from __future__ import annotations

import ast

from ddpify.facts import axis_counts, tracing
from ddpify.facts.measures import EXTREMES, MOVES_ROWS
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Measure, Value

# Each with the place of the axis behind the tensor.
ALONG = {
    **MOVES_ROWS,
    **{name: place for name, place in EXTREMES.items() if "scatter" not in name},
    **dict.fromkeys("cumsum cumprod cummax cummin logcumsumexp median amax amin".split(), 0),
    **dict.fromkeys(("sort", "argsort"), 0),
    **dict.fromkeys(("diff", "topk"), 1),
}


def mingles(m: Machine, f: Frame, node: ast.expr) -> bool:
    """Whether an expression of a forward makes a sample's row of those of others."""
    if isinstance(node, ast.Call):
        return _goes_along(m, f, node)
    if not isinstance(node, ast.Subscript):
        return False
    base = m.values.get(m.site(f, node.value), NOTHING)
    return _numbers(m, f, base, node.slice) or _picks(base, node.slice)


def _goes_along(m: Machine, f: Frame, node: ast.Call) -> bool:
    """``rows.roll(1, 0)``, ``rows.max(0)``: what layers have made, along the axis of samples."""
    name, subject = tracing.subject(m, f, node)
    if name not in ALONG or subject is None:
        return False
    own = m.values.get(m.site(f, subject), NOTHING)
    place = ALONG[name] + (1 if subject in node.args else 0)
    named = [k.value for k in node.keywords if k.arg in ("dim", "dims", "axis")]
    given = named or node.args[place : place + 1]
    if not given or not _is_of_layers(own):
        return False
    axis = m.values.get(m.site(f, given[0]), NOTHING)
    number = axis_counts.counted(own, axis.const)
    return axis.known and isinstance(number, int) and number is not False and number == own.axis


def _is_of_layers(value: Value) -> bool:
    """Whether it is a tensor with a row for each sample that a layer of the model has made.

    Lengths, of which the longest is asked, are given to it as they are.
    """
    made = len(value.dep(Kind.FORWARD)) > 1
    return made and value.measure is Measure.SAMPLES and not value.things and value.blocks < 2


def _numbers(m: Machine, f: Frame, table: Value, index: ast.expr) -> bool:
    """``table[:rows.size(0)]``: a row of a table for each sample, by its number."""
    if table.measure is not Measure.UNIFORM or table.dep(Kind.FORWARD, Kind.BATCH):
        return False
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    ends = [part.upper for part in parts if isinstance(part, ast.Slice) and part.upper]
    return any(m.values.get(m.site(f, e), NOTHING).measure is Measure.COUNT for e in ends)


def _picks(rows: Value, index: ast.expr) -> bool:
    """``steps[:, :1]``, ``steps[:, 0]`` of what has its samples along the second axis."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    plain = all(isinstance(part, (ast.Slice, ast.Constant)) for part in parts)
    plain = plain and not any(getattr(part, "value", 0) in (None, ...) for part in parts)
    if rows.axis <= 0 or len(parts) <= rows.axis or not plain or not _is_of_layers(rows):
        return False
    own = parts[rows.axis]
    return not isinstance(own, ast.Slice) or bool(own.lower or own.upper or own.step)
