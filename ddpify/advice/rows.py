"""The batch before and after, for each way the program is started and number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ddpify.advice import split
from ddpify.advice.model import BatchSizeOrigin, Measured, Row, Start

RANKS = (2, 4, 8)


@dataclass(frozen=True)
class Setup:
    """The circumstances that all rows share.

    ``replicas`` is what DataParallel is told to use (0: all GPUs), None where there is none.
    ``norm`` says whether there is batch norm, ``synced`` whether the ranks share its statistics.
    """

    replicas: int | None
    norm: bool
    synced: bool
    whole: bool  # the batch is split, rather than kept on each rank


def rows(
    setup: Setup,
    origins: tuple[BatchSizeOrigin, ...],
    starts: tuple[Start, ...],
    nproc: int,
    measured: Measured | None,
) -> tuple[Row, ...]:
    """One for each global batch and number of GPUs, the same ones once."""
    found: dict[tuple[int | None, int], Row] = {}
    for source, batch, gpus in _batches(origins, starts, measured):
        for ranks in (nproc,) if nproc else (gpus,) if gpus else RANKS:
            row = _row(setup, source, batch, ranks)
            if measured is not None:
                row = with_steps(row, measured)
            found.setdefault((batch, ranks), row)
    return tuple(found.values())


def listed(starts: tuple[Start, ...]) -> int | None:
    """The GPUs that the first launcher lists that has several."""
    return next((start.gpus for start in starts if start.gpus and start.gpus > 1), None)


def _batches(
    origins: tuple[BatchSizeOrigin, ...], starts: tuple[Start, ...], measured: Measured | None
) -> Iterator[tuple[str, int | None, int | None]]:
    """Where a batch size comes from, the size, and the GPUs: what is certain comes first."""
    gpus = listed(starts)
    if measured is not None:
        yield "measured", measured.batch_size or measured.batch, gpus
        return
    for origin in origins:
        passing = [start for start in starts if _given(origin, start)]
        for start in passing:
            value = _given(origin, start)[-1]
            yield start.place, int(value) if value and value.isdigit() else None, _several(start)
        others = [start for start in starts if start not in passing]
        for start in others:
            if _several(start):
                yield start.place, origin.size, _several(start)
        if not starts or (others and not gpus):
            source = "the default" if origin.options else str(origin.site or origin.loader)
            yield source, origin.size, None


def _several(start: Start) -> int | None:
    return start.gpus if start.gpus and start.gpus > 1 else None


def _given(origin: BatchSizeOrigin, start: Start) -> list[str | None]:
    return [value for name, value in start.values if name in origin.options]


def _row(setup: Setup, source: str, batch: int | None, ranks: int) -> Row:
    if not batch:
        return Row(source, ranks, None)
    before: tuple[int, ...] = (batch,)
    if setup.replicas is not None:
        before = split.chunks(batch, setup.replicas or ranks)
    after = split.per_rank(batch, ranks) if setup.whole else batch
    return Row(
        source,
        ranks,
        batch,
        before,
        after,
        split.nearest(batch, ranks) if setup.whole else (),
        after * ranks if after else None,
        before if setup.norm else None,
        _norm(setup, after, ranks),
    )


def _norm(setup: Setup, after: int | None, ranks: int) -> int | None:
    if not setup.norm or not after:
        return None
    return after * ranks if setup.synced else after


def with_steps(row: Row, measured: Measured) -> Row:
    """The optimizer's batches per epoch, where the length of the data set is known."""
    samples, drop = measured.samples, measured.drop_last
    if not samples or not row.batch:
        return row
    after = split.rank_steps(samples, row.after, row.ranks, drop) if row.after else None
    return replace(row, steps_before=split.steps(samples, row.batch, drop), steps_after=after)
