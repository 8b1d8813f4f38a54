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
        methods = {method.name: _set_in(info, method.node) for method in info.methods.values()}
        names, more = {name}, True
        while more:
            setting = {one for one, touched in methods.items() if not names.isdisjoint(touched)}
            names, more = names | setting, not setting <= names
        nodes = [method.node for method in info.methods.values() if method.name in names]
        known = [test for node in nodes for test in _around(info, node, names)]
        info.tests[name] = known
    return known


def _around(info: ClassDefinition, method: FunctionNode, names: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(method):
        if not isinstance(node, (ast.If, ast.Assign)) or names.isdisjoint(_set_in(info, node)):
            continue
        if isinstance(node, ast.If):
            yield node.test
        else:
            yield from (one.test for one in ast.walk(node.value) if isinstance(one, ast.IfExp))


def _set_in(info: ClassDefinition, block: ast.AST) -> frozenset[str]:
    """The attributes that are set or called there."""
    if block not in info.sets:
        info.sets[block] = frozenset(
            own.attr
            for node in ast.walk(block)
            for own in (node.func if isinstance(node, ast.Call) else node,)
            if isinstance(own, ast.Attribute)
            if own is not node or isinstance(own.ctx, ast.Store)
        )
    return info.sets[block]
