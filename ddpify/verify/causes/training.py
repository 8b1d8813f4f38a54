"""Right samples, and yet another training: weights, learning rates, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddpify.verify import distance
from ddpify.verify.causes.base import Case
from ddpify.verify.causes.desync import line_search, rates_between_ranks
from ddpify.verify.checks.base import numbered, some
from ddpify.verify.checks.comparison import first_above
from ddpify.verify.checks.pairs import Worst
from ddpify.verify.recording import Backward, ForwardRecord, Loaded, RunRecord, StepTaken
from ddpify.verify.verdict import Cause

_JUMP = 0.05  # a loss or gradient off by more has another term, by less another weight


def training(case: Case) -> Iterator[Cause]:
    """Where samples are wrong everything else follows from them."""
    c = case.c
    if not c.evidence.reference.finished or not c.common_steps or line_search(case):
        return
    if c.ranks_start_apart:
        yield _initial(case)
    elif rates := rates_between_ranks(c.ranks):
        yield case.cause("DDP703", rates)
    elif c.ranks_part is not None:
        yield _drifting(case)
    elif c.rates_part is not None and c.wrong_window is None:
        yield case.cause("DDP203", _rates(case))
    elif c.divergence is not None and c.wrong_window is None and not c.contents.wrong:
        yield from _off(case)


def _initial(case: Case) -> Cause:
    """Weights made from each rank's own stream, or read by one rank."""
    names = f"before the first step {some(case.c.ranks_start_apart)} differ between ranks"
    if not _wrapped(case):
        return case.cause("DDP301", f"{names}; no wrapper was called")
    loads = [
        sum(isinstance(event, Loaded) and event.steps == 0 for event in run.events)
        for run in case.c.ranks
    ]
    if len(set(loads)) > 1:
        times = " / ".join(map(str, loads))
        return case.cause("DDP603", f"{names}; load_state_dict() was called {times} times")
    states = [run.steps[0].random for run in case.c.ranks]
    if any(state != states[0] for state in states):
        return case.cause("DDP111", f"{names}, and so do their random streams")
    return case.cause("DDP603", f"{names}, though their random streams are the same")


def _drifting(case: Case) -> Cause:
    """Gradients that are not averaged: of some parameters, or after some backwards."""
    assert case.c.ranks_part is not None
    step, names = case.c.ranks_part
    run = case.c.ranks[0]
    all_names = [p.name for p in run.optimizers[run.steps[step].optimizer].parameters]
    outside = [name for name in names if name not in run.wrapped]
    where = f"after step {step} {some(names)} differ between ranks"
    if not _wrapped(case):
        return case.cause("DDP301", f"{where}; no wrapper was made")
    if _forwards(run) and (len(outside) == len(names) or len(names) < len(all_names)):
        which = "outside of every wrapper" if outside else "though other parameters agree"
        return case.cause("DDP301", f"{where}, {which}")
    rule = "DDP405" if _second_backward(run, step) else "DDP403"
    if case.found("DDP403") != case.found("DDP405"):
        rule = case.preferred("DDP403", "DDP405")
    return case.cause(rule, f"{where}: {_armed(run)}")


def _wrapped(case: Case) -> bool:
    return any(run.wrapped for run in case.c.ranks)


def _forwards(run: RunRecord) -> int:
    return sum(isinstance(event, ForwardRecord) and event.sync for event in run.events)


def _second_backward(run: RunRecord, step: int) -> bool:
    """Before ``step`` a backward follows another one, and no forward armed it.

    Where wrapped forwards are missing it was the wrapper that was passed by; with as many of
    them as backwards the order is wrong.
    """
    window: list[str] = []
    for event in run.events:
        if isinstance(event, ForwardRecord) and event.sync:
            window.append("forward")
        elif isinstance(event, Backward):
            window.append("backward")
        elif isinstance(event, StepTaken) and event.number >= step:
            break
    repeated = ("backward", "backward") in pairwise(window)
    own = _since_last_step(run, step)
    several = own.count("backward") > 1 and "forward" in own
    return several or (repeated and window.count("forward") >= window.count("backward"))


def _since_last_step(run: RunRecord, step: int) -> list[str]:
    found: list[str] = []
    for event in run.events:
        if isinstance(event, StepTaken):
            if event.number >= step:
                return found
            found = []
        elif isinstance(event, ForwardRecord) and event.sync:
            found.append("forward")
        elif isinstance(event, Backward):
            found.append("backward")
    return found


def _armed(run: RunRecord) -> str:
    backwards = sum(isinstance(event, Backward) for event in run.events)
    forwards = numbered(_forwards(run), "forward")
    return f"{forwards} through the wrapper, {numbered(backwards, 'backward')}"


def _rates(case: Case) -> str:
    assert case.c.rates_part is not None
    step, rank = case.c.rates_part
    rates = case.c.one.steps[step].learning_rates, case.c.ranks[rank].steps[step].learning_rates
    shown = " and ".join(",".join(f"{rate:.6g}" for rate in each) for each in rates)
    return f"from step {step} on every rank has another learning rate than one process: {shown}"


def _off(case: Case) -> Iterator[Cause]:
    """All ranks agree on a gradient that is not that of one process."""
    c = case.c
    first = first_above(c.gradients, c.tolerance)
    if first is None or not case.failed("gradients"):
        return
    if c.gradient_factor is not None:
        times = f"{c.gradient_factor:.6g} times that of one process"
        text = f"from step {first.step} on the gradient is {times}"
        yield case.cause("DDP401", text)
    elif first_above(c.initial, c.tolerance) is None:
        yield _another_loss(case, first)


def _another_loss(case: Case, first: Worst) -> Cause:
    """From the start: a mean over other counts, or terms that couple samples. Later: a number
    that was carried over, or a branch."""
    step = first.step
    one, mean, ranks = _losses(case, step)
    apart = max(first.difference, distance.ratio(abs(mean - one), max(abs(one), abs(mean))))
    evidence = (
        f"in step {step} the loss is {one:.6g} in one process, {' / '.join(ranks)} on the ranks"
    )
    if step == 0 and not any(each.training for each in case.c.passes):
        how = "no DataLoader shares out the batches, and theirs do not make up the original's"
        return case.cause("DDP202", f"{evidence}: {how}")
    if step > 0:
        rule = "DDP404" if apart > _JUMP else "DDP701"
        return case.cause(
            case.preferred(rule, "DDP404", "DDP703", "DDP406", "DDP401"),
            f"{evidence}; until then it agrees",
        )
    low, high = min(map(float, ranks)), max(map(float, ranks))
    inside = low - 1e-9 * abs(low) <= one <= high + 1e-9 * abs(high)
    rules = ("DDP401", "DDP406") if inside else ("DDP406", "DDP401")
    reading = (
        "it lies between theirs, as a mean over counts that differ between ranks does"
        if inside
        else "no mean of theirs gives it: its terms couple samples of the whole batch"
    )
    return case.cause(case.preferred(*rules), f"{evidence}: {reading}")


def _losses(case: Case, step: int) -> tuple[float, float, list[str]]:
    one = sum(case.c.one.steps[step].losses)
    ranks = [sum(run.steps[step].losses) for run in case.c.ranks]
    return one, sum(ranks) / len(ranks), [f"{loss:.9g}" for loss in ranks]
