"""Collectives that a thread of its own enters while the main thread enters others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import inf
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.fields import qualified
from ddpify.site import Site

_THREAD: Final = "threading.Thread"
_ENDS: Final = ("join", "result", "shutdown")
_ASKS_NOTHING: Final = words.SESSION_OPS | words.GROUP_OPS


def in_threads(run: Run) -> Iterator[tuple[Site, RankCall, RankCall]]:
    """The collective of a thread, in the group of all; what starts it; what the others enter."""
    for call in run.methods("start", "submit"):
        if any(guard.test.by_rank for guard in call.conditions):
            continue
        for function in _begun(call):
            inner = next(_collectives(function), None)
            ended = min((c.order for c in run.methods(*_ENDS) if _ends(c, call)), default=inf)
            later = (c for c in exchanges(run) if call.order < c.order < ended)
            other = next((c for c in later if _is_open(call, c)), None)
            if inner is not None and other is not None and other.ranks == call.ranks:
                yield inner, call, other


def _ends(one: RankCall, start: RankCall) -> bool:
    """Whether a call waits for the end of the thread: ``thread.join()``, ``work.result()``."""
    held = {t for v in (start.receiver, start.result) if v is not None for t in v.things}
    return (
        one.order > start.order
        and one.receiver is not None
        and not held.isdisjoint(one.receiver.things)
    )


def _is_open(start: RankCall, other: RankCall) -> bool:
    """Whether a pool is still open at a call: at the end of its ``with`` all threads have ended."""
    own = start.receiver.things if start.receiver is not None else ()
    held = [context for context in start.contexts if not set(context.things).isdisjoint(own)]
    return all(context in other.contexts for context in held)


def _begun(call: RankCall) -> Iterator[FunctionDefinition]:
    """What runs from now on: ``Thread(target=watch).start()``, ``pool.submit(send)``, and ``run``
    of a class of threads."""
    if call.method == "submit":
        yield from _functions(call.args[0] if call.args else None)
        return
    for thing in call.receiver.things if call.receiver is not None else ():
        if thing.cls is not None and thing.cls.inherits(_THREAD):
            found = thing.cls.method("run")
            yield from (found,) if found is not None else ()
        elif thing.name == _THREAD and thing.call is not None:
            yield from _functions(thing.call.arg(1, "target"))


def _functions(value: RankValue | None) -> Iterator[FunctionDefinition]:
    things: tuple[RankThing, ...] = value.things if value is not None else ()
    yield from (t.info for t in things if t.kind == "function")


def _collectives(function: FunctionDefinition) -> Iterator[Site]:
    """Those that a function itself enters in the group of all ranks."""
    for node in ast.walk(function.node):
        if not isinstance(node, ast.Call):
            continue
        name = qualified(function.module, node.func)
        op = name.removeprefix(words.DIST)
        grouped = any(one.arg in ("group", None) for one in node.keywords)
        given = words.COLLECTIVES.get(op, "").split()
        if name == op or op in _ASKS_NOTHING or "group" not in given or grouped:
            continue
        if len(node.args) <= given.index("group"):
            yield function.module.site(node)
