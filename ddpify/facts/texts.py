"""Numbers that are put into words in one place and shown in another.

A text that is made before it is shown, and a function that shows what it is given::

    text = "loss {:.4f}".format(loss.item())   # the number is here
    print(text)

    def log(line): logger.info(line); print(line)
    log("accuracy %f" % accuracy)              # and here
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from ddpify.facts.events import Call
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.source import Site

Tellers = dict[FunctionInfo, frozenset[str]]
DEPTH = 4  # of functions that hand on what they are given


def told(shown: Iterable[Call], calls: tuple[Call, ...], trees: Mapping[str, Tree]) -> Tellers:
    """The functions that do nothing with some of their parameters but show them, and these."""
    found: Tellers = {}
    showing = {call.site: call for call in shown}
    for _ in range(DEPTH):
        known = len(showing)
        for function in {call.where.function for call in showing.values()} - {None}:
            if function is not None and not isinstance(function.node, ast.Lambda):
                names = frozenset(_only_shown(function, trees[function.site.path], showing))
                if names:
                    found[function] = names
        showing |= {call.site: call for call in calls if call.target in found}
        if len(showing) == known:
            break
    called = {call.target for call in calls}
    return {function: names for function, names in found.items() if function in called}


def _only_shown(function: FunctionInfo, tree: Tree, showing: Mapping[Site, Call]) -> Iterator[str]:
    places = [site for site, call in showing.items() if call.where.function is function]
    for name in _parameters(function):
        names = _with_entries(tree, function, name)
        used = [n for n in tree.nodes(function.node) if isinstance(n, ast.Name) and n.id in names]
        heads = [n for n in used if isinstance(tree.parent(n), ast.For) and n.id == name]
        if used and all(n in heads or _is_within(tree, n, places) for n in used):
            yield from names


def _with_entries(tree: Tree, function: FunctionInfo, name: str) -> list[str]:
    """A name, and those that loops over what it stands for give its entries."""
    loops = (n for n in tree.nodes(function.node) if isinstance(n, ast.For))
    over = (n for n in loops if isinstance(n.iter, ast.Name) and n.iter.id == name)
    return [
        name,
        *(n.id for loop in over for n in ast.walk(loop.target) if isinstance(n, ast.Name)),
    ]


def _is_within(tree: Tree, node: ast.Name, places: Iterable[Site]) -> bool:
    bound = isinstance(node.ctx, ast.Store) and _is_target(tree, node)
    return bound or any(tree.site(node).within(place) for place in places)


def _is_target(tree: Tree, node: ast.Name) -> bool:
    """Whether a loop binds the name."""
    above: ast.AST | None = node
    while isinstance(above, (ast.Name, ast.Tuple)):
        above = tree.parent(above)
    return isinstance(above, ast.For)


def _parameters(function: FunctionInfo) -> list[str]:
    """The names that positional arguments get."""
    given = function.node.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    bound = function.owner is not None and not function.decorated_with("builtins.staticmethod")
    return names[1:] if bound else names


def given(call: Call, tellers: Tellers) -> Iterator[Site]:
    """The arguments of a call that the function it calls does nothing with but show them."""
    names = tellers.get(call.target, frozenset()) if call.target is not None else frozenset()
    for position, name in enumerate(_parameters(call.target) if call.target is not None else ()):
        site = call.arg_site(position, name) if name in names else None
        if site is not None:
            yield site


def made_before(tree: Tree, node: ast.Name) -> ast.Assign | None:
    """The statement before, in the same block, that puts into words what a name stands for."""
    statement = tree.statement(tree.site(node))
    block = tree.block(statement) if statement is not None else []
    for other in reversed(block[: block.index(statement)] if statement in block else []):
        stored = (n for n in ast.walk(other) if isinstance(n, ast.Name) and n.id == node.id)
        if any(isinstance(n.ctx, (ast.Store, ast.Del)) for n in stored):
            alone = isinstance(other, ast.Assign) and [type(t) for t in other.targets] == [ast.Name]
            return (
                other if alone and isinstance(other, ast.Assign) and _is_text(other.value) else None
            )
    return None


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod) and _is_string(node.left)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "format"
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
