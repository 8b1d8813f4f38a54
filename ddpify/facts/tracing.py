"""Where a number of a batch was made of its samples: the sums and means that an expression is of.

1 - 2 * inter / (p.sum() + t.sum())     # `p`, `t` and, where `inter` is bound, what it sums
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from ddpify.facts import axis_counts, measures
from ddpify.facts.criteria import is_loss
from ddpify.facts.events import Bind, Call, Where
from ddpify.facts.model import Gather
from ddpify.facts.output_rows import of_several
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Measure, Value
from ddpify.source import Site

# Functions that are no straight line: of a mean they are not the mean of what they give.
CURVES = frozenset(
    """sqrt rsqrt exp expm1 log log1p log2 log10 abs pow square clamp relu softplus sigmoid tanh
    reciprocal norm logsigmoid""".split()
)
# Functions of all entries along an axis, and the place of the axis after the tensor; of those in
# WHOLE all entries are taken where none is given.
ALONG = {"std": 0, "var": 0, "norm": 1, "logsumexp": 0, **measures.ALONG_AXES}
WHOLE = frozenset({"std", "var", "norm"})
SAME = frozenset("item float double half to cuda clone contiguous squeeze neg".split())
BOUNDS = frozenset({"builtins.min", "builtins.max", "builtins.float"})

NUMBER, ROWS = "reduce_mean({})", "whole_batch({})"


def subject(m: Machine, f: Frame, node: ast.Call) -> tuple[str, ast.expr | None]:
    """The last name of what is called, and the tensor it is asked of: receiver or argument."""
    values = m.values
    named = values.get(m.site(f, node.func), NOTHING).of(Kind.EXTERNAL)
    if named:
        return named[0].name.rpartition(".")[2], node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value
    return "", None


def along_batch(m: Machine, f: Frame, node: ast.Call, name: str, tensor: ast.expr) -> bool:
    """Whether a function of all entries along an axis goes along that of the batch."""
    if name not in ALONG:
        return False
    place = ALONG[name] + (1 if tensor in node.args else 0)
    given = [k.value for k in node.keywords if k.arg in ("dim", "axis")] or node.args[place:]
    if not given:
        return name in WHOLE
    axis = m.values.get(m.site(f, given[0]), NOTHING)
    own = m.values.get(m.site(f, tensor), NOTHING)
    seen = axis_counts.counted(own, axis.const)
    return axis.known and seen == max(own.axis, 0) and seen is not False


class Trace:
    """The way back from a number of a batch, in the function (or module) that computes it."""

    def __init__(self, m: Machine, path: str, together: Callable[[Where], bool]) -> None:
        self.m, self.path, self.together = m, path, together
        self.tree = m.tree(path)
        self.seen: set[ast.expr] = set()

    def gathers(self, node: ast.expr) -> list[Gather] | None:
        """What the sums and means in ``node`` are of; None: not all of it is known."""
        value = self._value(node)
        if value.measure in (Measure.UNIFORM, Measure.COUNT) or not value.dep(Kind.BATCH):
            return None if value.dep(*OF_ONE_RANK) else []
        if node in self.seen:
            return []
        first = not self.seen
        self.seen.add(node)
        if first and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            numbers = self._numbers(node)
            if numbers:
                return numbers
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return self._all((node.left, node.right))
        if isinstance(node, ast.UnaryOp):
            return self.gathers(node.operand)
        if isinstance(node, ast.Call):
            return self._call(node, value)
        if isinstance(node, ast.Name) and value.measure not in measures.ENTRIES:
            bound = self._bound(node)
            return self._all(bound) if bound else None
        return [] if value.measure in measures.ENTRIES else None

    def _numbers(self, node: ast.BinOp) -> list[Gather]:
        """What makes one factor the same on all ranks, where it is of plain numbers alone."""
        for factor in (node.left, node.right):
            gathers = Trace(self.m, self.path, self.together).gathers(factor)
            if gathers and all(gather.code == NUMBER for gather in gathers):
                return gathers
        return []

    def _value(self, node: ast.expr) -> Value:
        return self.m.values.get(self.tree.site(node), NOTHING)

    def _all(self, nodes: Iterable[ast.expr]) -> list[Gather] | None:
        found: list[Gather] = []
        for node in nodes:
            gathers = self.gathers(node)
            if gathers is None:
                return None
            found += gathers
        return found

    def _call(self, node: ast.Call, value: Value) -> list[Gather] | None:
        site = self.tree.site(node)
        calls = [e for e in self.m.events if isinstance(e, Call) and e.site == site]
        if not calls or not all(self.together(call.where) for call in calls):
            return None
        name = calls[0].name.rpartition(".")[2]
        tensors = _tensors(calls[0])
        operands = [o for o in map(self.tree.expression, tensors) if o is not None]
        if name == "item" and len(operands) == 1:
            mean = self._value(operands[0]).measure in (Measure.MEAN, Measure.MIXED)
            return [Gather(site, NUMBER)] if mean else None  # see `is_mean`
        if name in ("sum", "mean", *ALONG) or is_loss(name) or _is_criterion(calls[0]):
            rows = self._rows(operands)
            if rows is not None:
                return rows
        if name in CURVES or name in SAME or calls[0].name in BOUNDS:
            return self._all(operands)
        return [] if value.measure in measures.ENTRIES else None

    def _rows(self, operands: Iterable[ast.expr]) -> list[Gather] | None:
        """The tensors of a reduction, where each has whole rows."""
        given = [(self.tree.site(o), self._value(o)) for o in operands]
        local = [(site, v) for site, v in given if v.measure is not Measure.UNIFORM]
        if not local or not all(has_rows(v) and not of_several(self.m, v) for _, v in local):
            return None
        return [Gather(site, ROWS) for site, _ in local]

    def _bound(self, node: ast.Name) -> tuple[ast.expr, ...]:
        """All that a name is bound to in its function; nothing where that is not known."""
        scope = self.tree.function(node)
        found: dict[ast.expr, None] = {}
        for event in self.m.events:
            if not isinstance(event, Bind) or event.target != node.id:
                continue
            target = self.tree.expression(event.site) if event.site.path == self.path else None
            if target is None or self.tree.function(target) is not scope:
                continue
            given = self.tree.expression(event.value_site) if event.value_site else None
            if given is None:
                return ()
            found[given] = None
        return tuple(found)


def is_mean(m: Machine, gather: Gather) -> bool:
    """Whether a number to average over the ranks is a mean, in a reading in which it is.

    Before, it may have come from what the ranks made of it in the step before.
    """
    node = m.tree(gather.site.path).expression(gather.site)
    if gather.code != NUMBER or not isinstance(node, ast.Call):
        return True
    assert isinstance(node.func, ast.Attribute)
    value = m.values.get(m.tree(gather.site.path).site(node.func.value), NOTHING)
    return value.measure is Measure.MEAN


def _is_criterion(call: Call) -> bool:
    return any(t.kind is Kind.CRITERION for t in (call.receiver or NOTHING).things)


def _tensors(call: Call) -> list[Site]:
    found = [*call.arg_sites, *call.kwarg_sites.values()]
    receiver = call.receiver
    if receiver is not None and call.receiver_site is not None and receiver.deps:
        found.insert(0, call.receiver_site)
    return found
