"""Execute statements abstractly: bind names, take both branches, run loop bodies twice.

Import statements: local modules are read, others are known by name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ddpify.facts import (
    containers,
    growth,
    matching,
    own_optimizers,
    own_shares,
    special,
    sums,
)
from ddpify.facts.assignments import assign
from ddpify.facts.conditions import conditioned, passed
from ddpify.facts.events import Unknown
from ddpify.facts.joining import join
from ddpify.facts.loops import for_loop, merge, while_loop
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, Loop, ModuleInfo
from ddpify.facts.values import NO_CONST, NOTHING, Kind, Thing, Value, constant, one
from ddpify.python.imports import exported
from ddpify.python.libraries import is_known
from ddpify.source import Site


def execute(m: Machine, f: Frame, body: Sequence[ast.stmt]) -> bool:
    """Run ``body``; True when it never falls through (return, raise, break, continue)."""
    held = f.guards
    try:
        for statement in body:
            m.spend()
            f.statement = site = m.site(f, statement)
            mark = len(f.skips)
            if site in m.target.divided:
                own_shares.divide(m, f, m.target.divided[site])
            if _step(m, f, statement):
                return True
            for guard in passed(f, f.skips[mark:]):
                m.hold(f, guard.test, guard.site, guard.holds)
            f.statement = site
            m.apply_wraps(f, site)
        return False
    finally:
        f.guards = held


def _step(m: Machine, f: Frame, statement: ast.stmt) -> bool:
    handler = HANDLERS.get(type(statement))
    if handler is None:
        return False
    return bool(handler(m, f, statement))


def _expression(m: Machine, f: Frame, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Call):
        m.call(f, node.value, alone=True)
    else:
        m.evaluate(f, node.value)


def _assign(m: Machine, f: Frame, node: ast.Assign) -> None:
    if sums.added_to(m, f, node):
        return
    value = m.evaluate(f, node.value)
    for target in node.targets:
        assign(m, f, target, value, node.value)


def _annotated(m: Machine, f: Frame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(m, f, node.target, m.evaluate(f, node.value), node.value)


def _augmented(m: Machine, f: Frame, node: ast.AugAssign) -> None:
    if growth.extended(m, f, node) or sums.augmented(m, f, node):
        return
    load = _as_load(node.target)
    own_optimizers.by_assignment(m, f, node, load)
    value = m.evaluate(f, ast.copy_location(ast.BinOp(load, node.op, node.value), node))
    assign(m, f, node.target, value)


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    assert isinstance(target, ast.Subscript)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)


def _if(m: Machine, f: Frame, node: ast.If) -> bool:
    test = m.evaluate(f, node.test)
    if test.decided:
        return execute(m, f, node.body if test.const else node.orelse)
    site = m.site(f, node.test)
    before = dict(f.env)
    with m.guarded(f, test, site, True):
        left = execute(m, f, node.body)
    after_body = dict(f.env)
    f.env.clear()
    f.env.update(before)
    with m.guarded(f, test, site, False):
        right = execute(m, f, node.orelse)
    if left and not right and not _raises(node.body):
        m.hold(f, test, site, False)
    elif right and not left and not _raises(node.orelse):
        m.hold(f, test, site, True)
    merge(f, after_body if not left else None, None if right and not left else dict(f.env))
    return left and right


def _raises(body: Sequence[ast.stmt]) -> bool:
    """A branch that raises ends the whole job: what follows is not a path some ranks skip."""
    return bool(body) and isinstance(body[-1], ast.Raise)


def _with(m: Machine, f: Frame, node: ast.With | ast.AsyncWith) -> bool:
    held, no_grad = f.contexts, f.no_grad
    for item in node.items:
        value = m.evaluate(f, item.context_expr)
        f.contexts = (*f.contexts, value)
        f.no_grad = m.without_grad(value, f.no_grad)
        if item.optional_vars is not None:
            assign(m, f, item.optional_vars, m.entered(f, value), item.context_expr)
    ended = execute(m, f, node.body)
    f.contexts, f.no_grad = held, no_grad
    return ended


def _try(m: Machine, f: Frame, node: Any) -> bool:
    before = dict(f.env)
    ended = execute(m, f, node.body)
    after = dict(f.env)
    if not ended:
        ended = execute(m, f, node.orelse)
        after = dict(f.env)
    for handler in node.handlers:
        merge(f, before, after)
        if handler.name:
            f.bind(handler.name, NOTHING)
        ended = execute(m, f, handler.body) and ended
        merge(f, dict(f.env), after)
    return execute(m, f, node.finalbody) or ended


def _return(m: Machine, f: Frame, node: ast.Return) -> bool:
    value = m.evaluate(f, node.value) if node.value is not None else constant(None)
    value = conditioned(value, f.guards[f.entered_with :])
    for thing in value.things:
        thing.hop(m.site(f, node), "returned")
    f.returns.append(value)
    f.skips.extend(f.guards[f.entered_with :])
    _end_loops(f, f.loop)
    return True


def _end_loops(f: Frame, loop: Loop | None) -> None:
    """The conditions here decide whether these loops of the function go on."""
    while loop is not None and loop.frame is f:
        loop.exits.extend(f.guards[loop.held :])
        loop = loop.parent


def _leave(m: Machine, f: Frame, node: ast.Break | ast.Continue) -> bool:
    f.leaves.append(dict(f.env))
    if f.loop is not None:
        inside = f.guards[f.loop.held :]
        (f.loop.exits if isinstance(node, ast.Break) else f.skips).extend(inside)
    return True


def _raise(m: Machine, f: Frame, node: ast.Raise) -> bool:
    if node.exc is not None:
        m.evaluate(f, node.exc)
    return True


def _function(m: Machine, f: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    made = m.make_function(f, node, node.name)
    assert isinstance(made.ref, FunctionInfo)
    if f.in_class and special.attach_setter(f, node, made):
        return
    f.bind(node.name, special.decorated(m, f, made, made.ref.decorators, made.born))


def _class(m: Machine, f: Frame, node: ast.ClassDef) -> None:
    bases = tuple(m.evaluate(f, base) for base in node.bases)
    info = ClassInfo(node.name, node, f.module, m.site(f, node), bases)
    inner = Frame(f.module, f.function, info.env, f if f.function else None, f.stack, f)
    inner.statement, inner.in_class = f.statement, True
    execute(m, inner, node.body)
    for value in info.env.values():
        m.own(value, info)
    info.thing = Thing(Kind.CLASS, info.site, node.name, ref=info)
    base = next((c for c in info.mro()[1:] if "__init_subclass__" in c.env), None)
    if base is not None:
        m.apply(f, base.env["__init_subclass__"], (one(info.thing),), info.site)
    decorators = tuple(m.evaluate(f, decorator) for decorator in node.decorator_list)
    f.bind(node.name, special.decorated(m, f, info.thing, decorators, info.site))


def _global(m: Machine, f: Frame, node: ast.Global) -> None:
    f.globals_.update(node.names)


def _nonlocal(m: Machine, f: Frame, node: ast.Nonlocal) -> None:
    f.nonlocals.update(node.names)


def _delete(m: Machine, f: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        if not isinstance(target, ast.Name):
            _forget(m, f, target)
            m.evaluate(
                f,
                _as_load(target) if isinstance(target, (ast.Attribute, ast.Subscript)) else target,
            )


def _forget(m: Machine, f: Frame, target: ast.expr) -> None:
    """``del xs[0]`` of a list."""
    if isinstance(target, ast.Subscript):
        index = m.evaluate(f, target.slice)
        for thing in m.evaluate(f, target.value).of(*containers.LISTS):
            containers.remove(f, thing, index)


def _assert(m: Machine, f: Frame, node: ast.Assert) -> None:
    m.evaluate(f, node.test)
    if node.msg is not None:
        m.evaluate(f, node.msg)


def _match(m: Machine, f: Frame, node: ast.Match) -> None:
    subject = m.evaluate(f, node.subject)
    before = dict(f.env)
    merged = before
    for case in node.cases:
        f.env.update(before)
        holds = _matches(m, f, case, subject)
        if holds is False:
            continue
        with m.guarded(f, subject.but(const=NO_CONST), m.site(f, node.subject), True):
            ended = execute(m, f, case.body)
        if holds is True:
            merged = {} if merged is before else merged
        if not ended:
            merged = {k: join(merged.get(k), f.env.get(k)) for k in {**merged, **f.env}}
        if holds is True:
            break
    f.env.update(merged)


def _matches(m: Machine, f: Frame, case: ast.match_case, subject: Value) -> bool | None:
    """Whether a case is taken, None when that is not known; its names are bound."""
    holds = matching.bind(m, f, case.pattern, subject)
    guard = m.evaluate(f, case.guard) if case.guard is not None and holds is not False else None
    if guard is None or holds is False:
        return holds
    return False if guard.decided and not guard.const else (holds if guard.decided else None)


def import_(m: Machine, f: Frame, node: ast.Import) -> None:
    for alias in node.names:
        value = m.import_module(f, alias.name, m.site(f, node))
        unread(m, value, m.site(f, node))
        if alias.asname:
            f.bind(alias.asname, value)
        else:
            top = alias.name.split(".")[0]
            f.bind(top, m.import_module(f, top, m.site(f, node)) if top != alias.name else value)


def import_from(m: Machine, f: Frame, node: ast.ImportFrom) -> None:
    site = m.site(f, node)
    module = m.import_from(f, node.module or "", node.level, site)
    unread(m, module, site)
    for alias in node.names:
        if alias.name == "*":
            import_star(m, f, module, site)
        else:
            f.bind(alias.asname or alias.name, m.member(f, module, alias.name, site))


def unread(m: Machine, module: Value, site: Site) -> None:
    """Say that a module is neither in the project nor known: what it does is not seen."""
    for thing in module.of(Kind.EXTERNAL):
        if not is_known(thing.name):
            m.unknown(
                Unknown(site, f"`{thing.name or '.'}` is not read: what it writes, each rank does")
            )


def import_star(m: Machine, f: Frame, module: Value, site: Site) -> None:
    for thing in module.things:
        if thing.kind is Kind.MODULE:
            known = m.module_globals(thing)
            said = exported(thing.ref.tree.body) if isinstance(thing.ref, ModuleInfo) else None
            public = (name for name in list(known) if not name.startswith("_"))
            for name in said if said is not None else public:
                f.env[name] = m.module_attribute(thing, name)
            if said is None and isinstance(thing.ref, ModuleInfo):
                f.module.stars += thing.ref.stars
        else:
            f.module.stars.append(thing.name)
            if not is_known(thing.name):
                why = f"`from {thing.name} import *` hides where names come from"
                m.unknown(Unknown(site, why))


HANDLERS: dict[type[ast.stmt], Callable[[Any, Frame, Any], bool | None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.For: for_loop,
    ast.AsyncFor: for_loop,
    ast.While: while_loop,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.Return: _return,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Raise: _raise,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: import_,
    ast.ImportFrom: import_from,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Delete: _delete,
    ast.Assert: _assert,
    ast.Match: _match,
}
if hasattr(ast, "TryStar"):
    HANDLERS[ast.TryStar] = _try
