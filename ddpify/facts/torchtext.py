"""What torchtext makes: iterators, and batches that are objects with tensors in their fields."""

from __future__ import annotations

import re

from ddpify.facts.values import Kind, Thing, Value

BATCH = "torchtext.data.Batch"
_ITERATOR = re.compile(r"torchtext(\.legacy)?\.data\.\w*Iterator\Z")
_SPLITS = ".splits"


def makes_batches(thing: Thing) -> bool:
    """Whether something is an iterator: each pass over it makes other batches, all new."""
    return thing.kind is Kind.UNKNOWN and _ITERATOR.match(thing.name) is not None


def one_of_several(thing: Thing) -> Thing | None:
    """One of the iterators that ``BucketIterator.splits()`` makes, None of anything else."""
    one = Thing(Kind.UNKNOWN, thing.born, thing.name.removesuffix(_SPLITS))
    return one if thing.name.endswith(_SPLITS) and makes_batches(one) else None


def is_batch(value: Value | None) -> bool:
    """Whether a value is a batch, and nothing else."""
    things = value.things if value is not None else ()
    return bool(things) and all(t.kind is Kind.UNKNOWN and t.name == BATCH for t in things)
