"""Whether a program is started with three processes or more, and what those do that two do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import ALL, RankCall, RankGuard, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.parents import SPAWN
from ddpify.rules.shared.rank_numbers import RankNumbers
from ddpify.rules.shared.syntax import scope, scope_nodes

MORE: Final = (3, 4)


def may_be_more(run: Run) -> bool:
    """Whether nothing that the program says makes them two: what it spawns, how large its group is,
    a check."""
    told = {value.constant for value in _numbers(run) if value is not None}
    if any(type(one) is int and one < MORE[0] for one in told) or _started(run) == {2}:
        return False
    scopes = {scope(call): call for call in run.calls}
    return not any(tells_apart(run, call) for call in scopes.values())


def _numbers(run: Run) -> Iterator[RankValue | None]:
    yield from (call.arg(2, "nprocs") for call in run.named(SPAWN))
    yield from (call.arg(3, "world_size") for call in run.openings)


def _started(run: Run) -> set[object]:
    """How many times ``for rank in range(size): Process(target=run, args=(rank, size))`` does."""
    found: set[object] = set()
    for call in run.openings:
        for node in call.module.nodes:
            if isinstance(node, ast.For) and _starts(node) and isinstance(node.iter, ast.Call):
                bound = node.iter.args[-1] if len(node.iter.args) == 1 else None
                found.add(RankNumbers(run, 0, MORE[0]).at_top(call, bound))
    return found


def _starts(node: ast.For) -> bool:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(ast.unparse(one).rpartition(".")[2] == "Process" for one in calls)


def tells_apart(run: Run, call: RankCall) -> bool:
    """Whether the function in which a call stands goes another way with two:
    ``assert world == 2``, ``if world != 2: return``."""
    tests = (n.test for n in scope_nodes(call) if isinstance(n, (ast.Assert, ast.If)))
    return any(is_another_with_two(run, call, test) for test in tests)


def is_another_with_two(run: Run, call: RankCall, node: ast.expr) -> bool:
    """Whether an expression hangs on whether there are two processes."""
    return len({RankNumbers(run, 0, world).of(call, node) for world in (2, *MORE)}) > 1


def is_of_each(run: Run, call: RankCall) -> bool:
    """Whether each of several ranks comes to what rank 1 does where there are two."""
    return all(_holds(run, call, guard) for guard in call.conditions)


def _holds(run: Run, call: RankCall, guard: RankGuard) -> bool:
    if guard.ranks == ALL and not guard.test.by_rank:
        return True
    at = [one for one in call.way if any(node is guard.node for node in scope_nodes(one))]
    ranks = [(rank, world) for world in MORE for rank in range(1, world)]
    held = [RankNumbers(run, *one).of(at[-1], guard.node) if at else None for one in ranks]
    return None not in held and {*map(bool, held)} == {guard.holds}
