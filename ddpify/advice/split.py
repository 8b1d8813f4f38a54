"""The arithmetic of sharing out a batch: pure functions, each with its source in docs/plan.md."""

from __future__ import annotations


def chunks(size: int, parts: int) -> tuple[int, ...]:
    """What DataParallel gives each GPU: ``torch.chunk``, which may give some GPUs nothing."""
    each = -(-size // parts)
    return tuple(min(each, size - start) for start in range(0, size, each))


def per_rank(size: int, ranks: int) -> int | None:
    """The share of each rank; None where the batch does not divide and the runtime refuses it."""
    return None if size % ranks else size // ranks


def nearest(size: int, ranks: int) -> tuple[int, ...]:
    """The sizes that divide, as the runtime's ``per_rank_batch_size`` names them."""
    below = size - size % ranks
    if below == size:
        return ()
    return (below, below + ranks) if below else (ranks,)


def steps(samples: int, batch: int, drop_last: bool) -> int:
    """Batches per epoch of a ``DataLoader`` in one process."""
    return samples // batch if drop_last else -(-samples // batch)


def rank_steps(samples: int, batch: int, ranks: int, drop_last: bool) -> int:
    """The same on each of ``ranks``, behind a ``DistributedSampler``; ``batch`` is each rank's.

    The sampler pads to a multiple of the ranks, or drops the rest with ``drop_last``. Where
    ``batch * ranks`` is the batch of one process, so is the number of steps.
    """
    share = samples // ranks if drop_last else -(-samples // ranks)
    return steps(share, batch, drop_last)


def repeated(samples: int, ranks: int, drop_last: bool) -> int:
    """Samples that the sampler takes twice in an epoch."""
    return 0 if drop_last else -samples % ranks
