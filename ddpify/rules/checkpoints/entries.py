"""Models saved whole inside a dict: the entries to unwrap, where nothing else reads the dict."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def wrapped_entries(facts: Facts, call: Call, saves: frozenset[Site]) -> Iterator[Site]:
    """The entries ``"net": net`` of what a call saves that are wrappers and can be replaced."""
    value = call.arg(0, "obj")
    for thing in value.of(Kind.DICT) if value is not None else ():
        tree = facts.tree(thing.born)
        node = tree.expression(thing.born)
        if isinstance(node, ast.Dict) and _only_saved(facts, call, thing.born, saves):
            for key, item in zip(node.keys, node.values, strict=True):
                if _is_wrapped(thing, key):
                    yield tree.site(item)


def _is_wrapped(thing: Thing, key: ast.expr | None) -> bool:
    held = (thing.keys or {}).get(key.value) if isinstance(key, ast.Constant) else None
    return held is not None and bool(held.of(Kind.WRAPPED))


def _only_saved(facts: Facts, call: Call, display: Site, saves: frozenset[Site]) -> bool:
    """Whether the dict goes into the file and nowhere else, by names and parameters of helpers."""
    given = call.arg_site(0, "obj")
    for at in (call.site, *reversed(call.where.stack)):
        if given is None or given == display:
            return given is not None
        tree = facts.tree(given)
        node = tree.expression(given)
        if not isinstance(node, ast.Name) or not _only_passed(tree, node, saves | {at}):
            return False
        scope = tree.function(node)
        if _is_bound(tree, scope, node.id, display):
            return True
        outer = call.where.stack[: call.where.stack.index(at)] if at != call.site else None
        above = (call.where.stack if outer is None else outer)[-1:]
        given = _argument(facts, above[0], scope, node.id) if above else None
    return False


def _only_passed(tree: Tree, name: ast.Name, calls: frozenset[Site]) -> bool:
    """Whether each use of the name in its function is an argument of one of these calls."""
    uses = [n for n in ast.walk(tree.function(name)) if isinstance(n, ast.Name) and n.id == name.id]
    read = (tree.site(use) for use in uses if isinstance(use.ctx, ast.Load))
    return all(any(site.within(call) for call in calls) for site in read)


def _is_bound(tree: Tree, scope: ast.AST, name: str, display: Site) -> bool:
    """Whether ``name = {…}`` is the one place in the function that binds it."""
    binds = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and node.id == name
        if not isinstance(node.ctx, ast.Load)
    ]
    made = tree.statement(display)
    return (
        isinstance(made, ast.Assign)
        and tree.site(made.value) == display
        and [*made.targets] == binds
    )


def _argument(facts: Facts, at: Site, scope: ast.AST, name: str) -> Site | None:
    """What a call gives for a parameter of the function that it enters."""
    tree = facts.tree(at)
    node = tree.expression(at)
    if not isinstance(scope, _Function) or not isinstance(node, ast.Call):
        return None
    for keyword in node.keywords:
        if keyword.arg == name:
            return tree.site(keyword.value)
    names = [one.arg for one in (*scope.args.posonlyargs, *scope.args.args)]
    place = names.index(name) if name in names else -1
    place -= bool(names) and names[0] == "self"
    return tree.site(node.args[place]) if 0 <= place < len(node.args) else None
