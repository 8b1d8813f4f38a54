"""What is printed and logged: the same numbers, and by one rank only."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.verify.checks.base import excused, numbered, result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.outputs import STREAMS, compare_output, shown
from ddpify.verify.verdict import Check

_METRICS = "printed, logged numbers"
_CONSOLE = "console once"
_SHOWN = 5


def metrics(c: Comparison) -> Check:
    if not c.finished:
        return skipped("metrics", _METRICS, "not all ranks came to their end")
    found = compare_output(c)
    rest = f"; not compared: {'; '.join(found.left_out)}" if found.left_out else ""
    if not found.lines:
        return skipped("metrics", _METRICS, f"nothing was printed or logged{rest}")
    compared = f"{numbered(found.numbers, 'number')} in {numbered(found.lines, 'line')}{rest}"
    if not found.wrong:
        return result("metrics", _METRICS, False, compared)
    details = [f"{place}: {difference}" for place, difference in found.wrong[:_SHOWN]]
    details += [f"all numbers that differ are {f}" for f in _factors(found.ratios, c.nproc)]
    differ = "1 line differs" if len(found.wrong) == 1 else f"{len(found.wrong)} lines differ"
    measured = f"{differ}, of {compared}"
    return excused(result("metrics", _METRICS, True, measured, details), c)


def is_factor(ratios: tuple[float, ...], factor: float) -> bool:
    """All numbers that differ are ``factor`` times the reference's, as well as digits show."""
    return bool(ratios) and all(abs(ratio - factor) <= 0.02 * factor for ratio in ratios)


def console_once(c: Comparison) -> Check:
    if not c.finished:
        return skipped("console-once", _CONSOLE, "not all ranks came to their end")
    printed = [(run, stream, list(shown(run, stream))) for run in c.ranks[1:] for stream in STREAMS]
    wrong = [each for each in printed if each[2]]
    details = [
        f"rank {run.rank} writes {numbered(len(found), 'line')} to {stream}, first: {found[0]!r}"
        for run, stream, found in wrong
    ]
    count = sum(len(found) for _, _, found in printed)
    measured = f"{numbered(count, 'line')} from ranks above 0"
    return result("console-once", _CONSOLE, bool(wrong), measured, details)


def _factors(ratios: tuple[float, ...], nproc: int) -> Iterator[str]:
    if is_factor(ratios, 1 / nproc):
        yield f"1/{nproc} of those of one process"
    if is_factor(ratios, nproc):
        yield f"{nproc} times those of one process"
