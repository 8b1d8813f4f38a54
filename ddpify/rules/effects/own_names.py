"""Names that each process makes up for itself, for files that others look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import ALL, RANK0, RANK1, RankCall, RankValue
from ddpify.ranks.origins import CLOCK, RANDOM, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.words import FILE_TESTS
from ddpify.rules.shared.doubts import in_doubt
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.folders import listed, made, spelled, within
from ddpify.rules.shared.meetings import reads, same_words
from ddpify.rules.shared.outputs import CHECKPOINTS, FILES, Write, caught, checkpoints, files
from ddpify.rules.shared.parents import in_parent
from ddpify.site import Site

_MAKES_NONE: Final = ("os.", "builtins.", "pathlib.", "torch.distributed.", "logging.")

_FOLDERS: Final = ("save_pretrained", "copytree")  # they make the folder themselves

_TIME: Final = re.compile(r"%-?[HIMSfsTXcrR]")
_DAYS: Final = frozenset({"datetime.date.today", "date.today"})


def apart(run: Run) -> Iterator[tuple[Origin, RankCall, RankCall]]:
    """Where a name comes from, what writes under it, and what another rank's name is read for."""
    written = [w for w in (*files(run), *checkpoints(run)) if w.path is not None and named(w.path)]
    if not written:
        return
    told = _told_by_parent(run)
    listings = [(call, path) for call in run.calls if (path := listed(call)) is not None]
    for read, path in (*reads(run), *listings):
        said = named(path)
        for write in written if said else ():
            both = said & named(write.path) if write.path is not None else set()
            both = {origin for origin in both if origin.site not in told}
            if both and write.call.order < read.order and _sought(written, write, read, path):
                yield min(both, key=lambda origin: origin.site), write.call, read
                break


def scattered(run: Run) -> Iterator[tuple[Origin, RankCall]]:
    """Where the name of a folder comes from that each rank makes for its part of a checkpoint."""
    written = [w for w in checkpoints(run) if w.path is not None and w.path.by_rank]
    written = [w for w in written if w.call.ranks == ALL]
    made = [*run.named("os.makedirs", "os.mkdir"), *run.methods("mkdir")] if written else []
    paths = [p for c in made for p in (c.receiver, *c.args[:1]) if p is not None and c.everywhere]
    own = {origin for path in paths if not path.by_rank for origin in named(path)}
    own = {origin for origin in own if origin.site not in _told_by_parent(run)}
    for write in written:
        both = own & named(write.path) if write.path is not None else own
        if both:
            yield min(both, key=lambda origin: origin.site), write.call


def unmade(run: Run) -> Iterator[tuple[Origin, RankCall, RankCall]]:
    """Where the name of a folder comes from that one rank makes for itself, what makes it, and what
    another rank writes into the folder of this name that it has, and that nobody has made."""
    dirs = [(call, path) for call in run.calls if (path := made(call)) is not None]
    alone = [one for one in dirs if one[0].ranks in (RANK0, RANK1) and _by_moment(one[1])]
    for write in (*files(run), *checkpoints(run)) if alone else ():
        path, call = write.path, write.call
        if path is None or call.method in _FOLDERS or caught(call) or in_doubt(run, call):
            continue
        for making, folder in alone:
            rank = RANK1 if making.ranks == RANK0 else RANK0
            both = named(path) & named(folder)
            both = {one for one in both if one.site not in _told_by_parent(run)}
            later = (
                making.order < call.order and call.ranks & rank and within(path, folder, rank - 1)
            )
            if not both or not later or excludes(run, making, call):
                continue
            if not _has_made(run, dirs, write, rank):
                yield min(both, key=lambda origin: origin.site), making, call
                break


def _by_moment(path: RankValue) -> bool:
    """Whether a path is each rank's own; a day is the same on all ranks but at midnight."""
    forms = [
        value.constant
        for thing in path.sources()
        if thing.call is not None and thing.call.method == "strftime"
        for value in thing.call.given
    ]
    forms = [one for one in forms if isinstance(one, str)]
    days = bool(forms) and not any(map(_TIME.search, forms))
    return bool(named(path)) and not days and not any(o.what in _DAYS for o in named(path))


def _has_made(run: Run, dirs: list[tuple[RankCall, RankValue]], write: Write, rank: int) -> bool:
    """Whether a rank has made the folder of a file before, or has given it to what may have."""
    path, before = write.path, write.call.order
    assert path is not None
    if any(one.ranks & rank and within(path, other, rank - 1) for one, other in dirs):
        return True
    given = (
        value
        for one in run.calls
        if one.order < before and one.ranks & rank and not _is_of_project(one)
        if not one.name.startswith(_MAKES_NONE) and one.name not in (*FILES, *CHECKPOINTS)
        for value in one.given
    )
    return any(named(value) and within(path, value, rank - 1) for value in given)


def _is_of_project(call: RankCall) -> bool:
    """Whether what is called is read: a function, or a class whose methods are."""
    made = call.result.things if call.result is not None else ()
    return call.target is not None or any(thing.kind == "instance" for thing in made)


def _told_by_parent(run: Run) -> set[Site]:
    """Where the process that starts the others makes a name up, which is then theirs."""
    calls = {call.site: call for call in reversed(run.calls)}  # the first one of each place
    return {site for site, call in calls.items() if in_parent(run, call)}


def named(path: RankValue) -> set[Origin]:
    """Why a path is each rank's own, if it is not by the number of the rank."""
    return {
        one
        for one in path.all_origins
        if one.kind in (CLOCK, RANDOM) and one.what not in FILE_TESTS
    }


def _sought(written: list[Write], write: Write, read: RankCall, path: RankValue) -> bool:
    """Whether one rank reads what another has written, under its own name for it."""
    assert write.path is not None
    wanted, kept = spelled(path, 0), spelled(write.path, 0)
    if write.call.ranks == RANK0:
        return read.ranks != RANK0 and (wanted == kept or same_words(write.call, read))
    if write.call.ranks != ALL or not write.path.by_rank or path.by_rank:
        return False
    if listed(read) is not None:
        return kept.startswith(wanted.partition("*")[0])
    alone = any(w.path is not None and spelled(w.path, 0) == wanted for w in written)
    return not alone and _folder(wanted) == _folder(kept) != ""


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
