"""Messages that the reader did not come to, or not in the turn in which they are exchanged."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.interest import says
from ddpify.ranks.model import RankCall, RankLoop
from ddpify.ranks.modules import Module
from ddpify.ranks.run import Run
from ddpify.rules.shared.syntax import dotted, parents, scope, scope_nodes
from ddpify.rules.shared.written import holds

_LATER: Final = ("threading.Thread", "atexit.register", "signal.signal")
_POSTED: Final = f"{words.DIST}P2POp"
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def out_of_turn(run: Run, calls: list[RankCall]) -> bool:
    """Whether one is made on a thread or at the end, or as often as a comprehension says."""
    later = {one.node for one in run.named(*_LATER)}
    way = {one for call in calls for one in call.way}
    counted = {loop.node for loop in run.comprehended}
    return any(
        one.node in later or _is_in_comprehension(one, counted) or _goes_through_grown(run, one)
        for one in way
    )


def filled_by(run: Run, loop: RankLoop) -> RankCall | None:
    """The one call that fills the list that a loop goes through, once in each round of another
    loop before it: ``for x in xs: ys.append(f(x))``, and then ``for y in ys``."""
    over = getattr(loop.node, "iter", None)
    if isinstance(over, ast.Call) and ast.unparse(over.func) in ("enumerate", "reversed"):
        over = over.args[0]
    name = over.id if isinstance(over, ast.Name) else ""
    fills = [
        one
        for one in run.methods("append", "extend", "insert", "pop", "clear", "remove")
        if isinstance(one.node.func, ast.Attribute)
        and ast.unparse(one.node.func.value) == name
        and one.module is loop.module
    ]
    fill = fills[0] if len(fills) == 1 and fills[0].method == "append" else None
    if fill is None or not fill.loops or fill.conditions_in(fill.loops[-1]):
        return None
    inner, within = fill.loops[-1], scope(fill)
    begun = [
        one
        for one in ast.walk(within)
        if isinstance(one, ast.Assign) and any(ast.unparse(t) == name for t in one.targets)
    ]
    own = len(begun) == 1 and isinstance(begun[0].value, ast.List) and not begun[0].value.elts
    left = any(one.loops[-1:] == (inner,) for one in run.exits)
    if not own or left or holds(inner.node, begun[0]) or holds(inner.node, loop.node):
        return None
    return fill if holds(within, loop.node) and run.in_every_round(fill, inner) else None


def _goes_through_grown(run: Run, call: RankCall) -> bool:
    """Whether a loop around it goes through a list that another loop has filled, which is read as
    one element: ``for y in outs``."""
    within, read = scope(call), {loop.node for loop in (*call.loops, *_grown(run, call))}
    loops = [node for node in ast.walk(within) if isinstance(node, (ast.For, ast.While))]
    grown = {
        ast.unparse(node.func.value)
        for loop in loops
        for node in ast.walk(loop)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend")
    }
    return any(
        isinstance(loop, ast.For)
        and loop not in read
        and holds(loop, call.node)
        and not grown.isdisjoint(ast.unparse(part) for part in ast.walk(loop.iter))
        for loop in (loops if grown else ())
    )


def _grown(run: Run, call: RankCall) -> Iterator[RankLoop]:
    """The loops around a call that are read as one round, the number of which is known."""
    for loop in run.loops:
        if loop not in call.loops and loop.module is call.module and holds(loop.node, call.node):
            fill = filled_by(run, loop)
            if fill is not None and fill.stack == call.stack and fill.loops[:-1] == call.loops:
                yield loop


def _is_in_comprehension(call: RankCall, counted: set[ast.AST]) -> bool:
    """Whether it is in one that is not a loop over what is known: of several, or with an `if`."""
    return any(
        isinstance(node, _COMPREHENSIONS) and node not in counted and holds(node, call.node)
        for node in scope_nodes(call)
    )


def loops(run: Run, call: RankCall) -> tuple[RankLoop, ...]:
    """The loops around a call, outermost first, with those comprehensions that are loops."""
    found = [
        loop
        for one in call.way
        for loop in (
            *one.loops,
            *_grown(run, one),
            *(each for each in run.comprehended if holds(each.node, one.node)),
        )
    ]
    return tuple(dict.fromkeys(found))


def overlooked(run: Run, methods: frozenset[str], others: bool) -> bool:
    """Whether one of these functions is handed on (``Thread(target=dist.recv)``), or called in a
    function that was not come to and may be called by something else: a hook, a data set.

    ``others``: a method of an unknown object may be one of them, too.
    """
    modules = [module for module in run.modules.values() if not module.ours]
    for module in modules:
        if not says(module.source.text, tuple(methods)):
            continue
        above = parents(module.tree)
        for node in _messages(module, methods, others):
            holder = above[node]
            called = isinstance(holder, ast.Call) and (
                holder.func is node or dotted(module, holder.func) == _POSTED
            )
            missed = _missed(run, module, _around(node, above))
            if not called or (missed and not run.once(_mentioned).isdisjoint(_names(missed))):
                return True
    return False


def _messages(module: Module, methods: frozenset[str], others: bool) -> Iterator[ast.expr]:
    names = {f"{words.DIST}{one}" for one in methods}
    for node in module.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = dotted(module, node)
            if name in names or (others and not name and getattr(node, "attr", "") in methods):
                yield node


def _around(node: ast.AST, above: dict[ast.AST, ast.AST]) -> list[ast.AST]:
    """The functions and classes in which it stands, innermost first."""
    found: list[ast.AST] = []
    while node in above:
        node = above[node]
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.append(node)
    return found


def _missed(run: Run, module: Module, around: list[ast.AST]) -> list[ast.AST]:
    """The functions that were not come to, and classes that libraries may call them through."""
    functions = [one for one in around if isinstance(one, _FUNCTIONS)]
    inner = functions[:1]
    if not inner or (module.path, inner[0].lineno) in run.entered:
        return []
    outer = next((n for n, one in enumerate(around) if _came(run, module, one)), len(around))
    hidden = getattr(inner[0], "name", "__").startswith("__")
    return [
        one
        for one in around[:outer]
        if not isinstance(one, ast.ClassDef) or hidden or one.bases or one.keywords
    ]


def _came(run: Run, module: Module, node: ast.AST) -> bool:
    return isinstance(node, _FUNCTIONS) and (module.path, node.lineno) in run.entered


def _names(around: list[ast.AST]) -> set[str]:
    return {getattr(one, "name", "") for one in around}


def _mentioned(run: Run) -> frozenset[str]:
    """All names that the program's own files mention."""
    modules = [module for module in run.modules.values() if not module.ours]
    nodes = [node for module in modules for node in module.nodes]
    return frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute))
    )
