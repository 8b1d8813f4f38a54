"""The environment as torchrun sets it, or mpiexec for a program that uses mpi4py."""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

from ddpify.python.words import SPAWN
from ddpify.ranks import sizes, words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import UNSET, RankCall, RankThing, RankValue
from ddpify.ranks.origins import IDENTITY, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import NONE, constant, symbol

# What may put a rank into the environment without naming it.
_SETTING: Final = frozenset({"os.environ.update", "os.environ.setdefault", "os.putenv"})

Sides = tuple[RankValue, RankValue]


def environment(m: RankMachine, f: RankFrame, name: RankValue, node: ast.AST) -> RankValue | None:
    """``os.environ[name]``; None if the launcher does not set it."""
    return _variable(f, name, node, _ranks(m), words.SIZE_VARIABLES)


def element(m: RankMachine, f: RankFrame, name: RankValue, node: ast.AST) -> RankValue | None:
    """The same where the variable has to be there: under SLURM or MPI, if it is one of theirs."""
    found = environment(m, f, name, node)
    ranks, numbers = words.OTHER_RANK_VARIABLES, words.OTHER_SIZE_VARIABLES
    return found or _variable(f, name, node, ranks, numbers)


def _variable(
    f: RankFrame,
    name: RankValue,
    node: ast.AST,
    ranks: Mapping[str, str],
    numbers: Container[str],
) -> RankValue | None:
    key = name.constant
    if not isinstance(key, str):
        return None
    if key in ranks:
        origin = Origin(ranks[key], key, f.module.site(node))
        return RankValue(("0", "1"), (), frozenset(), frozenset({origin}))
    return constant(sizes.world_size(str)) if key in numbers else None


def _ranks(m: RankMachine) -> dict[str, str]:
    """The variables that hold a rank."""
    return {**words.RANK_VARIABLES, **(words.MPI_RANKS if m.interest.mpi else {})}


def in_environment(m: RankMachine, name: RankValue, op: str) -> RankValue:
    key = name.constant
    known: bool | None = None
    if isinstance(key, str):
        if key in words.SIZE_VARIABLES | words.SET_VARIABLES or key in _ranks(m):
            known = True
        elif key.startswith(words.UNSET_VARIABLES):
            known = False
    if known is None:
        return symbol(f"{key} in environ")
    return constant(known if op == "In" else not known)


def note_text(m: RankMachine, f: RankFrame, node: ast.Compare, sides: Sides) -> None:
    """Keep that the text of a rank is compared with the number: ``environ["RANK"] == 0``."""
    for one, other in (sides, sides[::-1]):
        number = other.constant
        reasons = [origin for origin in one.origins if origin.kind in IDENTITY]
        if reasons and type(number) is int and str(number) in one.atoms:
            m.run.texts[f.module.site(node)] = min(reasons, key=lambda origin: origin.site)


def get(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``os.environ.get(name)``, ``os.getenv(name)``."""
    if not one.args:
        return None
    key = one.args[0].constant
    default = one.arg(1, "default")
    if default is not None and key in words.RANK_VARIABLES and _is_unset(m):
        return default
    found = environment(m, f, one.args[0], one.node)
    if found is not None:
        return found
    if isinstance(key, str) and key.startswith(words.UNSET_VARIABLES):
        unset = replace(NONE, deps=frozenset({RankThing(UNSET, key, one.site, one)}))
        return default or unset
    return symbol(f"environ[{key}]", *one.args[1:], *one.kwargs.values())


def _is_unset(m: RankMachine) -> bool:
    """Whether no rank is in the environment: ``mp.spawn()`` sets none, and the program has not."""
    spawned = {call.node for call in m.run.calls if call.name == SPAWN}
    if not any(call.node in spawned for call in m.here.stack):
        return False
    if "os.environ" in m.patched or any(call.name in _SETTING for call in m.run.calls):
        return False
    stored = (one.key for one in m.run.stores if "os.environ" in one.base.names())
    return all(key.replace("_", "").isupper() and "RANK" not in key for key in stored)
