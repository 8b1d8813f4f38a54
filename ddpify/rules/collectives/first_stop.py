"""Servers that leave at the first message that says so, while each of several ranks sends one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks import words
from ddpify.ranks.model import RANK0, RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.more_ranks import is_another_with_two, is_of_each, may_be_more
from ddpify.rules.shared.sides import among_all
from ddpify.rules.shared.syntax import scope


def left_at_first(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """The receive of a server, and the last message that each of the others sends to it."""
    calls = among_all(run)
    servers = (one for one in calls if _is_open(one) and _leaves(run, one))
    for server in (one for one in servers if _only_receive(calls, one)):
        sent = [one for one in calls if one.method == "send" and one.ranks == RANK1]
        last = max(sent, key=lambda one: one.order, default=None)
        if last is None or not any(one.loops for one in sent) or last.loops:
            continue
        named = last.arg(1, "dst")
        each = is_of_each(run, last) and may_be_more(run)
        if named is not None and named.atoms[1] == 0 and each:
            yield server, last


def _is_open(call: RankCall) -> bool:
    """Whether rank 0 alone receives there what any rank sends, again and again."""
    anyone = call.arg(1, "src") is None and call.name == f"{words.DIST}recv"
    endless = bool(call.loops) and isinstance(call.loops[-1].node, ast.While)
    return anyone and endless and call.ranks == RANK0


def _only_receive(calls: list[RankCall], server: RankCall) -> bool:
    return not any(
        one is not server and one.method.endswith("recv") and one.ranks & RANK0 for one in calls
    )


def _leaves(run: Run, call: RankCall) -> bool:
    """Whether one message alone ends the loop: ``if message[0] < 0: break``."""
    loop, buffer = call.loops[-1], call.node_of(0, "tensor")
    test = getattr(loop.node, "test", None)
    if not (isinstance(test, ast.Constant) and test.value) or not isinstance(buffer, ast.Name):
        return False
    for left in run.exits:
        own = [guard for guard in left.guards if guard not in call.guards]
        if left.kind in ("break", "return") and left.ends(loop) and len(own) == 1:
            names = {n.id for n in ast.walk(own[0].node) if isinstance(n, ast.Name)}
            if buffer.id in names:
                parts = (node for node in ast.walk(own[0].node) if isinstance(node, ast.expr))
                counts = any(is_another_with_two(run, call, node) for node in parts)
                return not counts and not (names - {buffer.id}) & _local(call)
    return False


def _local(call: RankCall) -> set[str]:
    """What the function gives a value itself, or is given: a number of messages, it may be."""
    nodes = ast.walk(scope(call) if call.function is not None else call.loops[-1].node)
    stored = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {*stored, *(call.function.parameters if call.function is not None else ())}
