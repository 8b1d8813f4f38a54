"""Totals that are summed over the ranks in each round of a loop, and never begin anew.

``dist.all_reduce(total)`` leaves the sum of all ranks in ``total``. What the next round adds is
this rank's own, and the next all_reduce adds up N times what was there before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.model import RankCall, RankLoop, RankThing
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST
from ddpify.rules.shared.syntax import scope, scope_nodes
from ddpify.site import Site

_REDUCTIONS: Final = (f"{DIST}all_reduce", f"{DIST}reduce")
_SUM: Final = f"{DIST}ReduceOp.SUM"
# Methods after which a tensor is not what it was, nor a sum over the ranks.
_BEGINS: Final = frozenset("zero_ fill_ copy_ div_ mul_ set_ resize_".split())


_SAME: Final = frozenset("item int float tolist cpu tuple list numpy detach".split())


@dataclass(frozen=True)
class _Total:
    """What is reduced, and the function that names it so. ``back``: the statement that gives it
    what was reduced, of which it was a part."""

    where: RankCall
    node: ast.expr
    back: ast.Assign | None = None


@dataclass(frozen=True)
class SummedAgain:
    """A reduction, the loop in whose rounds it is repeated, and where that adds to the total."""

    call: RankCall
    loop: RankLoop
    added: Site


def summed_again(run: Run) -> Iterator[SummedAgain]:
    """The reductions whose result is added to, and reduced again."""
    for call in run.named(*_REDUCTIONS):
        shared = collective(call)
        if shared is None or not call.loops or not _is_sum(shared):
            continue
        where, node = _given(call, shared)
        totals = [_Total(where, node)] if node is not None else []
        totals += _written_back(call, shared.node(shared.filled))
        found = filter(None, (_of_total(run, call, one) for one in totals))
        yield from islice((one for one in found if not _once(call, one.loop)), 1)


def _once(call: RankCall, loop: RankLoop) -> bool:
    """``if epoch == last: meter.reduce()``: in one round alone; ``step % 5 == 0`` is in many."""
    asked = (one.node for one in call.conditions_in(loop))
    alike = (
        one for one in asked if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq)
    )
    return any("%" not in ast.unparse(one) for one in alike)


def _is_sum(shared: Collective) -> bool:
    op = shared.given("op")
    return not shared.functional and (op is None or op.names() == {_SUM})


def _given(call: RankCall, shared: Collective) -> tuple[RankCall, ast.expr | None]:
    """What is reduced, where the program names it: not where a helper was handed it."""
    node = shared.node(shared.filled)
    for caller in reversed(call.stack):
        function = caller.target
        if function is None or not isinstance(node, ast.Name):
            break
        names = function.parameters[caller.receiver is not None :]
        if node.id not in names or _rebinds(function.node, node.id):
            break
        call, node = caller, caller.node_of(names.index(node.id), node.id)
    return call, node


def _written_back(call: RankCall, node: ast.expr | None) -> list[_Total]:
    """Those that were put into what is reduced, and get the sums of all ranks from it:
    ``t = torch.tensor([total, n])``, ``all_reduce(t)``, ``total, n = t.tolist()``."""
    if not isinstance(node, ast.Name):
        return []
    put: set[str] = set()
    back: list[tuple[ast.expr, ast.Assign]] = []
    for one in scope_nodes(call):
        if isinstance(one, ast.AugAssign) and _base(one.target) == node.id:
            return []
        if not isinstance(one, ast.Assign):
            continue
        if _is_as_it_is(one.value, node.id) and one.lineno > call.node.lineno:
            back += [(target, one) for target in _targets(one)]
        elif any(_base(target) == node.id for target in _targets(one)):
            if put or one.lineno > call.node.lineno:
                return []
            put = set(_elements(one.value))
    return [_Total(call, target, one) for target, one in back if ast.unparse(target) in put]


def _elements(value: ast.expr) -> Iterator[str]:
    """``total`` and ``n`` of ``torch.tensor([total, n], dtype=torch.float64)``."""
    given = value.args[0] if isinstance(value, ast.Call) and value.args else value
    for one in given.elts if isinstance(given, ast.List | ast.Tuple) else (given,):
        yield ast.unparse(one.args[0] if isinstance(one, ast.Call) and one.args else one)


def _is_as_it_is(value: ast.expr, name: str) -> bool:
    """``int(t[1].item())``: the number itself, not what is computed from it."""
    nodes = list(ast.walk(value))
    called = (one.func for one in nodes if isinstance(one, ast.Call))
    words = (one.attr if isinstance(one, ast.Attribute) else ast.unparse(one) for one in called)
    return (
        any(isinstance(one, ast.Name) and one.id == name for one in nodes)
        and not any(isinstance(one, ast.BinOp | ast.IfExp | ast.Compare) for one in nodes)
        and all(word in _SAME for word in words)
    )


def _of_total(run: Run, call: RankCall, one: _Total) -> SummedAgain | None:
    if isinstance(one.node, ast.Attribute):
        return _of_object(run, call, one)
    return _of_name(call, one, one.node.id) if isinstance(one.node, ast.Name) else None


def _of_name(call: RankCall, total: _Total, name: str) -> SummedAgain | None:
    """A name of the function, or of the top level, in which the loop stands."""
    body = scope(total.where)
    for loop in reversed(total.where.loops):
        inside = any(node is loop.node for node in ast.walk(body))
        more = _added(loop.node, name) if inside else None
        if more is None or _rebinds(loop.node, name, total.back) or _ends(loop.node, name):
            continue
        return SummedAgain(call, loop, loop.module.site(more))
    return None


def _of_object(run: Run, call: RankCall, total: _Total) -> SummedAgain | None:
    """``self.total`` of an object that is made before the loop."""
    where, node = total.where, total.node
    function = where.function
    if not isinstance(node, ast.Attribute):
        return None
    owner = where.stack[-1].receiver if function is not None and where.stack else None
    if owner is None or not _is_self(node, function) or len(owner.things) != 1:
        return None
    thing = owner.things[0]
    for loop in reversed(where.loops):
        if thing.call is not None and loop in thing.call.loops:
            return None
        methods = _methods(run, loop, thing)
        name = f"self.{node.attr}"
        if any(_rebinds(one.node, name, total.back) or _ends(one.node, name) for one in methods):
            return None
        if _begun(run, loop, thing, node.attr):
            return None
        added = ((one, _added(one.node, name)) for one in methods)
        found = next(((one, more) for one, more in added if more is not None), None)
        if found is not None and thing.call is not None:
            return SummedAgain(call, loop, found[0].module.site(found[1]))
    return None


def _begun(run: Run, loop: RankLoop, thing: RankThing, name: str) -> bool:
    """Whether a round gives the object another total from outside: ``meter.total = 0``."""
    own = {f"{cls.name}." for cls in thing.cls.mro()} if thing.cls is not None else set()
    stores = (s for s in run.stores if s.key == name and loop in s.loops and thing in s.base.things)
    if any(one.function is None or f"{_owner(one.function)}." not in own for one in stores):
        return True
    changes = (c for c in run.calls if loop in c.loops and c.method in _BEGINS)
    return any(_spells(call.node.func, name) for call in changes)


def _owner(function: FunctionDefinition) -> str:
    return function.owner.name if function.owner is not None else ""


def _spells(called: ast.expr, name: str) -> bool:
    """``meter.total.zero_``"""
    held = called.value if isinstance(called, ast.Attribute) else None
    return isinstance(held, ast.Attribute) and held.attr == name


def _is_self(node: ast.Attribute, function: FunctionDefinition | None) -> bool:
    names = function.parameters if function is not None else ()
    return isinstance(node.value, ast.Name) and node.value.id == "self" and names[:1] == ("self",)


def _methods(run: Run, loop: RankLoop, thing: RankThing) -> list[FunctionDefinition]:
    """The methods of an object that the rounds of a loop call."""
    called = (
        call.target
        for call in run.calls
        if loop in call.loops and call.receiver is not None and thing in call.receiver.things
    )
    return list(dict.fromkeys(one for one in called if one is not None))


def _added(body: ast.AST, name: str) -> ast.AST | None:
    """``name += …``, ``name[i] += …``, ``name.add_(…)``."""
    for node in ast.walk(body):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            held: ast.expr | None = node.target
        else:
            called = node.func if isinstance(node, ast.Call) else None
            adds = isinstance(called, ast.Attribute) and called.attr == "add_"
            held = called.value if isinstance(called, ast.Attribute) and adds else None
        if held is not None and _base(held) == name:
            return node
    return None


def _rebinds(body: ast.AST, name: str, but: ast.AST | None = None) -> bool:
    """Whether the name gets another value there, or the tensor another content."""
    for node in (one for one in ast.walk(body) if one is not but):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _BEGINS and ast.unparse(node.func.value) == name:
                return True
        elif isinstance(node, ast.AugAssign):
            if not isinstance(node.op, ast.Add) and _base(node.target) == name:
                return True
        elif any(_base(target) == name for target in _targets(node)):
            return True
    return False


def _ends(body: ast.AST, name: str) -> bool:
    """Whether something ends where it is not zero any more: a flag is summed up once."""
    asked = (node for node in ast.walk(body) if isinstance(node, ast.If))
    return any(
        any(isinstance(one, ast.Break | ast.Return | ast.Raise) for one in ast.walk(node))
        for node in asked
        if any(_base(part) == name for part in ast.walk(node.test) if isinstance(part, ast.expr))
    )


def _base(target: ast.expr) -> str:
    """``total`` of ``total[:]``."""
    return ast.unparse(target.value if isinstance(target, ast.Subscript) else target)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement binds, the parts of tuples too."""
    given = node.targets if isinstance(node, ast.Assign | ast.Delete) else ()
    single = getattr(node, "target", None) if not isinstance(node, ast.AugAssign) else None
    optional = getattr(node, "optional_vars", None)
    for target in (*given, *((single,) if single else ()), *((optional,) if optional else ())):
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else (target,)
