"""Statements, as two ranks run them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ddpify.ranks import assigning, calls, containers, inflight, leaving, mixing, naming
from ddpify.ranks.attempts import attempt, is_alone
from ddpify.ranks.contexts import entered_context
from ddpify.ranks.expressions import operation
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.lazily import first_use, note_made
from ddpify.ranks.looping import go_on_while, go_through
from ddpify.ranks.matching import match
from ddpify.ranks.model import RANK0, RANK1, RankValue
from ddpify.ranks.modules import FunctionDefinition, class_info, note_import
from ddpify.ranks.origins import Symbol
from ddpify.ranks.paths import last_exits
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.trace import ABORT, LEAVING, RAISE, Inline, first
from ddpify.ranks.values import constant, same, spread, symbol, turn


def execute(m: RankMachine, f: RankFrame, body: list[ast.stmt]) -> None:
    """Run statements one after the other, while a rank is there."""
    for node in body:
        if m.live:
            m.spend(f, node)
        if not m.live:
            return
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            handler(m, f, node)


def _expr(m: RankMachine, f: RankFrame, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Call):
        calls.call(m, f, node.value, alone=True)
    elif not isinstance(node.value, ast.Constant):
        m.evaluate(f, node.value)


def _assign(m: RankMachine, f: RankFrame, node: ast.Assign) -> None:
    value = m.evaluate(f, node.value)
    for target in node.targets:
        assigning.assign(m, f, target, value)


def _ann_assign(m: RankMachine, f: RankFrame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assigning.assign(m, f, node.target, m.evaluate(f, node.value))


def _aug_assign(m: RankMachine, f: RankFrame, node: ast.AugAssign) -> None:
    binary = ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value)
    ast.copy_location(binary, node)
    old = m.evaluate(f, binary.left)
    inflight.touch(m, f, old, node, changes=True)
    value = operation(m, f, binary, old, m.evaluate(f, node.value))
    if value.known and same(*value.atoms) and m.here.loops:
        value = replace(
            value, atoms=turn(f"{ast.unparse(node.target)}@{f.module.site(node)}").atoms
        )
    assigning.assign(m, f, node.target, _in_place(f, node, old, value))


def _in_place(f: RankFrame, node: ast.AugAssign, old: RankValue, value: RankValue) -> RankValue:
    """``total += x`` changes a tensor in place: it stays the same tensor, with more in it."""
    if isinstance(node.target, ast.Subscript) or value.things or not assigning.is_tensor(old):
        return value
    for thing in old.things:
        thing.synced = thing.synced and not spread(value)
    made = replace(value, things=old.things, deps=value.deps - frozenset(old.things))
    by_more = isinstance(node.op, (ast.Div, ast.Mult)) and not made.deps <= old.deps
    return mixing.scaled(made, f.module.site(node)) if by_more else made


def _loaded(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    if isinstance(target, ast.Name):
        made: ast.expr = ast.Name(id=target.id, ctx=ast.Load())
    elif isinstance(target, ast.Attribute):
        made = ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
    else:
        made = ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load())
    return ast.copy_location(made, target)


def _delete(m: RankMachine, f: RankFrame, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            _delete_element(m, f, target)
        elif not isinstance(target, ast.Name):
            m.evaluate(f, target)


def _delete_element(m: RankMachine, f: RankFrame, target: ast.Subscript) -> None:
    base, index = m.evaluate(f, target.value), m.evaluate(f, target.slice)
    bounds = index.items if isinstance(target.slice, ast.Slice) else None
    if m.call_method(f, base, "__delitem__", target, (index,)) is None and not m.here.loops:
        changed = containers.without(base, index, bounds)
        if changed is not base:
            m.change(f, target.value, base, changed)


def _if(m: RankMachine, f: RankFrame, node: ast.If) -> None:
    test = first_use(m, f, node, m.evaluate(f, node.test))
    m.branch(
        f,
        test,
        node.test,
        (lambda: _body(m, f, node), lambda: execute(m, f, node.orelse)),
    )


def _body(m: RankMachine, f: RankFrame, node: ast.If) -> None:
    start = len(m.run.stores)
    execute(m, f, node.body)
    note_made(m, f, node, m.run.stores[start:])


def _return(m: RankMachine, f: RankFrame, node: ast.Return) -> None:
    value = m.evaluate(f, node.value) if node.value is not None else constant(None)
    leave(m, f, node, value)


def leave(m: RankMachine, f: RankFrame, node: ast.AST, value: RankValue) -> None:
    """Return a value for the ranks that are live; under ``branch`` it is kept like a name."""
    f.return_ranks.append((m.live, value, m.here.guards))
    m.end(f, "return", node)


def _raise(m: RankMachine, f: RankFrame, node: ast.Raise) -> None:
    if node.exc is not None:
        m.evaluate(f, node.exc)
        if f.module.ours:
            return  # `raise SystemExit("batch size 1 cannot …")`: of other settings there is more
    # SystemExit alone is the end of this rank, and no error
    caught = any(tried.catches(node) for tried in m.here.swallows)
    m.end(f, "stop" if _is_plain_exit(node.exc) else RAISE if caught else ABORT, node)


def _is_plain_exit(raised: ast.expr | None) -> bool:
    return raised is not None and ast.unparse(raised) in (
        *("SystemExit", "SystemExit()", "SystemExit(0)", "SystemExit(None)"),
    )


def _break(m: RankMachine, f: RankFrame, node: ast.Break) -> None:
    m.end(f, "break", node)


def _continue(m: RankMachine, f: RankFrame, node: ast.Continue) -> None:
    m.end(f, "continue", node)


def _assert(m: RankMachine, f: RankFrame, node: ast.Assert) -> None:
    """`assert local_rank == -1`: what follows is not for the ranks of a distributed run."""
    test = m.evaluate(f, node.test)
    if test.by_rank and m.may(test, m.live, True) != m.live:
        m.branch(f, test, node.test, (lambda: None, lambda: m.end(f, ABORT, node)))
    if test.constant is False:
        _set_unseen(m, f, node.test)


def _set_unseen(m: RankMachine, f: RankFrame, test: ast.expr) -> None:
    """`assert GROUP is not None`: where it is None as far as is seen, other code has set it."""
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name)):
        return
    value = m.evaluate(f, test.left)
    if isinstance(test.ops[0], ast.IsNot) and value.known and value.constant is None:
        one = f"{test.left.id}@{f.module.path}"
        assigning.assign_quietly(m, f, test.left, symbol(one))


def _with(m: RankMachine, f: RankFrame, node: ast.With | ast.AsyncWith) -> None:
    _within(m, f, list(node.items), node.body)


def _within(m: RankMachine, f: RankFrame, items: list[ast.withitem], body: list[ast.stmt]) -> None:
    if not items:
        execute(m, f, body)
        return
    first, rest = items[0], items[1:]

    def inside(value: RankValue) -> None:
        if first.optional_vars is not None:
            assigning.assign(m, f, first.optional_vars, value)
        _within(m, f, rest, body)

    entered_context(m, f, first.context_expr, inside)


def _try(m: RankMachine, f: RankFrame, node: ast.Try) -> None:
    here, start = m.here, len(m.items)
    if (said := attempt(f.module.source, node)).swallows:
        m.here = replace(here, swallows=(*here.swallows, said))
    live = m.live
    with leaving.block(m, f, node, *([RAISE] if node.handlers else [])) as block:
        raised = _attempt(m, f, node)
    leaving.join(m, f, block, m.live)
    m.here = here
    after, handled = m.live, 0
    for handler in node.handlers:
        if raised or not is_alone(handler, node):
            _handler(m, f, handler, live, raised if len(node.handlers) == 1 else 0)
            handled |= m.live & raised
    m.live = after
    if m.live:
        execute(m, f, node.orelse)
    gone, m.live = m.live | handled, live
    tried = m.items[start:]
    execute(m, f, node.finalbody)
    last = m.items[start + len(tried) :]
    m.items[start:] = [*first(last, tried, (*LEAVING, RAISE)), *last]
    m.live = gone if node.handlers == [] else (gone or live & ~raised)


def _attempt(m: RankMachine, f: RankFrame, node: ast.Try) -> int:
    """What is tried; an error that is caught leads to its end. The ranks that it leads there."""
    live, items, before = m.live, m.items, len(m.run.exits)
    m.items = []
    execute(m, f, node.body)
    tried, m.items = m.items, items
    left = bool(node.handlers) and any(one.kind == RAISE for one in m.run.exits[before:])
    m.items += [Inline(tried, live, RAISE)] if left else tried
    gone = live & ~m.live if left else 0
    return sum(
        one for one in (RANK0, RANK1) if gone & one and last_exits(tried, one >> 1) == {RAISE}
    )


def _handler(
    m: RankMachine, f: RankFrame, handler: ast.ExceptHandler, live: int, raised: int
) -> None:
    """A handler may run, as under a condition that is the same on all ranks; on those that surely
    ``raised`` an error it does."""
    if handler.name:
        m.write(f.names, handler.name, symbol("exception"))
    m.live = live
    key = f"except@{f.module.path}:{handler.lineno}"
    test = RankValue((raised & RANK0 > 0 or Symbol(key), raised & RANK1 > 0 or Symbol(key)))
    node = handler.type or ast.copy_location(ast.Constant(value=True), handler)
    m.branch(f, test, node, (lambda: execute(m, f, handler.body), lambda: None))


def _function(m: RankMachine, f: RankFrame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    known = f.module.functions.get(node.name) if f.function is None else None
    info = known if known is not None and known.node is node else None
    if info is None:
        info = FunctionDefinition(node.name, node, f.module)
    m.write(f.names, node.name, naming.make_function(m, f, info))


def _class(m: RankMachine, f: RankFrame, node: ast.ClassDef) -> None:
    known = f.module.classes.get(node.name)
    info = known if known is not None and known.node is node else class_info(f.module, node)
    m.write(f.names, node.name, naming.make_class(m, f, info))


def _import(m: RankMachine, f: RankFrame, node: ast.Import | ast.ImportFrom) -> None:
    names: dict[str, tuple[str, str, int]] = {}
    stars: list[tuple[str, int]] = []
    note_import(names, stars, node)
    for name, (dotted, attribute, level) in names.items():
        m.write(f.names, name, naming.imported(m, f.module, dotted, attribute, level))


def _global(m: RankMachine, f: RankFrame, node: ast.Global) -> None:
    f.outward |= set(node.names)


def _nonlocal(m: RankMachine, f: RankFrame, node: ast.Nonlocal) -> None:
    f.nonlocals |= set(node.names)


_HANDLERS: dict[type[ast.stmt], Callable[[RankMachine, RankFrame, Any], None]] = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _ann_assign,
    ast.AugAssign: _aug_assign,
    ast.Delete: _delete,
    ast.If: _if,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Assert: _assert,
    ast.For: go_through,
    ast.AsyncFor: go_through,
    ast.While: go_on_while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    getattr(ast, "TryStar", ast.Try): _try,  # from Python 3.11 on
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Match: match,
}
