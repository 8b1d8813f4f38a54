"""Files of which each rank writes its own, and which one rank puts together before that is done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from ddpify.ranks.model import RANK0, RANK1, RankCall, RankLoop, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.sizes import is_world_size
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.folders import listed, spelled
from ddpify.rules.shared.meetings import overtakes, polls, reads, waited_for
from ddpify.rules.shared.outputs import caught, checkpoints, files

_PICKS = frozenset({"startswith", "endswith", "fnmatch", "filter"})
_HOLE = re.compile(r"<element@[^<>]*>")
_UNKNOWN = re.compile(r"<[^<>]*>")


def early_parts(run: Run) -> Iterator[tuple[RankCall, RankCall, bool]]:
    """(look, write, named): a rank may look for the files of the others before they are written;
    whether it asks for these, and not for all that is in a folder."""
    written = [
        (write.call, write.path)
        for write in (*files(run), *checkpoints(run))
        if write.call.everywhere and write.path is not None and write.path.by_rank
    ]
    for call, pattern, deep in _looks(run) if written else ():
        early = [
            write
            for write, path in written
            if write.order < call.order and _is_early(run, write, path, call)
            if _is_found(path, pattern, call, deep)
        ]
        if early:
            yield call, early[-1], not deep


def _looks(run: Run) -> Iterator[tuple[RankCall, RankValue, bool]]:
    """What lists files, or reads one of each rank; whether it takes all that is in a folder."""
    for call in run.calls:
        pattern = listed(call)
        if pattern is None or not _is_told(pattern) or polls(call) or caught(call):
            continue
        if not _picks_own(run, call):
            yield call, pattern, "glob" not in call.method
    for call, path in reads(run):
        around = (one for one in run.comprehended if call.site.within(one.site))
        if any(map(_is_of_ranks, (*call.loops, *around))):
            yield call, path, False


def _picks_own(run: Run, look: RankCall) -> bool:
    """``if name.startswith(f"rank{rank}-")``: of all that is there a rank takes what is its own."""
    asked = (one for one in run.calls if one.method in _PICKS and one.function is look.function)
    return any(
        any(value.by_rank for value in one.args)
        and any(thing.call is look for value in one.inputs for thing in value.sources())
        for one in asked
    )


def _is_told(path: RankValue) -> bool:
    """Whether it is known where the rank stands in a path: not in what ``fetch(rank)`` gives."""
    held, said = (thing for thing in path.sources() if thing.call is not None), spelled(path, 0)
    unknown = (one.call for one in held if f"<{one.key}>" in said)
    return not any(value.by_rank for call in unknown if call for value in call.inputs)


def _is_of_ranks(loop: RankLoop) -> bool:
    """``for r in range(world_size)``"""
    made = loop.over.made_by("builtins.range") if loop.over is not None else None
    return made is not None and made.call is not None and is_world_size(made.call.args[-1].atoms[0])


def _is_early(run: Run, write: RankCall, path: RankValue, look: RankCall) -> bool:
    """Whether a rank that looks need not have waited for another one that writes."""
    if excludes(run, write, look) or waited_for(run, write, look):
        return False
    pairs = ((RANK0, RANK1), (RANK1, RANK0))
    return any(look.ranks & one and overtakes(run, write, look, other) for one, other in pairs)


def _is_found(path: RankValue, pattern: RankValue, look: RankCall, deep: bool) -> bool:
    """Whether what the other rank writes is among the files that are looked for."""
    one, other = (0, 1) if look.ranks & RANK0 else (1, 0)
    name, asked = spelled(path, other), spelled(pattern, one).rstrip("/")
    if deep:
        asked = f"{asked}/" if asked not in ("", ".") else ""
        return name.startswith(asked) and (look.name == "os.walk" or "/" not in name[len(asked) :])
    if look.method == "glob" and look.receiver is not None and look.args:
        asked = f"{asked}/{spelled(look.args[0], one)}"
    asked = _HOLE.sub("*", asked).replace("[", "[[]")
    level = name.count("/") == asked.count("/")  # where `*` stands for one folder's names
    return (
        level
        and "*" in asked
        and fnmatchcase(_UNKNOWN.sub(_plain, name), _UNKNOWN.sub(_plain, asked))
    )


def _plain(found: re.Match[str]) -> str:
    """What is not known of a path, without what a pattern would take for its own."""
    return re.sub(r"[*?\[\]]", "_", found.group())
