"""Loops that begin something in each round, where the last round's handle alone is waited for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ddpify.ranks.inflight import RECEIVES, SENDS, spelled
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.collectives.pending import WAITS, is_in, on_gloo, rounds_of
from ddpify.rules.shared.placing import DIST_INIT
from ddpify.rules.shared.syntax import parents, resolved, scope
from ddpify.site import Site

_LOOPS: Final = (ast.For, ast.While)
_WAIT: Final = "wait"


@dataclass(frozen=True)
class LastHandle:
    """Where only the last one is waited for; ``because``: where the others are begun; ``sure``, if
    not only the program's second backend does several things at once."""

    site: Site
    sure: bool
    because: tuple[tuple[Site, str], ...] = ()


def last_handle(run: Run, call: RankCall) -> LastHandle | None:
    """What is said of a call whose handles are forgotten but for the last; NCCL does one after the
    other, so that the last one to be done is the last one begun."""
    alone = spelled(call) in SENDS | RECEIVES or on_gloo(run)
    if not alone and not _may_be_gloo(run):
        return None
    above = parents(scope(call))
    holder = above.get(call.node)
    if isinstance(holder, ast.Assign):
        kept = _is_overwritten(run, call, holder, above)
        return LastHandle(call.site, alone) if kept else None
    waits = _wait_for_one(holder, above)
    if waits is None:
        return None
    return LastHandle(call.module.site(waits), alone, ((call.site, "each is begun here"),))


def _may_be_gloo(run: Run) -> bool:
    """``"nccl" if torch.cuda.is_available() else "gloo"``."""
    given = ((call, call.node_of(0, "backend")) for call in run.named(DIST_INIT))
    found = (one for call, node in given if node is not None for _, one in resolved(call, node))
    arms = (arm for one in found if isinstance(one, ast.IfExp) for arm in (one.body, one.orelse))
    return any(isinstance(arm, ast.Constant) and arm.value == "gloo" for arm in arms)


def _is_overwritten(
    run: Run, call: RankCall, made: ast.Assign, above: Mapping[ast.AST, ast.AST]
) -> bool:
    """Whether each round of a loop puts its handle in place of the last round's, which nothing in
    the loop has read: the last one alone can be waited for."""
    target, loop = made.targets[0], above.get(made)
    if not isinstance(target, (ast.Name, ast.Attribute)) or not isinstance(loop, _LOOPS):
        return False
    if any(target is not one and _spells(one, target) for one in ast.walk(loop)):
        return False
    around = [one for one in rounds_of(run, call) if one.node is loop]
    return isinstance(target, ast.Name) or not any(
        is_in(wait, one, call) for one in around for wait in run.methods(*WAITS)
    )


def _wait_for_one(holder: ast.AST | None, above: Mapping[ast.AST, ast.AST]) -> ast.AST | None:
    """``works[-1].wait()`` of a list into which each round of a loop puts its handle, and of which
    nothing else is asked."""
    put = holder.func if isinstance(holder, ast.Call) else None
    if holder is None or not isinstance(put, ast.Attribute) or put.attr != "append":
        return None
    works, loop = put.value, above.get(above[holder])
    if not isinstance(works, ast.Name) or not isinstance(loop, _LOOPS):
        return None
    named = (one for one in above if isinstance(one, ast.Name) and one.id == works.id)
    reads = [one for one in named if isinstance(one.ctx, ast.Load)]
    waits = [_waits(above[one], above) for one in reads if one is not works]
    within = set(ast.walk(loop))
    if len(waits) != 1 or waits[0] is None or waits[0] in within:
        return None
    return waits[0]


def _waits(one: ast.AST, above: Mapping[ast.AST, ast.AST]) -> ast.AST | None:
    """The call of ``works[-1].wait()``, which ``works[-1]`` is a part of."""
    place = one.slice if isinstance(one, ast.Subscript) else None
    last = isinstance(place, (ast.UnaryOp, ast.Constant))
    method = above.get(one)
    waits = isinstance(method, ast.Attribute) and method.attr == _WAIT
    return above.get(method) if last and waits and method is not None else None


def _spells(node: ast.AST, name: ast.Name | ast.Attribute) -> bool:
    return type(node) is type(name) and ast.unparse(node) == ast.unparse(name)
