"""DDP209: a sampler fills up its shares with repeated samples, and a metric counts them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.data.over_all import divided_by_all
from ddpify.rules.data.padded_gathers import gathered_whole
from ddpify.rules.examples import CORRECT
from ddpify.rules.examples.accelerated import GATHERED, GATHERED_ENTRIES, GATHERED_RIGHTLY
from ddpify.rules.examples.feeds import PADDED, PADDED_MEAN, STRIDED
from ddpify.rules.shared.counted import divides_evenly, rows_of
from ddpify.rules.shared.feeds import dataset_of, dealt_by, taken_over, trained
from ddpify.rules.shared.gathered import filled_up
from ddpify.rules.shared.quotients import counts_samples, loops_over
from ddpify.rules.shared.written import text_around
from ddpify.site import Site

_REDUCTIONS = frozenset({"torch.distributed.all_reduce", "torch.distributed.reduce"})
_TESTS_LENGTH = re.compile(r"\blen\([^()]*\)\s*%")  # `len(dataset) % world_size`


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per padding sampler of a loader whose samples are counted."""
    learning = trained(run)
    done: set[RankThing] = set()
    for loop, loader in loops_over(run):
        if loader in learning or loop.node in run.training_loops or taken_over(run, loader):
            continue
        for sampler in dealt_by(loader):
            leaves = _leaves_out(run, sampler, loader)
            counts = counts_samples(loop) or (not _is_even(loader) and divided_by_all(run, loader))
            if sampler in done or not (leaves or (_pads(sampler) and counts)):
                continue
            reduction = _reduced(run, loader)
            if reduction is not None:
                done.add(sampler)
                because = (
                    (loop.site, "samples are counted here"),
                    (reduction.site, "and added over the ranks"),
                )
                yield _finding(sampler, loader, because, _LEAVES_OUT if leaves else _PADS)
    for loader, gather, count in gathered_whole(run):
        for sampler in dealt_by(loader):
            if (
                not (loader in learning or sampler in done)
                and _pads(sampler)
                and not _is_even(loader)
            ):
                done.add(sampler)
                because = ((gather.site, "gathered here"), (count.site, "and all are counted"))
                yield _finding(sampler, loader, because, _PADS)
    for call, loader in filled_up(run):
        yield Finding(
            "DDP209",
            call.site,
            "the last batches are filled up with repeated samples, and gather() counts them",
            Severity.WARNING,
            advice="gather_for_metrics() leaves them out",
            because=((loader.site, "this loader is dealt"),) if loader.site is not None else (),
        )


_PADS = (
    "where samples do not divide evenly the sampler repeats some, and the metric counts them twice"
)
_LEAVES_OUT = (
    "where samples do not divide evenly the sampler leaves the last ones out, and the metric is of"
    " the others"
)


def _finding(
    sampler: RankThing, loader: RankThing, because: tuple[tuple[Site, str], ...], message: str
) -> Finding:
    """A note, and a warning where the program says how many samples there are: an odd number."""
    dataset = dataset_of(loader)
    uneven = dataset is not None and (rows_of(dataset) or 0) % 2 == 1
    return Finding(
        "DDP209",
        sampler.site or because[0][0],
        message,
        Severity.WARNING if uneven else Severity.NOTE,
        (),
        "deal without filling up: Subset(dataset, range(rank, len(dataset), world_size)) and sums"
        " that are all-reduced; the model without its wrapper",
        because,
    )


def _pads(sampler: RankThing) -> bool:
    """Neither drop_last nor a look at whether the length divides."""
    call = sampler.call
    if call is None or not _is_torch_s(sampler, call):
        return False
    drop = call.arg(5, "drop_last")
    if drop is not None and drop.constant is not False:
        return False
    return not _looks_at_length(call)


def _is_even(loader: RankThing) -> bool:
    dataset = dataset_of(loader)
    return dataset is not None and divides_evenly(dataset)


def _leaves_out(run: Run, sampler: RankThing, loader: RankThing) -> bool:
    """drop_last=True, of samples that are not known to divide, and no other loader has the rest."""
    call, dataset = sampler.call, dataset_of(loader)
    if call is None or dataset is None or not _is_torch_s(sampler, call):
        return False
    drop = call.arg(5, "drop_last")
    if drop is None or drop.constant is not True or _looks_at_length(call):
        return False
    whole = set(dataset.things)
    others = (data for _, one in loops_over(run) if one is not loader and (data := dataset_of(one)))
    rest = any(whole & data.made_from for data in others)
    return not rest and not divides_evenly(dataset)


def _is_torch_s(sampler: RankThing, call: RankCall) -> bool:
    return sampler.cls is None and call.ranks == ALL and not call.star


def _looks_at_length(call: RankCall) -> bool:
    return any(_TESTS_LENGTH.search(text_around(one)) for one in call.way)


def _reduced(run: Run, loader: RankThing) -> RankCall | None:
    for call in run.calls:
        if call.name in _REDUCTIONS and any(loader in value.sources() for value in call.given):
            return call
    return None


RULE = Rule(
    "DDP209",
    "padded-evaluation",
    "DistributedSampler gives every rank equally many samples: it repeats the first ones when the"
    " length does not divide by the world size. 5 samples on two ranks are 6, and an accuracy of .8"
    " was reported as .667. Accelerate repeats in the same way what it deals: of 42 samples"
    " gather() gave 48 on two ranks, gather_for_metrics() 42 (measured). With drop_last=True the"
    " sampler leaves out what does not divide: of 23 samples one on two ranks, three on four."
    " Training does not mind; a metric that is published does.",
    "pytorch#25162, #22584; pytorch/examples PR#980; lightning#12862; BUGS D05",
    bad=(PADDED, PADDED_MEAN, GATHERED, GATHERED_ENTRIES),
    good=(*CORRECT, STRIDED, *GATHERED_RIGHTLY),
    lint=lint,
    severity=Severity.NOTE,
    fixes=False,
)
