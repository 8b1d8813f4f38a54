"""The record that a call happens."""

from __future__ import annotations

from ddpify.ranks.frames import Frame
from ddpify.ranks.given import Given
from ddpify.ranks.model import Call
from ddpify.ranks.modules import FunctionInfo
from ddpify.ranks.protocol import Machine


def record(
    m: Machine, f: Frame, name: str, given: Given, target: FunctionInfo | None = None
) -> Call:
    """Keep that a call happens now."""
    made = Call(
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
