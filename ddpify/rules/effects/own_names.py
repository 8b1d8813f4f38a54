"""Names that each process makes up for itself, for files that others look for."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import ALL, RANK0, RankCall, RankValue
from ddpify.ranks.origins import CLOCK, RANDOM, Origin
from ddpify.ranks.run import Run
from ddpify.ranks.words import FILE_TESTS
from ddpify.rules.shared.folders import listed, spelled
from ddpify.rules.shared.meetings import reads, same_words
from ddpify.rules.shared.outputs import Write, checkpoints, files
from ddpify.rules.shared.parents import in_parent
from ddpify.site import Site


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
