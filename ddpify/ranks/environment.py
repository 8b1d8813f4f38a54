"""The environment as torchrun sets it."""

from __future__ import annotations

import ast

from ddpify.ranks import sizes, words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import NONE, constant, symbol


def environment(f: RankFrame, name: RankValue, node: ast.AST) -> RankValue | None:
    """``os.environ[name]`` under torchrun; None if it does not set it."""
    key = name.constant
    if not isinstance(key, str):
        return None
    site = f.module.site(node)
    if key in words.RANK_VARIABLES:
        kind = words.RANK_VARIABLES[key]
        return RankValue(("0", "1"), (), frozenset(), frozenset({Origin(kind, key, site)}))
    if key in words.SIZE_VARIABLES:
        return constant(sizes.world_size(str))
    return None


def in_environment(name: RankValue, op: str) -> RankValue:
    key = name.constant
    known: bool | None = None
    if isinstance(key, str):
        if key in words.RANK_VARIABLES or key in words.SIZE_VARIABLES or key in words.SET_VARIABLES:
            known = True
        elif key.startswith(words.UNSET_VARIABLES):
            known = False
    if known is None:
        return symbol(f"{key} in environ")
    return constant(known if op == "In" else not known)


def get(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``os.environ.get(name)``, ``os.getenv(name)``."""
    if not one.args:
        return None
    found = environment(f, one.args[0], one.node)
    if found is not None:
        return found
    key = one.args[0].constant
    if isinstance(key, str) and key.startswith(words.UNSET_VARIABLES):
        return one.arg(1, "default") or NONE
    return symbol(f"environ[{key}]", *one.args[1:], *one.kwargs.values())
