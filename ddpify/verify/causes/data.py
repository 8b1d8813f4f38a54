"""Samples, their contents and what random streams make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddpify.verify.causes.base import Case
from ddpify.verify.checks.base import some
from ddpify.verify.checks.check_contents import moving_alike, same_streams
from ddpify.verify.checks.check_samples import SampleFaults, patterns
from ddpify.verify.verdict import Cause


def data(case: Case) -> Iterator[Cause]:
    """At most one cause of wrong samples; of same noise another."""
    if not case.c.evidence.reference.finished:
        return
    if case.failed("samples") and (found := patterns(case.c)):
        yield from _samples(case, found)
    elif case.failed("contents") and case.c.contents.wrong:
        yield case.cause("DDP111", _contents(case))
    elif case.failed("loss") and (evidence := _same_losses(case)):
        yield case.cause("DDP202", evidence)
    if streams := same_streams(case.c):
        names = " and ".join(streams)
        yield case.cause("DDP111", f"after every step all ranks are at the same place of {names}")


def _samples(case: Case, found: SampleFaults) -> Iterator[Cause]:
    step = f"step {found.step}"
    if found.unseen and _overlap(case):
        evidence = f"the ranks divide the data differently: rank by rank other samples ({step})"
        yield case.cause("DDP111", evidence)
    elif found.unseen:
        yield case.cause("DDP202", f"trained on, and never by the original: {some(found.unseen)}")
    elif found.whole or (found.repeated and not found.same_order):
        how = "every rank goes through the whole data set" if found.whole else "they overlap"
        yield case.cause("DDP202", f"{how}; {step} is the first in which ranks share samples")
    elif found.same_order:
        yield case.cause("DDP201", "on every rank the second pass has the order of the first")
    elif found.factor != 1:
        evidence = f"{found.factor:.3g} times the original's samples per optimizer step"
        yield case.cause("DDP203", evidence)


def _overlap(case: Case) -> bool:
    """In the first pass ranks take samples that others take, too: more than padding."""
    first = [next((p for p in own if p.training), None) for own in case.c.rank_passes]
    taken = Counter(sample for each in first if each for sample in set(each.samples))
    return sum(count > 1 for count in taken.values()) >= case.c.nproc


def _contents(case: Case) -> str:
    found = case.c.contents
    where = f"from step {found.step} on" if found.step is not None else "in evaluation"
    return f"{found.wrong} of {found.compared} samples have other contents, {where}"


def _same_losses(case: Case) -> str:
    """Where batches are not a DataLoader's, ranks that take the same ones have the same loss."""
    count = case.c.common_steps
    if any(each.training for each in case.c.passes) or case.c.nproc < 2 or not moving_alike(case.c):
        return ""
    losses = [[run.steps[n].losses for n in range(count)] for run in case.c.ranks]
    alike = all(each == losses[0] for each in losses) and any(losses[0])
    return (
        "all ranks have the same loss in every step: they train on the same samples"
        if alike
        else ""
    )
