"""Batch sizes that cannot be split over the ranks, for a command line that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpify.advice.arguments import options
from ddpify.advice.model import BatchSizeOrigin
from ddpify.advice.origins import SPLIT, origins
from ddpify.advice.split import nearest, per_rank
from ddpify.advice.starts import asked
from ddpify.facts.model import Facts
from ddpify.outcome import Outcome


def undivided(
    outcome: Outcome, facts: Facts, arguments: Sequence[str], ranks: int
) -> Iterator[str]:
    """A sentence for each; only of those that the program itself will refuse to split."""
    for origin in origins(facts):
        size = _size(facts, origin, arguments)
        if size and per_rank(size, ranks) is None and _is_split(outcome, origin):
            sizes = " or ".join(map(str, nearest(size, ranks)))
            where = f" ({max(origin.options, key=len)})" if origin.options else ""
            yield f"batch size {size}{where} cannot be split over {ranks} ranks: use {sizes}"


def _is_split(outcome: Outcome, origin: BatchSizeOrigin) -> bool:
    """In the program as it is, or as it is migrated."""
    written = (
        edit.code
        for finding in outcome.findings
        for edit in finding.fix
        if edit.site.path == origin.loader.path
    )
    return origin.shared_out or any(f"{SPLIT}(" in code for code in written)


def _size(facts: Facts, origin: BatchSizeOrigin, arguments: Sequence[str]) -> int | None:
    """What the arguments say, else the default; None where that is not a number."""
    known = tuple(name for option in options(facts) for name in option.spellings)
    given = [value for name, value in asked(arguments, known).values if name in origin.options]
    if given:
        return int(given[-1]) if given[-1] and given[-1].isdigit() else None
    glued = any(one.startswith(name) for one in arguments for name in origin.options)  # -b33
    return None if glued else origin.size
