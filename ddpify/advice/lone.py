"""Launch lines for which one process is enough, or all that can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddpify.advice.arguments import options
from ddpify.advice.cpu import CPU, cpu_flags, device_options
from ddpify.advice.model import BatchSizeOrigin, Start
from ddpify.advice.modes import switches, training_modes
from ddpify.advice.origins import origins
from ddpify.advice.starts import starts
from ddpify.facts.details import loader_arguments
from ddpify.facts.model import Facts
from ddpify.outcome import Note


def lone_starts(facts: Facts, split: bool) -> Iterator[tuple[str, str]]:
    """Where a launcher starts the entry like that, and why; ``split``: so is the batch."""
    sizes = [origin for origin in origins(facts) if origin.options] if split else []
    modes, switched = training_modes(facts), switches(facts)
    flags, devices = cpu_flags(facts), device_options(facts)
    if not (sizes or modes or switched or flags or devices):
        return
    names = {s: option.name for option in options(facts) for s in option.spellings}
    for start in starts(Path(facts.root), facts.entry.path, tuple(names)):
        word = start.first
        if modes and word and not word.startswith("-") and word not in modes:
            yield start.place, f"`{word}` does not train: it needs one process"
        for spelled, value in dict(start.values).items():
            if names[spelled] in flags or (names[spelled] in devices and value == CPU):
                yield start.place, f"`{spelled}` is for the CPU: there may be no GPUs to count"
            if names[spelled] in switched and value == "0":
                yield start.place, f"`{spelled} 0` does not train: it needs one process"
        for origin in sizes:
            if _size(origin, start) == "1":
                option = max(origin.options, key=len)
                why = "a batch of one sample stays on one rank"
                yield start.place, f"{why}: for more, give {option} a multiple of them"


def single_batches(facts: Facts) -> Iterator[Note]:
    """Where a batch is one sample unless a launcher says something else: nothing is divided."""
    things = (thing for loader in facts.loaders for thing in loader.things)
    dealt = {thing.born for thing in things if loader_arguments(thing).of_one}
    for origin in origins(facts):
        if origin.size == 1 and origin.site and origin.loader not in dealt:
            told = "the batch size is 1 unless another one is given: a job of several ends at start"
            way = "where gradients are accumulated, `batch_size=1` at the DataLoader gives each one"
            yield Note(origin.site, f"{told}; {way}")


def _size(origin: BatchSizeOrigin, start: Start) -> str | None:
    given = [value for name, value in start.values if name in origin.options]
    return given[-1] if given else str(origin.size)
