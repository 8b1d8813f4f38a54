"""What counts the rounds of an epoch loop, so that a resumed run goes on counting."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.source import Site

_NAMES = (ast.Name, ast.Attribute)


def counter(facts: Facts, epoch: Loop) -> tuple[str, tuple[Edit, ...]] | None:
    """The number of a round of ``for``; a ``_`` that nothing reads gets the name ``epoch``."""
    tree = facts.tree(epoch.site)
    node = tree.statement(epoch.site)
    if not isinstance(node, ast.For):
        return None
    target = node.target
    counted = isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "enumerate"
    if counted and isinstance(target, ast.Tuple):
        target = target.elts[0]
    done, counts = _done_before(facts, tree, node)
    if counts:
        return done, ()
    done = f"{done} + " if done else ""
    if isinstance(target, ast.Attribute):
        return done + ast.unparse(target), ()
    if not isinstance(target, ast.Name):
        return None
    scope = tree.function(node)
    written = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == target.id]
    if target.id != "_" or any(isinstance(n.ctx, ast.Load) for n in written):
        bound = sum(isinstance(n.ctx, ast.Store) for n in written)
        return (done + target.id, ()) if target.id != "_" or bound == 1 else None
    if "epoch" in tree.names(scope):
        return None
    return f"{done}epoch", (edit(facts, How.REPLACE, tree.site(target), "epoch"),)


def _done_before(facts: Facts, tree: Tree, node: ast.For) -> tuple[str, bool]:
    """``first`` of ``for n in range(epochs - first)``, where a checkpoint says what is done.

    And whether it goes on counting: each round adds 1.
    """
    match node.iter:
        case ast.Call(ast.Name("range"), [ast.BinOp(op=ast.Sub(), right=done)], []):
            if isinstance(done, _NAMES) and _is_restored(facts, tree, done):
                name = ast.unparse(done)
                stored = [ast.unparse(n) for n in _stored(node)].count(name)
                counts = stored == 1 and any(_adds_one_to(s) == name for s in node.body)
                return (name, counts) if counts or not stored else ("", False)
    return "", False


def _is_restored(facts: Facts, tree: Tree, name: ast.expr) -> bool:
    """Whether a checkpoint says, in a run that goes on from it, what a name is."""
    value = facts.values.get(tree.site(name))
    return value is not None and bool(value.dep(Kind.CHECKPOINT))


def counted(facts: Facts, loop: Site) -> str | None:
    """``epoch`` of ``while epoch < 10:``, to which each round adds 1."""
    node = facts.tree(loop).statement(loop)
    if not isinstance(node, ast.While) or any(isinstance(n, ast.Continue) for n in _own(node)):
        return None
    names = [name for statement in node.body if (name := _adds_one_to(statement))]
    stored = [ast.unparse(n) for n in _stored(node)]
    once = [n for n in names if stored.count(n) == 1 and not _is_bound_within(facts, loop, n)]
    asked = {ast.unparse(n) for n in ast.walk(node.test) if isinstance(n, _NAMES)}
    likely = [name for name in once if name in asked] or once
    likely = likely if len(likely) == 1 else [name for name in likely if "epoch" in name.lower()]
    return likely[0] if len(likely) == 1 else None


def steps(facts: Facts, loop: Site) -> str | None:
    """``step`` of ``while step < 1000:``, where a run that goes on has it from a checkpoint."""
    tree = facts.tree(loop)
    match tree.statement(loop):
        case ast.While(test=ast.Compare(left=ast.Name() | ast.Attribute() as count)):
            return ast.unparse(count) if _is_restored(facts, tree, count) else None
    return None


def _adds_one_to(statement: ast.stmt) -> str:
    match statement:
        case ast.AugAssign(target=target, op=ast.Add(), value=ast.Constant(1)):
            return ast.unparse(target)
    return ""


def _stored(node: ast.AST) -> Iterator[ast.expr]:
    names = (n for n in ast.walk(node) if isinstance(n, _NAMES))
    yield from (n for n in names if isinstance(n.ctx, ast.Store))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a loop, but not in a loop in it, whose ``continue`` is its own."""
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, (ast.For, ast.While)):
            yield inner
            yield from _own(inner)


def _is_bound_within(facts: Facts, loop: Site, name: str) -> bool:
    """Whether a method that the loop calls binds an attribute of this name."""
    _, dot, attribute = name.rpartition(".")
    return bool(dot) and any(
        bind.target.rpartition(".")[2] == attribute and not bind.site.within(loop)
        for bind in facts.binds
        if any(one.site == loop for one in bind.where.loops())
    )
