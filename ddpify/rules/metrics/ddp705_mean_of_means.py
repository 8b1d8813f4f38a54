"""DDP705: means over unequal shares are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.feeds import EQUAL_MEANS, UNEQUAL_AVERAGE, UNEQUAL_MEANS
from ddpify.rules.metrics.averages import averages
from ddpify.rules.shared.feeds import by_rank, dataset_of, dealt_by
from ddpify.rules.shared.quotients import (
    Added,
    Quotient,
    added,
    collected,
    loops_over,
    quotients_given,
)
from ddpify.site import Site

_UNEQUAL = (
    "a mean of this rank's share is averaged over the ranks: shares that are unequal get equal"
    " weight",
    "all_reduce the sum and the count, and divide afterwards",
)
_NO_MEAN = (
    "what each rank computes of its share is averaged over the ranks, and that is not the number of"
    " all samples",
    "gather the samples, or reduce the sums and counts that it is computed from",
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per mean that is averaged over ranks with different counts."""
    sums = [
        one
        for loop, loader in loops_over(run)
        for one in (*added(loop, loader), *collected(loop, loader))
    ]
    given: set[Site] = set()
    for call in run.named("torch.distributed.all_reduce", "torch.distributed.reduce"):
        for mean, count in islice(_unequal(call, sums), 1):
            given.add(mean.call.site)
            yield Finding(
                "DDP705",
                mean.call.site,
                _UNEQUAL[0],
                Severity.WARNING,
                (),
                _UNEQUAL[1],
                ((count.site, "each rank counts its own"),),
            )
    yield from (one for one in _averaged(run) if one.site not in given)


def _averaged(run: Run) -> Iterator[Finding]:
    """What is no mean, or a mean over a count of each rank's own, and is averaged all the same."""
    done: set[Site] = set()
    for one in averages(run):
        if one.call.site not in done:
            done.add(one.call.site)
            message, advice = _UNEQUAL if one.mean else _NO_MEAN
            made = ((one.made.site, "each rank computes its own"),)
            yield Finding(
                "DDP705",
                one.call.site,
                message,
                Severity.WARNING,
                (),
                advice,
                made if one.made is not one.call else (),
            )


def _unequal(call: RankCall, sums: list[Added]) -> Iterator[tuple[Quotient, Added]]:
    """The reduced mean and its count, where that differs between ranks."""
    for mean in quotients_given(call, 0, "tensor"):
        for one in sums:
            ours = mean.count == one.name and one.loop not in call.loops and _differs(one)
            if ours and mean.takes(one, mean.total, mean.count):
                yield mean, one


def _differs(count: Added) -> bool:
    """Whether ranks count differently: by a condition on the data, or over unequal shares."""
    if count.selects:
        return True
    dataset = dataset_of(count.loader)
    return count.counts and dataset is not None and by_rank(dataset) and not dealt_by(count.loader)


RULE = Rule(
    "DDP705",
    "mean-of-means",
    "The mean of the ranks' means is the mean of all samples only where all ranks count equally"
    " many. With shares of different length, or a count of tokens that are not padding, it is"
    " another number: .375 where .6 was right. A DistributedSampler's shares are equal. The mean of"
    " perplexities is no perplexity, and that of roots no root, whatever the shares are.",
    "torch.distributed.all_reduce; BUGS M02",
    bad=(UNEQUAL_MEANS, UNEQUAL_AVERAGE),
    good=(EQUAL_MEANS,),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
