"""Along which axis a model's input holds samples, by what is done with it."""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.facts import roles
from ddpify.facts.bodies import Block, calls_along
from ddpify.facts.events import Call, Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.values import Kind

# With another axis than the first, what looks along axes is not followed.
ALONG = frozenset(
    """sum mean prod std var norm max min argmax argmin topk sort softmax log_softmax cumsum
    logsumexp split chunk unbind""".split()
)


def parallel_axes(first: Machine, forwards: Sequence[Forward]) -> set[int | None]:
    """The axes along which DataParallel divides what these calls are given."""
    sites = {f.call.site for f in forwards}
    found = [f for f in roles.forwards_of(first) if f.call.site in sites]
    wrapped = {f.call.site for f in found if f.model.kind is Kind.WRAPPED}
    calls = [c for c in roles.calls_of(first) if c.name.endswith(".DataParallel")]
    return {_dim(call) for call in calls} if wrapped == sites else set()


def _dim(call: Call) -> int | None:
    given = call.arg(3, "dim")
    if given is None:
        return 0
    return given.const if given.known and isinstance(given.const, int) else None


def unfollowed(block: Block, axis: int) -> bool:
    """Whether what these statements compute along an axis may be along that of the samples."""
    return bool(axis) and calls_along(block, ALONG)
