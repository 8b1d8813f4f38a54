"""Which samples a run trained on, and which it only looked at, read from its events."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddpify.verify.recording import (
    Backward,
    EndRecord,
    EventRecord,
    Fetch,
    RunRecord,
    Sample,
    StepTaken,
)

Samples: TypeAlias = "Counter[tuple[int, Sample]]"  # number of the training loader, sample


@dataclass(frozen=True)
class LoaderPass:
    """One pass over a loader; ``ended`` unless it was left early."""

    loader: int
    passed: int
    fetches: tuple[Fetch, ...]
    ended: bool
    training: bool

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(sample for fetch in self.fetches for sample in fetch.samples)


def passes(run: RunRecord) -> tuple[LoaderPass, ...]:
    """All passes, in order of their first batch, or of their end where there was none.

    A Trainer's ends with the last batch that there is: it does not ask for another.

    Telling by is_grad_enabled alone would count a validation loop that opens no_grad in its
    body: a pass trains if a backward runs while it is under way.
    """
    fetches: dict[tuple[int, int], list[int]] = {}
    ends: dict[tuple[int, int], int] = {}
    for place, event in enumerate(run.events):
        if isinstance(event, Fetch):
            fetches.setdefault((event.loader, event.passed), []).append(place)
        elif isinstance(event, EndRecord):
            fetches.setdefault((event.loader, event.passed), [])
            ends[event.loader, event.passed] = place
    backwards = [p for p, event in enumerate(run.events) if isinstance(event, Backward)]
    return tuple(
        (
            _pass(run, places, ends.get(key), backwards)
            if places
            else LoaderPass(*key, (), ended=True, training=False)
        )
        for key, places in fetches.items()
    )


def training_windows(run: RunRecord) -> tuple[Samples, ...]:
    """Per optimizer step the samples fetched for training since the step before.

    One entry more than steps where samples were fetched after the last step.
    """
    training = _training_fetches(run)
    fetches = [event for event in run.events if isinstance(event, Fetch)]
    order = sorted({fetch.loader for fetch in fetches if id(fetch) in training})
    windows: list[Samples] = [Counter()]
    for event in run.events:
        if isinstance(event, StepTaken):
            windows.append(Counter())
        elif isinstance(event, Fetch) and id(event) in training:
            windows[-1].update((order.index(event.loader), sample) for sample in event.samples)
    return tuple(windows if windows[-1] else windows[:-1])


def _training_fetches(run: RunRecord) -> set[int]:
    trained = (each for each in passes(run) if each.training)
    return {id(fetch) for each in trained for fetch in each.fetches if fetch.grad}


def _pass(
    run: RunRecord, places: Sequence[int], end: int | None, backwards: Sequence[int]
) -> LoaderPass:
    events = run.events
    first = events[places[0]]
    assert isinstance(first, Fetch)
    last = _next_fetch(events, places[-1]) if end is None else end
    batches = tuple(event for event in (events[p] for p in places) if isinstance(event, Fetch))
    nearest = bisect(backwards, places[0])
    trained = nearest < len(backwards) and backwards[nearest] < last
    training = trained and any(batch.grad for batch in batches)
    ended = end is not None or bool(run.trainer and batches[-1].last)
    return LoaderPass(first.loader, first.passed, batches, ended, training)


def _next_fetch(events: Sequence[EventRecord], place: int) -> int:
    """A pass that was left early lasts until some loader is asked again."""
    later = (p for p in range(place + 1, len(events)) if isinstance(events[p], Fetch))
    return next(later, len(events))
