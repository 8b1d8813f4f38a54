"""What one side saved the other side can load."""

from __future__ import annotations

from ddpify.verify.checks.base import excused, numbered, result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.evidence import CheckpointPair
from ddpify.verify.verdict import Check

_TITLE = "checkpoints cross-load"
# An optimizer keeps squares of gradients: differences of rounding are larger there.
STATE_FACTOR = 1000


def checkpoints(c: Comparison) -> Check:
    found = c.evidence.checkpoints
    if not found:
        return skipped("checkpoints", _TITLE, "both runs left none")
    if not c.finished:
        return skipped("checkpoints", _TITLE, "not all ranks came to their end")
    limits = c.tolerance, STATE_FACTOR * c.tolerance
    problems = [(pair.path, problem) for pair in found if (problem := problem_of(c, pair))]
    details = [f"{path}: {problem}" for path, problem in problems]
    for pair in found:
        kinds = ("tensors", pair.difference, limits[0]), ("optimizer state", pair.state, limits[1])
        details += [
            f"{pair.path}: {kind} differ by {difference:.3g} (tolerance {limit:.3g})"
            for kind, difference, limit in kinds
            if not difference <= limit
        ]
    largest = max(pair.difference for pair in found)
    measured = f"{numbered(len(found), 'file')}, largest relative difference {largest:.3g}"
    if any(pair.unprefixed for pair in found) and not problems:
        measured += ", without DataParallel's `module.`"
    check = result("checkpoints", _TITLE, bool(details), measured, details)
    return check if problems else excused(check, c)


def problem_of(c: Comparison, pair: CheckpointPair) -> str:
    """Why one side cannot load what the other saved. Only the prefix of a wrapper that the
    migration took away has to go."""
    if pair.unprefixed and not c.one.data_parallel:
        return "the original's keys have a `module.` prefix, the ranks' have none"
    return pair.problem
