"""Batch sizes that cannot be split over the ranks, for a command line that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpify.advice.arguments import PARSES, options
from ddpify.advice.model import BatchSizeOrigin
from ddpify.advice.origins import SPLIT, origins
from ddpify.advice.split import nearest, per_rank
from ddpify.advice.starts import asked
from ddpify.facts.model import Facts
from ddpify.outcome import Outcome


def undivided(
    outcome: Outcome, facts: Facts, arguments: Sequence[str], ranks: int
) -> Iterator[str]:
    """A sentence for each; only where every run of the program would refuse to split.

    What is not sure to be the size that it trains with is left to the ranks, which say the same.
    """
    found = [_sentence(outcome, facts, origin, arguments, ranks) for origin in origins(facts)]
    if all(found):  # else it may train on another loader
        yield from dict.fromkeys(found)


def _sentence(
    outcome: Outcome,
    facts: Facts,
    origin: BatchSizeOrigin,
    arguments: Sequence[str],
    ranks: int,
) -> str:
    """ "" where the loader's size divides, is not known, or is not split."""
    size = _size(facts, origin, arguments)
    if not size or per_rank(size, ranks) is not None or not _is_split(outcome, origin):
        return ""
    sizes = " or ".join(map(str, nearest(size, ranks)))
    place = max(origin.options, key=len, default=str(origin.site))
    return f"batch size {size} ({place}) cannot be split over {ranks} ranks: use {sizes}"


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
    """What is written, or the arguments say; None where that is no number, or may mean another.

    An option's default counts where there are no arguments: a file of settings may be one of them.
    """
    if origin.fixed:
        return origin.size
    option = next((one for one in options(facts) if one.spellings == origin.options), None)
    if option is None or not option.is_int or not _from_command_line(facts):
        return None
    known = tuple(name for one in options(facts) for name in one.spellings)
    given = [value for name, value in asked(arguments, known).values if name in origin.options]
    if given:
        return int(given[-1]) if given[-1] and given[-1].isdigit() else None
    return None if arguments else origin.size


def _from_command_line(facts: Facts) -> bool:
    """Options are not read from a list of the program."""
    calls = facts.named(*PARSES)
    return not any(call.args or "args" in call.kwargs for call in calls)
