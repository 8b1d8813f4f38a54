"""What a function leaves behind in the program: other ranks would miss it if one alone ran it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from ddpify.facts.tree import Tree

# Methods that change what they are called on, and functions that change a state of the process.
CHANGES = frozenset(
    """append extend add insert update setdefault appendleft pop popitem clear remove discard sort
    reverse seed manual_seed manual_seed_all set_defaults set_state setattr train eval
    requires_grad_ load_state_dict zero_grad register_buffer set_epoch""".split()
)

# What gives what it is given, a part of it or its elements; other builtins make something new.
HANDS_ON = frozenset(
    "enumerate filter getattr iter list map max min next reversed set sorted tuple vars zip".split()
)


def leaves_marks(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, trees: Iterable[Tree]
) -> bool:
    """Whether a function changes names or objects not its own: globals, attributes, arguments.

    A global that nothing else reads, the time of the last call say, is its own.
    """
    trees = tuple(trees)
    own = _own_names(function, trees)
    for node in ast.walk(function):
        if isinstance(node, ast.Nonlocal):
            return True
        if isinstance(node, ast.Global) and _read_elsewhere(function, node.names, trees):
            return True
        if changes(node, own):
            return True
    return False


def changes(node: ast.AST, own: set[str]) -> bool:
    """Whether a node changes an object that none of the names in ``own`` stands for."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        stored = isinstance(node.ctx, (ast.Store, ast.Del))
        return stored and _root(node) not in own
    return isinstance(node, ast.Call) and _is_change(node) and _root(node.func) not in own


def _read_elsewhere(function: ast.AST, names: list[str], trees: Iterable[Tree]) -> bool:
    wanted = set(names)
    for tree in trees:
        own = {function, *(s for s in tree.module.body if _begins(s, wanted))}
        inside = {node for one in own for node in ast.walk(one)}
        if any(_reads(node) in wanted for node in tree.nodes() if node not in inside):
            return True
    return False


def _begins(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement only gives these globals their first values."""
    if not isinstance(statement, ast.Assign):
        return False
    return all(isinstance(t, ast.Name) and t.id in names for t in statement.targets)


def _reads(node: ast.AST) -> str:
    """The name that is read, imported or looked up here."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Load) else ""
    if isinstance(node, ast.alias):
        return node.name
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_change(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    in_place = name.endswith("_") and not name.startswith("_")  # no name of torch's
    return in_place or name in CHANGES


def _own_names(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, trees: Iterable[Tree]
) -> set[str]:
    """Names for what the function makes, not for parts of what it is given.

    ``for group in optimizer.param_groups`` binds a part; ``lines = [loss, epoch]`` makes a list.
    """
    bound = list(_bindings(function))
    given = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    own = {name for name, _, _ in bound} - given
    local = own | given  # whatever a module elsewhere is called
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for tree in trees
        for node in tree.nodes()
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    } - local
    while True:
        parts = {n for n, value, each in bound if n in own and _is_part(value, each, own | modules)}
        if not parts:
            return own
        own -= parts


def _bindings(function: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """Each name that is bound, what to, and whether to an element of it."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        each = isinstance(node, (ast.For, ast.comprehension))
        match node:
            case ast.Assign(targets=targets, value=value):
                each = any(isinstance(target, (ast.Tuple, ast.List)) for target in targets)
            case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(
                target=target, value=value
            ):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                targets = [target]
        if value is not None:
            names = (name for target in targets for name in ast.walk(target))
            for name in names:
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name.id, value, each


def _is_part(value: ast.expr, each: bool, own: set[str]) -> bool:
    """Whether a value, or each element of it, may be an object of somebody else's."""
    match value:
        case ast.Name(id=name):
            return name not in own
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Await(value=inner):
            return _is_part(inner, each, own)
        case ast.Call(func=ast.Name(id=name), args=args):
            fresh = name not in HANDS_ON and hasattr(builtins, name)
            return not fresh and any(_is_part(one, each, own) for one in args)
        case ast.Call(func=func):
            return _is_part(func, each, own)
        case ast.IfExp(body=one, orelse=other):
            return _is_part(one, each, own) or _is_part(other, each, own)
        case ast.BoolOp(values=values):
            return any(_is_part(one, each, own) for one in values)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return each and any(_is_part(one, each, own) for one in elements)
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
