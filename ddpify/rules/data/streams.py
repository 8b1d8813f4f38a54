"""Loaders over streams of samples, which take no sampler, and streams that become lists of them."""

from __future__ import annotations

from ddpify.facts import torchtext
from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.model import Loader
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Thing, Value

# Data pipes, which have no length; DataLoader itself deals torchtext's where there is a group.
PIPES = "torchtext.datasets."
_STREAMS = (PIPES, "torchdata.datapipes.iter.", "webdataset.")
_LISTED = (
    "make a data set of it first, with `to_map_style_dataset(…)` of torchtext.data.functional,"
    " then run again"
)


def is_stream(value: Value | None) -> bool:
    """Whether a data set is a stream, whose list has the same samples in the same order."""
    things = value.things if value is not None else ()
    return bool(things) and all(torchtext.is_stream(thing) for thing in things)


def becomes_list(loader: Loader) -> bool:
    """Whether a loader goes over streams, and the same way over lists of what they give."""
    return all(is_stream(loader_arguments(t).dataset) and not _why(t) for t in loader.things)


def over_pipes(loader: Loader) -> bool:
    """Whether DataLoader would deal the samples to the ranks by itself."""
    return any(stream_of(thing).startswith(PIPES) for thing in loader.things)


def stream_of(loader: Thing) -> str:
    """The name of the stream of samples that a loader goes over, if it is one."""
    dataset = loader_arguments(loader).dataset
    things = dataset.things if dataset is not None else ()
    return next((t.name for t in things if t.name.startswith(_STREAMS)), "")


def why_not(loader: Loader) -> str:
    """Why a loader over a stream takes no sampler, "" where it does or goes over none."""
    for thing in loader.things:
        dataset = loader_arguments(thing).dataset
        if dataset is not None and any(_iterable(t) for t in dataset.things):
            return "an IterableDataset takes no sampler: shard it by rank and worker in __iter__"
        stream = stream_of(thing)
        if stream and not becomes_list(loader):
            by_hand = "let it give each rank its own ones, by rank and worker"
            instead = _LISTED if stream.startswith(PIPES) else by_hand
            why = f" and {_why(thing)}" if is_stream(dataset) else ""
            return f"`{stream}` gives a stream of samples, which takes no sampler{why}: {instead}"
    return ""


def _why(loader: Thing) -> str:
    """Why batches of a list would not be those of the stream."""
    call = call_that_made(loader)
    size = call.arg(1, "batch_size") if call is not None else None
    if call is None or call.star or call.arg_site(0, "dataset") is None:
        return "the loader over it is given what is not followed"
    if size is not None and size.known and size.const is None:
        return "is not put into batches"
    if _given(call.arg(2, "shuffle")):
        return "is shuffled in its own way"
    return "is dealt to workers" if _given(call.arg(5, "num_workers")) else ""


def _given(value: Value | None) -> bool:
    return value is not None and not (value.known and not value.const)


def _iterable(thing: Thing) -> bool:
    bases = thing.ref.external_bases() if isinstance(thing.ref, ClassInfo) else ()
    return any(base.endswith("IterableDataset") for base in bases)
