"""Conditions on the rank that are told by their text: where a program is not followed, they weaken
what is believed of it, and prove nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.model import RankThing
from ddpify.ranks.modules import ClassDefinition, FunctionNode
from ddpify.ranks.origins import RANK, Origin
from ddpify.ranks.words import LOCAL_NAMES, MAIN_NAMES, RANK_NAMES

_QUESTIONS = frozenset({"get_rank", "get_global_rank"})
_ASKED = _QUESTIONS | RANK_NAMES | LOCAL_NAMES | MAIN_NAMES


def _names_rank(node: ast.AST) -> bool:
    """Whether a node is a name of the rank, or of a question for it."""
    return getattr(node, "id", getattr(node, "attr", None)) in _ASKED


def set_by_rank(thing: RankThing, name: str) -> frozenset[Origin]:
    """Why an attribute may be set on some ranks only, by a method that was not come to, or that
    went another way: ``if not self.quiet: self.writer = …``."""
    found: set[Origin] = set()
    for info in thing.cls.mro() if thing.cls is not None else ():
        for test in _tests(info, name):
            if any(map(_names_rank, ast.walk(test))):
                found.add(Origin(RANK, ast.unparse(test), info.module.site(test)))
            found.update(_of_fields(thing, test))
    return frozenset(found)


def _of_fields(thing: RankThing, test: ast.expr) -> Iterator[Origin]:
    """The rank in what a condition asks of the object itself."""
    for node in ast.walk(test):
        value = thing.attrs.get(node.attr) if isinstance(node, ast.Attribute) else None
        if value is not None and value.by_rank:
            yield from value.origins


def _tests(info: ClassDefinition, name: str) -> list[ast.expr]:
    """The conditions under which methods of a class set an attribute, by themselves or by another
    method that does."""
    known = info.tests.get(name)
    if known is None:
        nodes = {method.name: method.node for method in info.methods.values()}
        names, more = {name}, True
        while more:
            setting = {one for one, node in nodes.items() if _sets(node, names)}
            names, more = names | setting, not setting <= names
        known = [test for node in nodes.values() for test in _around(node, names)]
        info.tests[name] = known
    return known


def _around(method: FunctionNode, names: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(method):
        if isinstance(node, ast.If) and _sets(node, names):
            yield node.test
        elif isinstance(node, ast.Assign) and _sets(node, names):
            yield from (one.test for one in ast.walk(node.value) if isinstance(one, ast.IfExp))


def _sets(block: ast.AST, names: set[str]) -> bool:
    """Whether an attribute of one of these names is set or called."""
    return any(
        own.attr in names
        for node in ast.walk(block)
        for own in (node.func if isinstance(node, ast.Call) else node,)
        if isinstance(own, ast.Attribute) and (own is not node or isinstance(own.ctx, ast.Store))
    )
