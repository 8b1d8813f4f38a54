"""Sums over all ranks that are put together over the ranks once more, and shown as they are:

dist.all_reduce(self.mat)               # on each rank the sum of all
...
dist.all_gather_object(mats, metric.mat)
print(sum(mats))                        # N times that
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.mixing import Mark, Of, marks
from ddpify.ranks.model import RANK0, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.ranks.words import DIST
from ddpify.rules.metrics.metrics import shows
from ddpify.rules.shared.syntax import parents, scope, scope_nodes
from ddpify.site import Site

_GATHERS: Final = {
    "all_gather": ("tensor_list", "tensor"),
    "gather": ("gather_list", "tensor"),
    "all_gather_object": ("object_list", "obj"),
    "gather_object": ("object_gather_list", "obj"),
}
_ADDS: Final = frozenset({"sum"})
_AS_IT_IS: Final = frozenset("print int float item tolist round cpu format".split())


def reduced_twice(run: Run) -> Iterator[tuple[RankCall, Site]]:
    """(second, first): the collective that adds up what has been summed over all ranks before."""
    for call in run.named(f"{DIST}all_reduce", *(f"{DIST}{one}" for one in _GATHERS)):
        shared = collective(call)
        if shared is None or shared.group is not None or not call.everywhere:
            continue
        names = _GATHERS.get(call.method, (shared.filled, shared.filled))
        value, filled = shared.given(names[1]), shared.node(names[0])
        first = _before(run, call, value) if value is not None else None
        if first is None or not isinstance(filled, ast.Name):
            continue
        added = (filled.id,) if call.method == "all_reduce" else tuple(_sums(call, filled.id))
        if _is_sum(shared) and any(_is_shown(run, call, name) for name in added):
            yield call, first


def _is_sum(shared: Collective) -> bool:
    op = shared.given("op")
    return op is None or op.names() == {f"{DIST}ReduceOp.SUM"}


def _before(run: Run, call: RankCall, value: RankValue) -> Site | None:
    """Where all ranks have made the very number that a collective is given."""
    mark = marks(value).get(Of.ALL)
    if mark is None or mark.key != text(value.atoms[0]) or Of.PART in marks(value):
        return None
    ahead = [c for c in run.named(f"{DIST}all_reduce") if c.site == mark.site]
    known = [shared for c in ahead if (shared := collective(c)) is not None]
    whole = bool(known) and all(shared.group is None for shared in known)
    nested = any(set(call.loops) - set(c.loops) for c in ahead)  # in rounds of its own
    earlier = all(c.order < call.order for c in ahead) and mark.site != call.site
    return (
        mark.site if whole and earlier and not nested and not _is_touched(run, call, mark) else None
    )


def _is_touched(run: Run, call: RankCall, mark: Mark) -> bool:
    """Whether a method may have changed the tensor in place: ``total.zero_()``."""
    return any(
        c.method.endswith("_") and not c.method.startswith("_") and c.order < call.order
        for c in run.calls
        if c.receiver is not None and not set(mark.tensors).isdisjoint(c.receiver.things)
    )


def _sums(call: RankCall, name: str) -> Iterator[str]:
    """The names that get the sum of what was gathered: ``total = torch.stack(parts).sum(0)``."""
    for one in scope_nodes(call):
        if isinstance(one, ast.Assign) and one.lineno > call.node.lineno:
            target = one.targets[0]
            if len(one.targets) == 1 and isinstance(target, ast.Name) and _adds_up(one.value, name):
                yield target.id


def _adds_up(value: ast.expr, name: str) -> bool:
    """``sum(parts)``, ``sum(int(p[0]) for p in parts)``, ``torch.stack(parts).sum(0)``."""
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    word = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    if word in _AS_IT_IS:
        inside = [*value.args, *([function.value] if isinstance(function, ast.Attribute) else [])]
        return any(_adds_up(one, name) for one in inside)
    nodes = list(ast.walk(value))
    divides = any(isinstance(one, ast.BinOp | ast.IfExp) for one in nodes)
    named = any(isinstance(one, ast.Name) and one.id == name for one in nodes)
    return word in _ADDS and named and not divides


def _is_shown(run: Run, call: RankCall, name: str) -> bool:
    """Whether a number is shown as it is, and nothing divides it."""
    body = scope(call)
    above = parents(body)
    later = [
        one
        for one in ast.walk(body)
        if isinstance(one, ast.Name) and one.id == name and one.lineno > call.node.lineno
    ]
    if sum(isinstance(one.ctx, ast.Store) for one in later) > (call.method != "all_reduce"):
        return False
    if any(getattr(above.get(one), "attr", "").endswith("_") for one in later):
        return False  # divided in place
    shown = {c.node for c in run.calls if shows(c) and c.target is None and c.ranks & RANK0}
    return any(_reaches(one, shown, above) for one in later)


def _reaches(node: ast.AST, shown: set[ast.Call], above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether it gets into a call as it is, or as a part of its text."""
    while (node := above.get(node, node)) not in shown:
        function = node.func if isinstance(node, ast.Call) else None
        word = getattr(function, "attr", None) or getattr(function, "id", "")
        as_it_is = isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.Attribute)
        if not (as_it_is or word in _AS_IT_IS) or node not in above:
            return False
    return True
