"""Ranks take different paths: one waits for ever, fails because another is gone, or drifts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from ddpify.verify.causes.base import Case
from ddpify.verify.checks.check_collectives import first_mismatch
from ddpify.verify.checks.comparison import same_rates
from ddpify.verify.checks.endings import only_others_failed
from ddpify.verify.checks.passes import LoaderPass
from ddpify.verify.recording import Backward, Fetch, ForwardRecord, RunRecord
from ddpify.verify.verdict import Cause


def desync(case: Case) -> Iterator[Cause]:
    """At most one cause: all later differences follow from the first."""
    if not case.c.evidence.reference.finished:
        return
    if line_search(case):
        taken = _ended(case) or "its parameters are not those of one process"
        yield case.cause("DDP405", f"LBFGS decides from each rank's own loss: {taken}")
    elif _apart(case):
        yield from _first(case)


def line_search(case: Case) -> bool:
    wrong = any(case.failed(name) for name in ("completed", "trajectory", "ranks-identical"))
    kinds = {optimizer.kind for run in case.c.ranks for optimizer in run.optimizers}
    return wrong and "LBFGS" in kinds


def _apart(case: Case) -> bool:
    counts = {len(run.steps) for run in case.c.ranks}
    gone = any(only_others_failed(run) for run in case.c.ranks)
    hung = case.c.evidence.distributed.hung
    return hung or gone or _aborted(case) or (case.c.finished and len(counts) > 1)


def _aborted(case: Case) -> bool:
    """Gloo ended a rank from C++ because another one is gone: no exception tells of it."""
    crashed = any(run.crashed for run in case.c.ranks)
    return case.c.evidence.distributed.returncode != 0 and not crashed and not case.c.finished


def _first(case: Case) -> Iterator[Cause]:
    """In the order in which one leads to the other."""
    if evidence := _uneven_forwards(case.c.ranks):
        yield case.cause("DDP304", f"{evidence}; {_ended(case)}")
    elif rates := rates_between_ranks(case.c.ranks):
        yield case.cause("DDP703", f"{rates}; {_ended(case)}")
    elif evidence := _uneven_pass(case):
        yield case.cause("DDP404", f"{evidence}; {_ended(case)}")
    elif evidence := _other_number_of_passes(case):
        yield case.cause("DDP703", f"{evidence}; {_ended(case)}")
    elif (call := first_mismatch([run.collectives for run in case.c.ranks])) is not None:
        sites = ", ".join(_call(run, call) for run in case.c.ranks)
        yield case.cause("DDP404", f"call {call} of a collective: {sites}; {_ended(case)}")
    elif case.found("DDP404"):
        yield case.cause("DDP404", _ended(case))


def rates_between_ranks(runs: Sequence[RunRecord]) -> str:
    """Where learning rates first differ between ranks, or ""."""
    for number in range(min(len(run.steps) for run in runs)):
        rates = [run.steps[number].learning_rates for run in runs]
        if not all(same_rates(rates[0], each) for each in rates):
            shown = " / ".join(",".join(f"{rate:.6g}" for rate in each) for each in rates)
            return f"the ranks' learning rates differ from step {number} on ({shown})"
    return ""


def _uneven_forwards(runs: Sequence[RunRecord]) -> str:
    """Forwards through a wrapper that broadcasts buffers, outside of training, by steps taken."""
    counts = [Counter(each.steps for each in _broadcasting(run)) for run in runs]
    for steps in sorted(set().union(*counts)):
        found = [count[steps] for count in counts]
        if len(set(found)) > 1:
            shown = " / ".join(map(str, found))
            return f"after {steps} steps the ranks evaluate {shown} batches through the wrapper"
    return ""


def _broadcasting(run: RunRecord) -> Iterator[ForwardRecord]:
    """Forwards that send buffers, without gradients or with an output that no backward followed.

    A wrapper's first forward does, and each that follows one with gradients: without gradients,
    only the first of an evaluation (measured in tests/facts_of_torch).
    """
    told = [event for event in run.events if isinstance(event, (ForwardRecord, Backward, Fetch))]
    graded: dict[int, bool] = {}  # whether the forward before had gradients, by wrapper
    for event, following in zip_longest(told, told[1:]):
        if not isinstance(event, ForwardRecord):
            continue
        sends = event.buffers and graded.get(event.wrapper, True)
        graded[event.wrapper] = event.grad
        if sends and (not event.grad or isinstance(following, Fetch)):
            yield event


def _uneven_pass(case: Case) -> str:
    """A pass of training of which one rank did more than the other, though it was not the last.

    A rank that waits or was ended has done less, too: what counts is that it left the pass.
    """
    for row in zip_longest(*(_training(own) for own in case.c.rank_passes)):
        places = [each for each in row if each is not None]
        done = [_backwards(run, each) for run, each in zip(case.c.ranks, row, strict=True) if each]
        left = [
            _left(run, own, each)
            for run, own, each in zip(case.c.ranks, case.c.rank_passes, row, strict=True)
            if each
        ]
        batches = [len(each.fetches) for each in places]
        for rank in range(len(places)):
            if left[rank] and (done[rank] < max(done) or batches[rank] < max(batches)):
                shown = " / ".join(map(str, done))
                return f"in one pass over the data the ranks compute {shown} gradients"
    return ""


def _training(passes: Sequence[LoaderPass]) -> list[LoaderPass]:
    return [each for each in passes if each.training]


def _backwards(run: RunRecord, each: LoaderPass) -> int:
    places = {id(fetch): place for place, fetch in enumerate(run.events)}
    start = places[id(each.fetches[0])]
    end = _end(run, each, places[id(each.fetches[-1])])
    return sum(isinstance(event, Backward) for event in run.events[start:end])


def _end(run: RunRecord, each: LoaderPass, last: int) -> int:
    """Until the next batch of another pass."""
    for place in range(last + 1, len(run.events)):
        event = run.events[place]
        key = getattr(event, "loader", each.loader), getattr(event, "passed", each.passed)
        if key != (each.loader, each.passed):
            return place
    return len(run.events)


def _left(run: RunRecord, own: Sequence[LoaderPass], each: LoaderPass) -> bool:
    """It came to the pass's end, began another, entered a collective of its own, or ended."""
    if each.ended or own[-1] is not each or run.status in ("finished", "stopped"):
        return True
    return bool(run.waiting) and not run.waiting.startswith(("backward", "DistributedDataParallel"))


