"""The record that a call happens."""

from __future__ import annotations

from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.protocol import RankMachine


def record(
    m: RankMachine, f: RankFrame, name: str, given: Given, target: FunctionDefinition | None = None
) -> RankCall:
    """Keep that a call happens now."""
    made = RankCall(
        m.tick(),
        name,
        given.node,
        f.module,
        m.live,
        given.args,
        given.kwargs,
        given.receiver,
        m.here.guards,
        m.here.loops,
        m.here.stack,
        f.function,
        m.here.contexts,
        m.here.swallows,
        m.here.grad,
        target=target,
        alone=given.alone,
        star=given.star,
    )
    m.run.calls.append(made)
    return made
