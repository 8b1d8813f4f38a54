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


def told(
    shown: Iterable[Call],
    unclear: frozenset[FunctionInfo],
    calls: tuple[Call, ...],
    trees: Mapping[str, Tree],
) -> Tellers:
    """The functions that do nothing with some of their parameters but show them, and these.

    ``unclear`` are those that show numbers of which it is not known there what they are.
    """
    found: Tellers = {}
    places: dict[FunctionInfo | None, list[Site]] = {}
    for call in shown:
        places.setdefault(call.where.function, []).append(call.site)
    todo = unclear
    for _ in range(DEPTH):
        new = {f: n for f in todo if (n := _only_shown(f, trees[f.site.path], places[f]))}
        telling = [call for call in calls if call.target in new]
        new = {f: n for f, n in new.items() if _is_called_plainly(f, telling)}
        found |= new
        for call in telling:
            places.setdefault(call.where.function, []).extend(given(call, new))
        callers = {call.where.function for call in telling if call.target in new}
        todo = frozenset(f for f in callers if f is not None and f not in found)
    return found


def _is_called_plainly(function: FunctionInfo, calls: Iterable[Call]) -> bool:
    mine = [call for call in calls if call.target is function]
    return bool(mine) and not any(call.star or call.bound for call in mine)


def _only_shown(function: FunctionInfo, tree: Tree, places: Iterable[Site]) -> frozenset[str]:
    found: set[str] = set()
    places = [*places, *_lines(tree, function, tuple(places))]
    for name in _parameters(function):
        names = _with_entries(tree, function, name)
        used = [n for n in tree.nodes(function.node) if isinstance(n, ast.Name) and n.id in names]
        heads = [n for n in used if isinstance(tree.parent(n), ast.For) and n.id == name]
        if used and all(n in heads or _is_within(tree, n, places) for n in used):
            found |= names
    return frozenset(found)


def _lines(tree: Tree, function: FunctionInfo, places: tuple[Site, ...]) -> Iterator[Site]:
    """The statements that put into words what is only shown: ``line = f"{loss:.3f}"``."""
    for node in tree.nodes(function.node):
        match node:
            case ast.Assign([ast.Name(name)], value) if _is_text(value):
                reads = [n for n in _named(function.node, name) if isinstance(n.ctx, ast.Load)]
                if reads and all(_is_within(tree, n, places) for n in reads):
                    yield tree.site(node)


def _with_entries(tree: Tree, function: FunctionInfo, name: str) -> set[str]:
    """A name, and those that loops over what it stands for give its entries."""
    loops = (n for n in tree.nodes(function.node) if isinstance(n, ast.For))
    over = (n.target for n in loops if isinstance(n.iter, ast.Name) and n.iter.id == name)
    entries = (n for target in over for n in ast.walk(target))
    return {name, *(n.id for n in entries if isinstance(n, ast.Name))}


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
    if isinstance(function.node, ast.Lambda):
        return []
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


def made_before(tree: Tree, node: ast.Name) -> tuple[tuple[Site, ast.expr], ...]:
    """The statements before, in the same block, that put into words what a name stands for.

    With what each of them puts there: ``parts = [text]``, ``parts.append(text)``, ``line += text``.
    """
    statement = tree.statement(tree.site(node))
    block = tree.block(statement) if statement is not None else []
    before = block[: block.index(statement)] if statement in block else []
    found: list[tuple[Site, ast.expr]] = []
    for other in reversed(before):
        more = _added(other, node.id)
        if more is not None:
            found.append((tree.site(other), more))
        elif any(isinstance(n.ctx, (ast.Store, ast.Del)) for n in _named(other, node.id)):
            made = other if isinstance(other, ast.Assign) and len(other.targets) == 1 else None
            alone = made is not None and isinstance(made.targets[0], ast.Name)
            if made is None or not alone or not _shows(tree, made, node.id, len(found)):
                return ()
            return ((tree.site(made), made.value), *reversed(found))
    return ()


def _added(statement: ast.stmt, name: str) -> ast.expr | None:
    """What a statement puts behind a text, or into a list: ``line += x``, ``parts.append(x)``."""
    target: ast.expr
    if isinstance(statement, ast.AugAssign):
        target, value = statement.target, statement.value
        adds = isinstance(statement.op, ast.Add)
    else:
        call = statement.value if isinstance(statement, ast.Expr) else None
        method = call.func if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or not isinstance(method, ast.Attribute):
            return None
        target, value = method.value, call.args[0] if len(call.args) == 1 else call
        adds = method.attr in ("append", "extend") and len(call.args) == 1 and not call.keywords
    mine = isinstance(target, ast.Name) and target.id == name
    return value if adds and mine and not any(True for _ in _named(value, name)) else None


def _named(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    return (n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name)


def _shows(tree: Tree, made: ast.Assign, name: str, more: int) -> bool:
    """Whether a value is a text, or a list that is read in one place only: where it is shown.

    ``more`` statements add to it.
    """
    if _is_text(made.value):
        return True
    reads = [n for n in _named(tree.function(made), name) if isinstance(n.ctx, ast.Load)]
    added = [n for n in reads if isinstance(tree.parent(n), ast.Attribute)]
    added = [n for n in added if isinstance(tree.statement(tree.site(n)), ast.Expr)]
    whole = isinstance(made.value, (ast.List, ast.Tuple, ast.Dict))
    return whole and len(added) <= more and len(reads) == 1 + len(added)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod) and _is_string(node.left)
    if isinstance(node, ast.Call):
        joins = isinstance(node.func, ast.Attribute) and _is_string(node.func.value)
        said = isinstance(node.func, ast.Name) and node.func.id == "str"
        named = isinstance(node.func, ast.Attribute) and node.func.attr == "format"
        return joins or named or said
    return _is_string(node)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
