"""Whether a program's loggers say what they are told on some ranks only."""

from __future__ import annotations

import ast

from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.words import LOCAL_NAMES, MAIN_NAMES, RANK_NAMES

# What stops a logger, or lets it speak; of whichever logger, as they hand on what they are told.
_STOPS = ("setLevel", "addFilter", "disable", "removeHandler")
_ASKED = frozenset({"get_rank"}) | RANK_NAMES | LOCAL_NAMES | MAIN_NAMES


def by_rank(run: Run) -> bool:
    """Whether loggers are stopped on some ranks: what they write, all others leave to one."""
    return any(map(_tells_apart, run.methods(*_STOPS)))


def _tells_apart(call: RankCall) -> bool:
    if call.ranks != ALL or any(guard.test.by_rank for guard in call.guards):
        return True
    return any(value.by_rank or _asks_rank(value) for value in call.given)


def _asks_rank(value: RankValue) -> bool:
    """``lambda record: rank == 0``, or an object whose ``filter`` asks so."""
    nodes = [t.info.node for t in value.things if t.kind == "function"]
    methods = [t.cls.method("filter") for t in value.things if t.cls is not None]
    nodes += [method.node for method in methods if method is not None]
    return any(_names_rank(one) for node in nodes for one in ast.walk(node))


def _names_rank(node: ast.AST) -> bool:
    return getattr(node, "id", getattr(node, "attr", None)) in _ASKED
