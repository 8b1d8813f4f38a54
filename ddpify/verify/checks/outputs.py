"""What the original and rank 0 printed, logged and wrote, beside each other; what of it cannot be
compared is named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.verify.checks.base import numbered, some
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.lines import Difference, ShownLine, differences, last_state, lines
from ddpify.verify.checks.records import scalar_lines, text_lines
from ddpify.verify.recording import RunRecord

STREAMS: Final = ("stdout", "stderr")
# glog lines of C++ code (also as torchrun prefixes them), and torchrun's own banner
_TORCH_LOG: Final = re.compile(
    r"(?:\[rank\d+\]:\s*)?(?:\[Gloo\] |\[[WIE]\d{3,} |[WIE]\d{4} \d\d:)|\*{5,}$|Setting OMP"
)
_FOREIGN: Final = re.compile(rf"{_TORCH_LOG.pattern}|wandb: |.*\babsl::|.*\btensorflow/")
# of libraries; the observer's functions stand in for some of torch's, and Lightning's warnings do
# not say that they are
_LIGHTNING: Final = r"\S*site-packages/(?:pytorch_)?lightning(?:_fabric)?/\S+\.py:\d+: "
_WARNING: Final = re.compile(
    rf"\S*(?:site-packages|verify/observer)/\S+:\d+: \w*Warning: |{_LIGHTNING}"
)
_ANY_WARNING: Final = re.compile(rf"\S+:\d+: \w*Warning: |{_LIGHTNING}")
# a progress bar; what follows it was printed while it stood there
_TOOK: Final = r"\[\d*:?\d+:\d\d[^\]]*\]"
_BAR: Final = re.compile(
    rf".*(?:\d+%\|[^|]*\|(?:[ \d/.?kMG]*{_TOOK})?|\d+it {_TOOK})|.*━.* [\d.]+it/s.*"
)


@dataclass(frozen=True)
class Compared:
    """``wrong`` names the place ("stdout", a path) of each difference, ``left_out`` what was not
    compared."""

    lines: int
    numbers: int
    wrong: tuple[tuple[str, Difference], ...]
    left_out: tuple[str, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(ratio for _, difference in self.wrong for ratio in difference.ratios)


def compare_output(c: Comparison) -> Compared:
    """The console of the original and of rank 0, and the texts and scalars both left."""
    same = _same_sizes(c)
    counted: list[ShownLine] = []
    wrong: list[tuple[str, Difference]] = []
    for place, one, other in beside(c):
        counted += one
        wrong += ((place, each) for each in differences(one, other, c.tolerance, same))
    numbers = sum(len(line.numbers) for line in counted)
    clocks = sum(line.clocks for line in counted)
    return Compared(len(counted), numbers, tuple(wrong), tuple(_left_out(c, clocks)))


def shown(run: RunRecord, stream: str) -> Iterator[str]:
    """The lines of the script's own."""
    return _own(getattr(run, stream).splitlines(), _WARNING, _TORCH_LOG)


def beside(c: Comparison) -> Iterator[tuple[str, tuple[ShownLine, ...], tuple[ShownLine, ...]]]:
    one, many = c.evidence.reference.folder, c.evidence.distributed.folder
    ignore = c.evidence.options.ignore_output
    for stream in STREAMS:
        first = lines(_console(c.one, stream), ignore, one)
        yield stream, first, lines(_console(c.ranks[0], stream), ignore, many)
    for text in c.evidence.texts:
        first = text_lines(text.reference, text.path, ignore, one)
        yield text.path, first, text_lines(text.distributed, text.path, ignore, many)
    for found in c.evidence.scalars:
        first = tuple(scalar_lines(found.reference, ignore))
        place = f"TensorBoard, {found.folder}"
        yield place, first, tuple(scalar_lines(found.distributed, ignore))


def _console(run: RunRecord, stream: str) -> str:
    """Without progress bars: what they show is each process' own, and is drawn over."""
    return "\n".join(_BAR.sub("", line) for line in _said(run, stream))


def _said(run: RunRecord, stream: str) -> Iterator[str]:
    states = map(last_state, getattr(run, stream).split("\n"))
    return _own(states, _ANY_WARNING, _FOREIGN)


def _own(said: Iterable[str], warning: re.Pattern[str], foreign: re.Pattern[str]) -> Iterator[str]:
    skip = False
    for line in said:
        if skip and line.startswith("  "):  # the source line that a warning shows
            skip = False
        elif skip := bool(warning.match(line)):
            continue
        elif line.strip() and not foreign.match(line.strip()):
            yield line


def _left_out(c: Comparison, clocks: int) -> Iterator[str]:
    if clocks:
        yield numbered(clocks, "time")
    said = [line for stream in STREAMS for line in _said(c.one, stream)]
    if bars := sum(bool(_BAR.search(line)) for line in said):
        yield numbered(bars, "progress bar")
    if c.evidence.unread:
        yield some(c.evidence.unread, 3)


def _same_sizes(c: Comparison) -> frozenset[tuple[str, str]]:
    """Where verify itself multiplied the batch size, a script that prints it is not to blame."""
    factor = c.evidence.batch_factor
    sizes = [{loader.batch for loader in run.loaders} for run in (c.one, c.ranks[0])]
    if factor == 1:
        return frozenset()
    return frozenset(
        (str(factor * size), str(size)) for size in sizes[1] if factor * size in sizes[0]
    )
