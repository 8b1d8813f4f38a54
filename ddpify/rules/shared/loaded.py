"""Batches as a loader gives them: what a script has not taken anywhere yet."""

from __future__ import annotations

import ast

from ddpify.facts.events import Bind
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING, Kind
from ddpify.source import Site

# Functions that leave their tensors where they are.
PASS_ON = frozenset({"torch.autograd.Variable", "torch.cat", "torch.stack"})


def is_left(facts: Facts, site: Site) -> bool:
    """Whether an expression is a batch, or part of one, where the loader put it: on the CPU."""
    node = facts.tree(site).expression(site)
    return node is not None and _is_left(facts, site.path, node, set())


def _is_left(facts: Facts, path: str, node: ast.expr, seen: set[ast.expr]) -> bool:
    if node in seen:
        return True
    seen.add(node)
    if isinstance(node, ast.Subscript):
        return _is_left(facts, path, node.value, seen)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(_is_left(facts, path, part, seen) for part in node.elts)
    if isinstance(node, ast.Call):
        name = _called(facts, path, node)
        return name in PASS_ON and _is_left(facts, path, node.args[0], seen)
    if not isinstance(node, ast.Name):
        return False
    bound = _bound(facts, path, node)
    given = [g for bind in bound if (g := _given(facts, bind)) is not None]
    return bool(bound) and all(_is_left(facts, path, g, seen) for g in given)


def _called(facts: Facts, path: str, node: ast.Call) -> str:
    value = facts.values.get(facts.trees[path].site(node.func), NOTHING)
    names = [thing.name for thing in value.of(Kind.EXTERNAL)]
    return names[0] if names and node.args else ""


def _bound(facts: Facts, path: str, node: ast.Name) -> list[Bind]:
    """What a name is bound to in its function; a loop binds it to what a loader gives."""
    tree = facts.trees[path]
    scope = tree.function(node)
    named = [b for b in facts.binds if b.target == node.id and b.site.path == path]
    places = [(b, tree.expression(b.site)) for b in named]
    return [b for b, at in places if at is not None and tree.function(at) is scope]


def _given(facts: Facts, bind: Bind) -> ast.expr | None:
    site = bind.value_site
    return facts.tree(site).expression(site) if site is not None else None
