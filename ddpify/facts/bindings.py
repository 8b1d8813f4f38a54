"""What a name is bound to where it is read, by the text: statements, comprehensions, parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.bodies import stored
from ddpify.facts.events import Call
from ddpify.facts.tree import FUNCTIONS, Tree
from ddpify.facts.values import Kind
from ddpify.python.arguments import bind
from ddpify.source import Site

Comprehension = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp


def last_binding(tree: Tree, scope: ast.AST, node: ast.Name) -> ast.stmt | None:
    """The last statement that has surely bound a name where it is read: no earlier one counts."""
    found: list[ast.stmt] = []
    for each in tree.nodes(scope) if tree.function(node) is scope else ():
        if isinstance(each, ast.Assign) and tree.function(each) is scope:
            found += [each] if node.id in stored(each.targets) and tree.precedes(each, node) else []
    return max(found, key=_begin, default=None)


def nodes_from(tree: Tree, scope: ast.AST, last: ast.stmt | None) -> Iterator[ast.AST]:
    """What stands in a scope itself, no earlier than a statement."""
    for each in (one for one in tree.nodes(scope) if tree.function(one) is scope):
        if last is None or not hasattr(each, "lineno") or _begin(each) >= _begin(last):
            yield each


def _begin(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def bound_by(node: ast.AST) -> list[ast.AST]:
    """What a statement binds by itself, not in its blocks."""
    match node:
        case ast.For(target=target) | ast.NamedExpr(target=target):
            return [target]
        case ast.withitem(optional_vars=target):
            return [target] if target is not None else []
        case ast.AugAssign() | ast.AnnAssign() | ast.Delete() | ast.Assign():
            return [node]
    return []


def place_in(target: ast.expr, name: str) -> int | None:
    """Where in a tuple a name is bound."""
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    named = [i for i, one in enumerate(parts) if isinstance(one, ast.Name) and one.id == name]
    starred = any(isinstance(one, ast.Starred) for one in parts)
    return named[0] if len(named) == 1 and not starred else None


def entry_of(value: ast.AST, place: int) -> ast.expr | None:
    """What makes the entry at a place."""
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return value.elt
    return value.elts[place] if isinstance(value, ast.Tuple) and len(value.elts) > place else None


def gone_over(tree: Tree, node: ast.Name) -> Comprehension | None:
    """The comprehension around a name that binds it."""
    inside: ast.AST = node
    for above in tree.ancestors(node):
        if isinstance(above, (*FUNCTIONS, ast.stmt)):
            return None
        if isinstance(above, Comprehension) and _binds(above, node.id, inside):
            return above
        inside = above
    return None


def is_each(tree: Tree, node: ast.AST) -> bool:
    """Whether a comprehension around an expression evaluates it for each that it goes over."""
    inside = node
    for above in tree.ancestors(node):
        if isinstance(above, ast.stmt):
            return False
        if isinstance(above, Comprehension) and inside is not above.generators[0]:
            return True
        inside = above
    return False


def _binds(over: Comprehension, name: str, inside: ast.AST) -> bool:
    """Whether a comprehension binds a name in a part of it: what it goes over is read before."""
    targets = (one.target for one in over.generators)
    return inside is not over.generators[0] and name in stored(targets)


def in_turn(over: Comprehension, name: str) -> bool:
    """Whether a comprehension makes one entry of each that it goes over, under this name."""
    one, *more = over.generators
    alone = isinstance(one.target, ast.Name) and one.target.id == name
    kept = isinstance(over, (ast.ListComp, ast.GeneratorExp))
    return kept and alone and not (more or one.ifs or one.is_async)


def argument_of(
    call: Call, scope: ast.AST, name: str, place: int | None
) -> tuple[Site | None, int | None]:
    """Where a call gives what a parameter holds at a place, and the place in that."""
    info = call.target
    if info is None or info.node is not scope or call.star or call.bound or info.decorators:
        return None, None
    if info.owner is not None and call.receiver and call.receiver.of(Kind.CLASS):
        return None, None
    own = (call.callee,) if info.owner is not None else ()
    given = bind(info.node.args, (*own, *call.arg_sites), call.kwarg_sites)
    rest = info.node.args.vararg
    if rest is None or rest.arg != name:
        return given.given.get(name), place
    return (given.rest[place] if place is not None and place < len(given.rest) else None), None
