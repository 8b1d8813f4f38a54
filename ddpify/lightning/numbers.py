"""Where a number of devices is written that comes to the Trainer by a name.

A name is followed to what binds it, an attribute (``config.devices``, ``args.devices``) to options
and to fields of this name: fields of one family of classes, or they may be another's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree, last_name

_OPTIONS: Final = ("add_argument", "option", "Option")
_SHOW: Final = ("print", "str", "int", "info", "debug", "dict", "Trainer")
DEVICES: Final = "devices"
_ASKED: Final = ("device_count", "environ", "getenv")  # of the machine, or the job
_FIELDS: Final = ("field", "Field")


@dataclass(frozen=True, eq=False)
class Number:
    """A constant that stands for one device; not ``certain``: it may be of something else."""

    tree: Tree
    node: ast.expr
    certain: bool

    @classmethod
    def of(cls, tree: Tree, node: ast.expr) -> Number:
        """A number: a text, or a list, may be read as such elsewhere."""
        return cls(tree, node, isinstance(node, ast.Constant) and type(node.value) is int)


def is_one(node: ast.AST | None) -> bool:
    """``1``, ``"1"`` or ``[0]``: one device, and none in particular."""
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, bool) and node.value in (1, "1")
    return isinstance(node, ast.List) and ast.unparse(node) == "[0]"


def ones(node: ast.expr) -> Iterator[ast.expr]:
    """The constants for one device that an expression gives: ``n or 1``, ``1 if gpu else None``."""
    if isinstance(node, ast.BoolOp):
        for one in node.values:
            yield from ones(one)
    elif isinstance(node, ast.IfExp):
        yield from ones(node.body)
        yield from ones(node.orelse)
    elif is_one(node):
        yield node


def definitions(facts: Facts, tree: Tree, node: ast.expr, trainer: ast.Call) -> Iterator[Number]:
    """The places that give a name, or an attribute, one device; uncertain if it is more than that.

    A number that is compared, computed with or shown is meant to be that of the devices.
    """
    name = last_name(node)
    found = _bound(facts, tree, node) if isinstance(node, ast.Name) else _held(facts, name)
    if isinstance(node, (ast.Name, ast.Attribute)):
        used = any(_is_other(one, name, trainer) for one in facts.trees.values())
        yield from (replace(number, certain=number.certain and not used) for number in found)


def is_followed(facts: Facts, tree: Tree, node: ast.expr) -> bool:
    """Whether it is known where a number comes from: what has a name is set there, too."""
    if isinstance(node, (ast.BoolOp, ast.IfExp)):
        parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        return all(is_followed(facts, tree, one) for one in parts)
    if isinstance(node, ast.Name):
        return any(node.id in one.bound(s) for one, s in _scopes(facts, tree, node))
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        name = last_name(node) or str(getattr(node.slice, "value", ""))  # type: ignore[union-attr]
        return name == DEVICES or is_option(facts, name)  # a section is asked in its files
    return not isinstance(node, ast.Call) or any(one in ast.unparse(node) for one in _ASKED)


def _scopes(facts: Facts, tree: Tree, name: ast.Name) -> Iterator[tuple[Tree, ast.AST]]:
    yield tree, tree.function(name)
    yield from ((one, one.module) for one in facts.trees.values())


def is_option(facts: Facts, name: str) -> bool:
    """Whether a command line has an option, or a class a field, of this name."""
    nodes = [node for tree in facts.trees.values() for node in tree.nodes()]
    fields = (_targets(s) for c in nodes if isinstance(c, ast.ClassDef) for s in c.body)
    options = (
        _names(node)
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node.func) in _OPTIONS
    )
    return any(name in names for names in (*fields, *options))


def _is_other(tree: Tree, name: str, trainer: ast.Call) -> bool:
    """Whether a file gives what has this name to something else than a Trainer."""
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and last_name(node) == name
        and isinstance(node.ctx, ast.Load)
        and _is_given_away(tree, node, name, trainer)
        for node in tree.nodes()
    )


def _is_given_away(tree: Tree, node: ast.AST, name: str, trainer: ast.Call) -> bool:
    below = node
    for above in tree.ancestors(node):
        if above is trainer or isinstance(above, (ast.BinOp, ast.Compare, ast.JoinedStr, ast.stmt)):
            return isinstance(above, (ast.For, ast.Assign))
        if isinstance(above, ast.keyword) and above.arg == name:
            return False  # handed on by the same name
        if isinstance(above, ast.Call) and below is not above.func:
            return last_name(above.func) not in _SHOW
        below = above
    return False


def _bound(facts: Facts, tree: Tree, name: ast.Name) -> Iterator[Number]:
    """``n = 1`` in the function or the file, the default of a parameter, or another file's."""
    function = tree.function(name)
    local = name.id in tree.bound(function)
    for scope in (function,) if local else (tree.module,):
        yield from _in_scope(tree, scope, name.id)
    if local and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _default(tree, function, name.id)
        yield from _options(facts, name.id)
    elif not local and name.id not in tree.bound(tree.module):
        for other in facts.trees.values():
            yield from _in_scope(other, other.module, name.id)


