"""What each rank did, counted: the tables of the reports."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from ddpify.verify.checks.passes import passes
from ddpify.verify.recording import CollectiveRecord, ForwardRecord, Job, RunRecord, Sample
from ddpify.verify.verdict import Verification

MADE_ALL_REDUCE = "gradient all-reduce (DDP backward)"
LEFT_ALL_REDUCE = "backward without all-reduce (no_sync)"
_Place: TypeAlias = tuple[str, str, int, bool]  # name, site, ranks, whether it is FSDP's


@dataclass(frozen=True)
class RankRow:
    """One process. ``rank`` is None for the reference; samples count as often as they were fetched,
    ``distinct`` counts different training samples; ``memory`` is the peak in bytes."""

    rank: int | None
    run: RunRecord
    training: int
    distinct: int
    evaluation: int
    steps: int
    files: int
    lines: int
    memory: int
    collectives: dict[str, int]

    @property
    def name(self) -> str:
        """As a column or a row is called."""
        return "1 process" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True)
class FileRow:
    """``writes`` are the writes of each process: the reference's, then each rank's."""

    path: str
    operations: tuple[str, ...]
    writes: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that wrote it."""
        return tuple(rank for rank, count in enumerate(self.writes[1:]) if count)


@dataclass(frozen=True)
class CollectiveRow:
    """Calls of one collective from one line: of each rank, and bytes of rank 0's largest."""

    name: str
    site: str
    counts: tuple[int, ...]
    steps: tuple[int, ...]  # optimizer steps of each rank
    size: int
    ranks: int = 0  # of its group, 0 if that is all of them
    fsdp: bool = False  # FSDP's own

    @property
    def equal(self) -> bool:
        """Whether all ranks entered it equally often."""
        return len(set(self.counts)) <= 1

    @property
    def per_step(self) -> tuple[float, ...]:
        """Calls for each optimizer step of a rank, 0 where there was no step."""
        pairs = zip(self.counts, self.steps, strict=True)
        return tuple(count / steps if steps else 0.0 for count, steps in pairs)


@dataclass(frozen=True)
class Speed:
    """``step`` is the median seconds of one (the slowest rank's), ``rate`` training samples of
    all ranks per second of such steps; 0 where nothing was measured."""

    step: float
    rate: float
    whole: float
    memory: int


def rank_rows(verification: Verification) -> tuple[RankRow, ...]:
    """The one process, then each rank."""
    one = [_rank_row(None, run) for run in verification.reference.runs[:1]]
    return (*one, *(_rank_row(run.rank, run) for run in verification.distributed.runs))


def file_rows(verification: Verification) -> tuple[FileRow, ...]:
    """Every path that any process changed."""
    runs = (*verification.reference.runs[:1], *verification.distributed.runs)
    counts = [Counter(change.path for change in run.files) for run in runs]
    operations: dict[str, dict[str, None]] = {}
    for run in runs:
        for change in run.files:
            operations.setdefault(change.path, {})[change.operation] = None
    return tuple(
        FileRow(path, tuple(operations[path]), tuple(one[path] for one in counts))
        for path in sorted(operations)
    )


def collective_rows(job: Job) -> tuple[CollectiveRow, ...]:
    """Every collective of the ranks, and what DDP does with gradients by itself."""
    steps = tuple(len(run.steps) for run in job.runs)
    calls = [Counter(map(_place, run.collectives)) for run in job.runs]
    sizes = _sizes(job)
    known = dict.fromkeys(place for one in calls for place in one)
    rows = [
        CollectiveRow(
            *place[:2], tuple(one[place] for one in calls), steps, sizes[place], *place[2:]
        )
        for place in known
    ]
    return (*_backwards(job, steps), *rows)


def speed(job: Job) -> Speed:
    """How fast a launch trained."""
    medians = [statistics.median(s.seconds for s in run.steps) for run in job.runs if run.steps]
    step = max(medians, default=0.0)
    steps = max((len(run.steps) for run in job.runs), default=0)
    samples = sum(len(_training(run)) for run in job.runs)
    memory = max(map(_peak, job.runs), default=0)
    return Speed(step, samples / (steps * step) if steps * step else 0.0, job.seconds, memory)


def _peak(run: RunRecord) -> int:
    return max((step.memory for step in run.steps), default=0)


def _rank_row(rank: int | None, run: RunRecord) -> RankRow:
    training = _training(run)
    return RankRow(
        rank=rank,
        run=run,
        training=len(training),
        distinct=len(set(training)),
        evaluation=sum(len(one.samples) for one in passes(run) if not one.training),
        steps=len(run.steps),
        files=len({change.path for change in run.files}),
        lines=len(run.stdout.splitlines()),
        memory=_peak(run),
        collectives=dict(Counter(one.name for one in run.collectives)),
    )


def _training(run: RunRecord) -> list[tuple[int, Sample]]:
    """(loader, sample) of every sample that was fetched in a pass that trains."""
    return [(one.loader, sample) for one in passes(run) if one.training for sample in one.samples]


def _place(one: CollectiveRecord) -> _Place:
    return one.name, one.site, one.ranks, one.fsdp


def _sizes(job: Job) -> dict[_Place, int]:
    sizes: dict[_Place, int] = {}
    for run in job.runs:
        for one in run.collectives:
            sizes[_place(one)] = max(one.size, sizes.get(_place(one), 0))
    return sizes


def _backwards(job: Job, steps: tuple[int, ...]) -> list[CollectiveRow]:
    rows = []
    for name, sync in ((MADE_ALL_REDUCE, True), (LEFT_ALL_REDUCE, False)):
        counts = tuple(_forwards(run, sync) for run in job.runs)
        rows.append(CollectiveRow(name, "", counts, steps, 0))
    return [row for row in rows if any(row.counts)]


def _forwards(run: RunRecord, sync: bool) -> int:
    forwards = (event for event in run.events if isinstance(event, ForwardRecord))
    return sum(event.grad and event.sync == sync for event in forwards)