def _other_number_of_passes(case: Case) -> str:
    counts = [len(_training(own)) for own in case.c.rank_passes]
    if len(set(counts)) > 1 or len({run.status for run in case.c.ranks}) > 1:
        shown = " / ".join(map(str, counts))
        if any(_is_over(run) for run in case.c.ranks):
            return f"the ranks begin {shown} passes over the data: some stop training earlier"
    return ""


def _is_over(run: RunRecord) -> bool:
    """It ended, or waits where the group is left."""
    names = [call.name for call in run.collectives]
    return run.status == "finished" or run.exit_code == 0 or "destroy_process_group" in names


def _call(run: RunRecord, number: int) -> str:
    calls = run.collectives
    if number >= len(calls):
        return f"rank {run.rank} none"
    return f"rank {run.rank} {calls[number].name} at {calls[number].site}"


def _ended(case: Case) -> str:
    """The outcome of the comparison."""
    if case.c.evidence.distributed.hung:
        waits = (f"rank {r.rank} waits in {r.waiting}" for r in case.c.ranks if r.waiting)
        return "the job hangs: " + (", ".join(waits) or "no rank makes progress")
    gone = [run for run in case.c.ranks if only_others_failed(run)]
    if gone:
        return f"rank {gone[0].rank} fails because the others are elsewhere"
    if _aborted(case):
        return f"the job ends with exit code {case.c.evidence.distributed.returncode}"
    counts = " / ".join(str(len(run.steps)) for run in case.c.ranks)
    return f"optimizer steps {counts}" if not case.c.same_steps else ""
