"""Names that a clock made: `outputs/run_20261121_161753` of one run is that of the other.

Such folders and files of the distributed run get the names of the original's, in its scratch copy
and in what it printed, so that what is in them can be compared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ddpify.verify.recording import EventRecord, FileChange, Job, RunRecord

_CLOCK = re.compile(
    r"(?:19|20)\d\d[-_.]?\d\d[-_.]?\d\d|\d\d?[-_.:]\d\d[-_.:]\d\d|(?<!\d)1[6-9]\d{8}"
)
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Renamed:
    """A file or folder: its path as the ranks made it, and its name in the original's run."""

    path: str
    name: str

    def __call__(self, path: str) -> str:
        """Where ``path`` is now."""
        if path != self.path and not path.startswith(f"{self.path}/"):
            return path
        return PurePosixPath(self.path).with_name(self.name).as_posix() + path[len(self.path) :]


def same_names(folder: Path, reference: Sequence[str], ranks: Sequence[str]) -> tuple[Renamed, ...]:
    """Rename in ``folder`` what the ranks left there under another time; parents first."""
    done: list[Renamed] = []
    while found := next(_pairs(reference, ranks), None):
        os.rename(folder / found.path, folder / found(found.path))
        ranks = [found(path) for path in ranks]
        done.append(found)
    return tuple(done)


def renamed(job: Job, names: Sequence[Renamed]) -> Job:
    """The job as if it had used the new names."""
    return replace(job, runs=tuple(_run(run, names) for run in job.runs)) if names else job


def in_text(text: str, names: Sequence[Renamed]) -> str:
    """A printed or written text with the new names in it."""
    for each in names:
        text = text.replace(PurePosixPath(each.path).name, each.name)
    return text


def _pairs(reference: Sequence[str], ranks: Sequence[str]) -> Iterator[Renamed]:
    """What only one of them has, in the same folder, and alone under that name but for digits."""
    one, many = _prefixes(reference), _prefixes(ranks)
    mine, theirs = _by_form(one - many), _by_form(many - one)
    for form, paths in sorted(theirs.items()):
        twins = mine.get(form, [])
        if len(paths) == len(twins) == 1:
            yield Renamed(paths[0], PurePosixPath(twins[0]).name)


def _by_form(paths: set[str]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for path in map(PurePosixPath, sorted(paths)):
        if _CLOCK.search(path.name):
            form = (path.parent.as_posix(), _DIGITS.sub("0", path.name))
            found.setdefault(form, []).append(path.as_posix())
    return found


def _prefixes(paths: Sequence[str]) -> set[str]:
    """The paths and every folder on the way to them."""
    found = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    return (found | set(paths)) - {"."}


def _run(run: RunRecord, names: Sequence[Renamed]) -> RunRecord:
    stdout, stderr = (in_text(text, names) for text in (run.stdout, run.stderr))
    events = tuple(_moved(event, names) for event in run.events)
    return replace(run, stdout=stdout, stderr=stderr, events=events)


def _moved(event: EventRecord, names: Sequence[Renamed]) -> EventRecord:
    if not isinstance(event, FileChange):
        return event
    for each in names:
        event = replace(event, path=each(event.path))
    return event
