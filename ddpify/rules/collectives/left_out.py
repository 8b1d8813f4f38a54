"""Roots that send the last message to all ranks but the last one: ``range(1, world - 1)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RANK0, RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.crossed import exchanged
from ddpify.rules.shared.rank_numbers import RankNumbers
from ddpify.rules.shared.sides import among_all, peer_name, sends

_WORLDS: Final = (3, 4)


def left_out(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """The last message of rank 0, which it sends to all others but the last rank, and where that
    rank waits for it: in a loop that ends when the message says so."""
    calls = among_all(run)
    sent = [one for one in calls if sends(one) and one.ranks & RANK0]
    last = max(sent, key=lambda one: one.order, default=None)
    if last is None or not all(_misses(run, last, world) for world in _WORLDS):
        return
    waiting = (one for one in calls if not sends(one) and one.ranks == RANK1)
    for call in waiting:
        ends = _ends_by_message(run, call)
        if ends and all(_comes_to(run, call, world) for world in _WORLDS):
            yield last, call
            return


def _misses(run: Run, call: RankCall, world: int) -> bool:
    """Whether a call sends to each of the ranks 1 to world - 2, and to no other."""
    loop = call.loops[-1].node if call.loops else None
    peer = call.node_of(1, peer_name(call))
    over = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(loop, ast.For) or not isinstance(over, ast.Call) or peer is None:
        return False
    name = ast.unparse(peer)
    own = {guard.text for guard in call.conditions_in(call.loops[-1])} - {f"{name} != 0"}
    plain = ast.unparse(over.func) == "range" and ast.unparse(loop.target) == name
    bounds = [RankNumbers(run, 0, world).of(call, one) for one in over.args]
    if own or not plain or not bounds or not all(isinstance(one, int) for one in bounds):
        return False
    return {*range(*bounds)} - {0} == {*range(1, world - 1)}


def _ends_by_message(run: Run, call: RankCall) -> bool:
    """Whether nothing but what is received ends the loop in which a rank receives."""
    loop = call.loops[-1] if call.loops else None
    node = exchanged(call)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()
    if loop is None or not isinstance(loop.node, ast.While) or not names:
        return False
    endless = isinstance(loop.node.test, ast.Constant) and bool(loop.node.test.value)
    tests = [] if endless else [[loop.node.test]]
    for one in run.exits:
        if one.kind != "continue" and one.function is call.function and loop in one.loops:
            tests.append([guard.node for guard in one.guards if guard not in call.guards])
    nodes = [[n for test in held for n in ast.walk(test)] for held in tests]
    return bool(tests) and all(
        any(isinstance(n, ast.Name) and n.id in names for n in held) for held in nodes
    )


def _comes_to(run: Run, call: RankCall, world: int) -> bool:
    """Whether the last of so many ranks makes a call, as rank 1 does."""
    numbers = RankNumbers(run, world - 1, world)
    for guard in call.conditions:
        if guard.test.by_rank:
            entered = next(one for one in call.way if guard in one.guards)
            found = numbers.of(entered, guard.node)
            if not isinstance(found, (bool, int)) or bool(found) is not guard.holds:
                return False
    return True
