"""Functions that a module calls in each forward, read where they are registered."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import Kind, Measure, Thing, Value, one
from ddpify.source import Site

HOOKS: Final = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook")
# What may be asked of a tensor or a module: nothing that samples are in.
_TOLD: Final = frozenset("shape size dim ndim dtype device numel __class__ training".split())
_ASKS: Final = frozenset("type len isinstance id str repr".split())
_GIVEN: Final = {".register_forward_hook": 2, ".register_forward_pre_hook": 1}  # and the module


def followed(call: Call) -> Iterator[Thing]:
    """The functions among the hooks that a call registers which change no output."""
    if call.name in _GIVEN and len(call.args) == 1 and not call.kwargs:
        yield from (t for t in call.args[0].things if _gives_nothing(t.ref))


def registered(m: Machine, f: Frame, module: Thing, call: Call) -> None:
    """Read a hook as it is registered; in a loss, what it keeps of the samples is not known."""
    for thing in followed(call):
        mark = m.make(Kind.UNREAD, f, call.site, call.name)
        seen = Value((), frozenset({mark}), Measure.MIXED)
        m.apply(f, one(thing), (one(module), *[seen] * _GIVEN[call.name]), call.site)


def _gives_nothing(info: object) -> bool:
    if not isinstance(info, FunctionInfo) or isinstance(info.node, ast.Lambda):
        return False
    return not any(isinstance(n, ast.Return) and n.value for n in ast.walk(info.node))


def looking(calls: Iterable[Call]) -> set[Site]:
    """The modules, by where they stand, that are given hooks which look at no more than shapes."""
    told = [c for c in calls if c.name.removeprefix(".") in HOOKS and len(c.args) == 1]
    given = ((call.receiver_site, call.args[0].things) for call in told)
    return {site for site, found in given if site and found and all(_looks(t.ref) for t in found)}


def _looks(info: object) -> bool:
    """``def hook(module, given, result): print(type(module).__name__, result.shape[1:])``."""
    if not isinstance(info, FunctionInfo) or not _gives_nothing(info):
        return False
    names = {arg.arg for arg in ast.walk(info.node.args) if isinstance(arg, ast.arg)}
    above = {child: each for each in ast.walk(info.node) for child in ast.iter_child_nodes(each)}
    uses = [n for n in ast.walk(info.node) if isinstance(n, ast.Name) and n.id in names]
    return all(_is_asked(use, above) for use in uses)


def _is_asked(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """``result.shape``, ``given[0].size(1)``, ``type(module)``."""
    around = above[node]
    while isinstance(around, ast.Subscript) and around.value is node:
        node, around = around, above[around]
    if isinstance(around, ast.Attribute):
        return around.attr in _TOLD
    called = around.func if isinstance(around, ast.Call) else None
    return isinstance(called, ast.Name) and called is not node and called.id in _ASKS
