"""Launch lines whose batch is one sample, which several ranks cannot share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddpify.advice.arguments import options
from ddpify.advice.model import BatchSizeOrigin, Start
from ddpify.advice.origins import origins
from ddpify.advice.starts import starts
from ddpify.facts.model import Facts


def lone_batches(facts: Facts) -> Iterator[tuple[str, str]]:
    """Where a launcher starts the entry with such a batch, and the option that says its size."""
    found = [origin for origin in origins(facts) if origin.options]
    if not found:
        return
    spelled = tuple(s for option in options(facts) for s in option.spellings)
    for start in starts(Path(facts.root), facts.entry.path, spelled):
        for origin in found:
            if _size(origin, start) == "1":
                yield start.place, max(origin.options, key=len)


def _size(origin: BatchSizeOrigin, start: Start) -> str | None:
    given = [value for name, value in start.values if name in origin.options]
    return given[-1] if given else str(origin.size)
