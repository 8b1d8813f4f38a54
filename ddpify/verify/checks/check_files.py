"""Every path is changed by one rank, and the files are those of the original."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpify.verify.checks.base import numbered, result, skipped, some
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.recording import FileChange, RunRecord
from ddpify.verify.verdict import Check

_TITLE = "files written once"
# digits of dates and process ids, and random ids: they differ from run to run
_ID = re.compile(r"(?<![a-z])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}(?![a-z])|\d+")

_OF_A_RANK = r"(?:rank|proc|process|worker|gpu|device|local|node)[\W_]*"


@dataclass(frozen=True)
class Shared:
    """A path that ``rank`` changes though ``first`` did, too."""

    path: str
    first: int
    rank: int
    change: FileChange


def files_once(c: Comparison) -> Check:
    name = "files-once"
    wrong = shared(c.ranks)
    missing, extra = left(c) if c.finished else ((), ())
    details = [
        f"{each.path} is changed by rank {each.first} and by rank {each.rank} "
        f"({each.change.operation} after {numbered(each.change.steps, 'step')})"
        for each in _each_path(wrong)
    ]
    details += [f"missing: {some(missing)}"] if missing else []
    details += [f"extra: {some(extra)}"] if extra else []
    paths = {change.path for run in c.ranks for change in run.files}
    if not paths and not c.evidence.left_by_reference:
        return skipped(name, _TITLE, "nothing is written")
    several = len({each.path for each in wrong})
    measured = f"{several} of {numbered(len(paths), 'path')} changed by several ranks"
    if missing or extra:
        measured += f", {len(missing)} missing, {len(extra)} extra"
    return result(name, _TITLE, bool(details), measured, details)


def shared(runs: Sequence[RunRecord]) -> tuple[Shared, ...]:
    """Folders that were there already do not count: who comes first is a matter of time."""
    writers: dict[str, int] = {}
    found = []
    for run in runs:
        for change in run.files:
            if change.operation == "os.mkdir" and change.existed:
                continue
            first = writers.setdefault(change.path, run.rank)
            if first != run.rank:
                found.append(Shared(change.path, first, run.rank, change))
    return tuple(found)


def left(c: Comparison) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(missing, extra) paths of the ranks' copy; a name may differ in its digits.

    A file of each rank's own, named by the rank, counts as one.
    """
    one, many = c.evidence.left_by_reference, c.evidence.left_by_distributed
    own = set(per_rank_paths(c.ranks))
    many = tuple(path for path in many if path not in own)
    if sorted(one) == sorted(many):
        return (), ()
    return tuple(_beyond(one, many)), tuple(_beyond(many, one))


def per_rank_paths(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Paths of ranks above 0 that are rank 0's but for the rank's number in the name."""
    first = {change.path for change in runs[0].files}
    for run in runs[1:]:
        number = re.compile(rf"({_OF_A_RANK}){run.rank}(?!\d)", re.IGNORECASE)
        yield from (c.path for c in run.files if number.sub(r"\g<1>0", c.path) in first - {c.path})


def without_ids(path: str) -> str:
    """The path with one sign for each number or random id."""
    return _ID.sub("#", path)


def _beyond(paths: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    rest = [path for path in paths if path not in others]
    spare = Counter(without_ids(path) for path in others if path not in paths)
    for path in rest:
        if spare[without_ids(path)]:
            spare[without_ids(path)] -= 1
        else:
            yield path


def _each_path(wrong: Sequence[Shared]) -> list[Shared]:
    firsts = {each.path: each for each in reversed(wrong)}
    return [firsts[path] for path in sorted(firsts)][:5]
