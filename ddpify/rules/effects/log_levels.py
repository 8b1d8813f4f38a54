"""Whether a program's loggers say what they are told on some ranks only."""

from __future__ import annotations

from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.doubts import in_doubt, of_rank

# What stops a logger, or lets it speak; of whichever logger, as they hand on what they are told.
_STOPS = ("setLevel", "addFilter", "disable", "removeHandler")


def by_rank(run: Run) -> bool:
    """Whether loggers are stopped on some ranks: what they write, all others leave to one."""
    return any(_tells_apart(run, call) for call in run.methods(*_STOPS))


def _tells_apart(run: Run, call: RankCall) -> bool:
    said = (*call.given, *((call.result,) if call.result is not None else ()))
    told = any(value.by_rank or of_rank(value) for value in said)
    return call.ranks != ALL or told or in_doubt(run, call)
