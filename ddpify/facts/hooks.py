"""Functions that a module calls in each forward, read where they are registered."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import Kind, Measure, Thing, Value, one

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
