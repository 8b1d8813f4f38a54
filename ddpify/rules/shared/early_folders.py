"""Folders that one rank makes, and into which others may write before that."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RANK0, RANK1, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.folders import looked_for, made, within
from ddpify.rules.shared.meetings import overtakes, polls, reads
from ddpify.rules.shared.outputs import Write, caught, checkpoints, files


def early_uses(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(write, making): other ranks may write into a folder before one rank has made it."""
    dirs = [(call, path) for call in run.calls if (path := made(call)) is not None]
    alone = [one for one in dirs if one[0].ranks in (RANK0, RANK1)]
    for write in (*files(run), *checkpoints(run)) if alone else ():
        path, call = write.path, write.call
        if path is None or call.method == "save_pretrained" or caught(call):
            continue
        for making, folder in alone:
            rank = RANK1 if making.ranks == RANK0 else RANK0
            early = making.order < call.order and within(path, folder, rank - 1)
            if not early or _is_there(run, dirs, folder, write, rank):
                continue
            if _is_written_into(run, making, folder, rank):
                continue
            if overtakes(run, making, call) and not excludes(run, making, call):
                yield call, making
                break


def _is_there(
    run: Run, dirs: list[tuple[RankCall, RankValue]], folder: RankValue, write: Write, rank: int
) -> bool:
    """Whether a rank has made the folder for itself, or has seen what is in it, or waits for it."""
    call, path = write.call, write.path
    assert path is not None
    before = [(one, other) for one, other in dirs if one.order < call.order]
    if any(
        (one.ranks & rank or not overtakes(run, one, call)) and within(path, other, rank - 1)
        for one, other in before
    ):
        return True
    found = ((one, p) for one in run.calls if (p := looked_for(one)) and _finds(one, call))
    return any(
        one.order < call.order and one.ranks & rank and within(seen, folder, rank - 1)
        for one, seen in (*reads(run), *found)
    )


def _is_written_into(run: Run, making: RankCall, folder: RankValue, rank: int) -> bool:
    """Whether a rank has put a file into the folder before: a log, without which it had stopped."""
    return any(
        one.call.order < making.order and one.call.ranks & rank and not one.call.conditions
        for one in files(run)
        if one.path is not None and within(one.path, folder, rank - 1) and not caught(one.call)
    )


def _finds(asked: RankCall, call: RankCall) -> bool:
    """Whether a test for a file has said, before a call, that it is there."""
    by = (origin.site for guard in call.guards for origin in guard.test.origins)
    return polls(asked) or asked.site in by
