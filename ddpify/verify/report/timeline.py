"""Who was where when: a lane for each rank, and what each of them did last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

from ddpify.verify.recording import (
    Backward,
    EndRecord,
    EventRecord,
    Fetch,
    FileChange,
    Job,
    RunRecord,
    StepTaken,
    WaitRecord,
)

_FINEST = 1500  # of the width: what is shorter, and closer together, is drawn as one
_LAST = 6  # events of each rank that are told
_AIR = 0.06  # of the width, behind the end of a job that hangs: there its ranks wait


@dataclass(frozen=True)
class Stretch:
    """A part of a lane, in percent of its width. ``kind``: start, train, evaluate, wait, stuck."""

    kind: str
    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Lane:
    """``doing``: what the rank was in when the record ends."""

    name: str
    stretches: tuple[Stretch, ...]
    doing: str


@dataclass(frozen=True)
class Moment:
    """Something a rank did: at what second, and whether it never came back from it."""

    seconds: float
    rank: int
    text: str
    stuck: bool = False


@dataclass(frozen=True)
class Timeline:
    """``seconds`` is what the whole width stands for."""

    lanes: tuple[Lane, ...]
    last: tuple[Moment, ...]
    seconds: float


def timeline(job: Job) -> Timeline | None:
    """Of all ranks on one clock, from the first one's begin; None where nothing was recorded."""
    runs = [run for run in job.runs if run.ended]
    if not runs:
        return None
    begin = min(run.began for run in runs)
    end = max(run.began - begin + run.ended for run in runs)
    whole = end * (1 + _AIR) if job.hung else end
    lanes = tuple(_lane(run, run.began - begin, whole) for run in runs)
    last = () if job.finished else tuple(_last(runs, begin))
    return Timeline(lanes, last, whole)


def _lane(run: RunRecord, late: float, whole: float) -> Lane:
    stuck = [wait for wait in run.waits if wait.until is None and not run.over]
    end = whole - late if stuck else run.ended

    def stretch(kind: str, start: float, until: float, text: str) -> Stretch:
        left = 100 * (start + late) / whole
        return Stretch(kind, left, max(100 * (until - start) / whole, 0.1), text)

    phases = [stretch(*one) for one in _phases(run, end)]
    waits = [stretch(*one) for one in _merged(run.waits, whole / _FINEST)]
    waits += [stretch("stuck", one.since, end, f"waits in {_where(one)}") for one in stuck[-1:]]
    doing = f"waits in {run.waiting}" if run.waiting else ""
    return Lane(f"rank {run.rank}", (*phases, *waits), doing)


def _phases(run: RunRecord, end: float) -> Iterator[tuple[str, float, float, str]]:
    """What the batches are for that are fetched, until those of another kind."""
    kind, since = "start", 0.0
    for fetch in (event for event in run.events if isinstance(event, Fetch)):
        found = "train" if fetch.grad else "evaluate"
        if found != kind:
            yield kind, since, fetch.seconds, _phase(kind, since, fetch.seconds)
            kind, since = found, fetch.seconds
    yield kind, since, end, _phase(kind, since, end)


def _phase(kind: str, since: float, until: float) -> str:
    words = {"start": "starts", "train": "trains", "evaluate": "evaluates"}
    return f"{words[kind]}, {since:.2f} to {until:.2f} s"


def _merged(
    waits: tuple[WaitRecord, ...], finest: float
) -> Iterator[tuple[str, float, float, str]]:
    """Those that were left again; thousands of short ones are one stretch."""
    group: list[WaitRecord] = []
    until = 0.0
    for wait in sorted((one for one in waits if one.until is not None), key=lambda one: one.since):
        if group and wait.since - until > finest:
            yield "wait", group[0].since, until, _said(group, until)
            group = []
        group.append(wait)
        until = max(until if len(group) > 1 else 0.0, wait.until or 0.0)
    if group:
        yield "wait", group[0].since, until, _said(group, until)


def _said(group: list[WaitRecord], until: float) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{_where(group[0])}{more}, {group[0].since:.2f} to {until:.2f} s"


def _where(wait: WaitRecord) -> str:
    return f"{wait.name} at {wait.site}" if wait.site else wait.name


def _last(runs: list[RunRecord], begin: float) -> Iterator[Moment]:
    """In the order of the clock: of each rank the last that it did."""
    every = []
    for run in runs:
        own = [(one.seconds, text, False) for one in run.events if (text := told(one))]
        own += [
            (
                one.since,
                f"{_where(one)}{'' if one.until is not None else ', and is still in it'}",
                True,
            )
            for one in run.waits
            if one.until is None or one is run.waits[-1]
        ]
        own += [(run.ended, run.ending, True)] if run.crashed else []
        late = run.began - begin
        for seconds, text, stuck in sorted(own)[-_LAST:]:
            every.append(Moment(seconds + late, run.rank, text, stuck))
    yield from sorted(every, key=lambda one: one.seconds)


@singledispatch
def told(event: EventRecord) -> str:
    """What it was, in a few words; "" for what only programs want to know."""
    return ""


@told.register
def _(event: Fetch) -> str:
    what = "a batch" if event.grad else "a batch to evaluate"
    return f"takes {what} of {len(event.samples)} (loader {event.loader})"


@told.register
def _(event: EndRecord) -> str:
    return f"loader {event.loader} is exhausted"


@told.register
def _(event: Backward) -> str:
    return "backward" if event.loss is None else f"backward of loss {event.loss:.5g}"


@told.register
def _(event: StepTaken) -> str:
    return f"optimizer step {event.number}"


@told.register
def _(event: FileChange) -> str:
    return f"{event.operation} {event.path}"
