"""Evaluation sees each sample exactly once, over all ranks or on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpify.verify.checks.base import numbered, result, skipped, some
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.passes import LoaderPass
from ddpify.verify.recording import Sample
from ddpify.verify.verdict import Check

_TITLE = "evaluation samples"


@dataclass(frozen=True)
class Evaluated:
    """One pass of the reference's and of the ranks'; ``duplicates`` are of sharded passes.

    Of a pass that was not ``ended``, as ``next(iter(loader))``, rank 0 may have the first batch,
    and hand it on: what others took then has no effect, or other checks see it.
    """

    number: int
    wanted: Counter[Sample]
    shares: tuple[Counter[Sample], ...]
    ended: bool = True
    before: bool = False  # the first step

    @property
    def whole(self) -> bool:
        return all(share == self.wanted for share in self.shares)

    @property
    def union(self) -> Counter[Sample]:
        return sum(self.shares, Counter())

    @property
    def right(self) -> bool:
        handed_on = not self.ended and self.shares[0] == self.wanted
        return self.whole or self.union == self.wanted or handed_on or self.glanced

    @property
    def glanced(self) -> bool:
        """A few batches before training, to see whether it works: as many of each rank's own."""
        once = all(count <= max(self.wanted[one], 1) for one, count in self.union.items())
        return self.before and not self.ended and self.wanted <= self.union and once

    @property
    def duplicates(self) -> Counter[Sample]:
        return Counter() if self.whole else self.union - self.wanted


def evaluation(c: Comparison) -> Check:
    wanted = [each for each in c.passes if not each.training]
    if not wanted:
        return skipped("evaluation", _TITLE, "no evaluation pass over a DataLoader")
    if not c.finished:
        return skipped("evaluation", _TITLE, "not all ranks came to their end")
    found = list(evaluated(c))
    details = list(_details(found))
    counts = {len([each for each in own if not each.training]) for own in c.rank_passes}
    if max(counts) != len(wanted):
        details.append(f"{len(wanted)} passes in one process, {max(counts)} on the ranks")
    if not found and not details:
        return skipped("evaluation", _TITLE, "the run was stopped in its first evaluation pass")
    how = "whole on every rank" if found and found[0].whole else "shared out over the ranks"
    measured = f"{numbered(len(found), 'pass').replace('passs', 'passes')}, {how}"
    return result("evaluation", _TITLE, bool(details), measured, details)


def evaluated(c: Comparison) -> Iterator[Evaluated]:
    """Passes in order; of a run that was stopped only those that were complete in it."""
    stopped = c.one.status == "stopped"
    wanted = [each for each in c.passes if not each.training]
    ranks = [[each for each in own if not each.training] for own in c.rank_passes]
    for number, one in enumerate(wanted):
        if number >= max(map(len, ranks)) or (stopped and not one.ended):
            return
        shares = tuple(_share(own, number) for own in ranks)
        before = bool(one.fetches) and one.fetches[-1].steps == 0
        yield Evaluated(number, Counter(one.samples), shares, one.ended, before)


def _share(passes: Sequence[LoaderPass], number: int) -> Counter[Sample]:
    return Counter(passes[number].samples if number < len(passes) else ())


def _details(found: Sequence[Evaluated]) -> Iterator[str]:
    for each in found:
        if each.right:
            continue
        if each.duplicates:
            twice = some(sorted(map(str, each.duplicates)))
            yield f"pass {each.number}: {each.duplicates.total()} too many (samples {twice})"
        if missing := each.wanted - each.union:
            which = some(sorted(map(str, missing)))
            yield f"pass {each.number}: {missing.total()} missing (samples {which})"