def _in_scope(tree: Tree, scope: ast.AST, name: str) -> Iterator[Number]:
    """What the assignments of a scope give a name."""
    for node in tree.nodes(scope):
        if tree.function(node) is scope and name in _targets(node):
            yield from _numbers(tree, node)


def _default(
    tree: Tree, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[Number]:
    """The default of a parameter."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    first = len(positional) - len(given.defaults)
    pairs = [
        *zip(positional[first:], given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for one, default in pairs:
        if one.arg == name and default is not None and is_one(default):
            yield Number.of(tree, default)


def _held(facts: Facts, name: str) -> Iterator[Number]:
    yield from _options(facts, name)
    classes = [
        (tree, node)
        for tree in facts.trees.values()
        for node in tree.nodes()
        if isinstance(node, ast.ClassDef) and any(name in _targets(s) for s in node.body)
    ]
    family = len({_root(node, [c for _, c in classes]) for _, node in classes}) == 1
    for tree, node in classes:
        for statement in node.body:
            if name in _targets(statement):
                numbers = _numbers(tree, statement)
                yield from (replace(one, certain=family and one.certain) for one in numbers)


def _root(node: ast.ClassDef, others: list[ast.ClassDef]) -> str:
    """The class, of those that have the field, that another inherits from."""
    bases = [*map(last_name, node.bases)]
    above = next((one for one in others if one.name in bases and one is not node), None)
    return _root(above, [one for one in others if one is not node]) if above else node.name


def _options(facts: Facts, name: str) -> Iterator[Number]:
    """The defaults of a command line's options of this name."""
    for tree in facts.trees.values():
        for node in tree.nodes():
            if not isinstance(node, ast.Call) or last_name(node.func) not in _OPTIONS:
                continue
            if name in _names(node):
                given = (one.value for one in node.keywords if one.arg == "default")
                yield from (Number.of(tree, one) for one in given if is_one(one))


def _names(option: ast.Call) -> list[str]:
    """The names that an option's value may have."""
    flags = [a.value for a in option.args if isinstance(a, ast.Constant) and type(a.value) is str]
    named = [ast.unparse(one.value).strip("'") for one in option.keywords if one.arg == "dest"]
    return named or [flag.lstrip("-").replace("-", "_") for flag in flags]


def _targets(node: ast.AST) -> list[str]:
    """The names that an assignment binds, alone."""
    annotated = [node.target] if isinstance(node, ast.AnnAssign) else []
    targets = node.targets if isinstance(node, ast.Assign) else annotated
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _numbers(tree: Tree, statement: ast.AST) -> Iterator[Number]:
    """The constant for one device that a statement assigns: ``1``, or ``field(default=1)``."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and last_name(value.func) in _FIELDS:
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
    if isinstance(value, ast.expr):
        yield from (Number.of(tree, one) for one in ones(value))
