"""What is printed and logged: the same numbers, and by one rank only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.verify.checks.base import excused, numbered, result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.lines import Difference, ShownLine, differences, lines
from ddpify.verify.recording import RunRecord
from ddpify.verify.verdict import Check

_METRICS = "printed, logged numbers"
_CONSOLE = "console once"
# glog lines of C++ code (also as torchrun prefixes them), and torchrun's own banner
_TORCH_LOG = re.compile(
    r"(?:\[rank\d+\]:\s*)?(?:\[Gloo\] |\[[WIE]\d{3,} |[WIE]\d{4} \d\d:)|\*{5,}$|Setting OMP"
)
# of libraries; the observer's functions stand in for some of torch's
_WARNING = re.compile(r"\S*(?:site-packages|verify/observer)/\S+:\d+: \w*Warning: ")
_SHOWN = 5


@dataclass(frozen=True)
class Compared:
    """``wrong`` names the place ("stdout", a path) of each difference."""

    lines: int
    numbers: int
    wrong: tuple[tuple[str, Difference], ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(ratio for _, difference in self.wrong for ratio in difference.ratios)


def metrics(c: Comparison) -> Check:
    if not c.finished:
        return skipped("metrics", _METRICS, "not all ranks came to their end")
    found = compare_output(c)
    if not found.lines:
        return skipped("metrics", _METRICS, "nothing was printed or logged")
    compared = f"{numbered(found.numbers, 'number')} in {numbered(found.lines, 'line')}"
    if not found.wrong:
        return result("metrics", _METRICS, False, compared)
    details = [f"{place}: {difference}" for place, difference in found.wrong[:_SHOWN]]
    details += [f"all numbers that differ are {f}" for f in _factors(found.ratios, c.nproc)]
    measured = f"{numbered(len(found.wrong), 'line')} differ, of {compared}"
    return excused(result("metrics", _METRICS, True, measured, details), c)


def compare_output(c: Comparison) -> Compared:
    """The console of the original and of rank 0, and the texts both left."""
    one, many = c.evidence.reference.folder, c.evidence.distributed.folder
    texts = [("stdout", c.one.stdout, c.ranks[0].stdout)]
    texts += [(text.path, text.reference, text.distributed) for text in c.evidence.texts]
    ignore, same = c.evidence.options.ignore_output, _same_sizes(c)
    counted: list[ShownLine] = []
    wrong: list[tuple[str, Difference]] = []
    for place, reference, distributed in texts:
        both = lines(reference, ignore, one), lines(distributed, ignore, many)
        counted += both[0]
        wrong += ((place, each) for each in differences(*both, c.tolerance, same))
    return Compared(len(counted), sum(len(line.numbers) for line in counted), tuple(wrong))


def _same_sizes(c: Comparison) -> frozenset[tuple[str, str]]:
    """Where verify itself multiplied the batch size, a script that prints it is not to blame."""
    factor = c.evidence.batch_factor
    sizes = [{loader.batch for loader in run.loaders} for run in (c.one, c.ranks[0])]
    if factor == 1:
        return frozenset()
    return frozenset(
        (str(factor * size), str(size)) for size in sizes[1] if factor * size in sizes[0]
    )


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


STREAMS = ("stdout", "stderr")


def shown(run: RunRecord, stream: str) -> Iterator[str]:
    """The lines of the script's own."""
    skip = False
    for line in getattr(run, stream).splitlines():
        if skip:  # the source line that a warning shows
            skip = False
        elif _WARNING.match(line):
            skip = True
        elif line.strip() and not _TORCH_LOG.match(line.strip()):
            yield line


def _factors(ratios: tuple[float, ...], nproc: int) -> Iterator[str]:
    if is_factor(ratios, 1 / nproc):
        yield f"1/{nproc} of those of one process"
    if is_factor(ratios, nproc):
        yield f"{nproc} times those of one process"
