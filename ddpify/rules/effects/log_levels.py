"""Whether a program's loggers say what they are told on some ranks only."""

from __future__ import annotations

from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run

# What stops a logger, or lets it speak; of whichever logger, as they hand on what they are told.
_STOPS = ("setLevel", "addFilter", "disable", "removeHandler")


def by_rank(run: Run) -> bool:
    """Whether loggers are stopped on some ranks: what they write, all others leave to one."""
    return any(map(_tells_apart, run.methods(*_STOPS)))


def _tells_apart(call: RankCall) -> bool:
    if call.ranks != ALL or any(guard.test.by_rank for guard in call.guards):
        return True
    said = (*call.given, *((call.result,) if call.result is not None else ()))
    return any(value.by_rank for value in said)
