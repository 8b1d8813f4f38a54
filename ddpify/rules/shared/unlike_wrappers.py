"""Wrappers of one model whose settings, or hooks, are others on other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.values import truth
from ddpify.rules.shared.complaints import Complaint

_UNUSED: Final = "find_unused_parameters"  # the wrapper sends a map of what was used, too
_HOOK: Final = "register_comm_hook"


def unlike(run: Run) -> Iterator[Complaint]:
    """What the wrappers of a run do not agree on."""
    for call in run.named(words.DDP):
        flag = call.kwargs.get(_UNUSED)
        if flag is None or "process_group" in call.kwargs:
            continue
        if {truth(atom) for atom in flag.atoms} == {True, False}:
            yield Complaint(
                call.site,
                f"`{_UNUSED}` of this wrapper is another one on each rank: a hang or a crash",
                f"give all ranks the same `{_UNUSED}`",
            )
    yield from _hooks(run)


def _hooks(run: Run) -> Iterator[Complaint]:
    """A communication hook that is not on all ranks, or another one on each."""
    given: dict[RankThing, list[RankCall]] = {}
    for call in run.methods(_HOOK):
        for thing in call.receiver.things if call.receiver is not None else ():
            given.setdefault(thing, []).append(call)
    for calls in given.values():
        sides = [{n for c in calls for n in _names(c, rank)} for rank in (0, 1)]
        if sides[0] != sides[1]:
            first = next((one for one in calls if one.ranks != ALL), calls[0])
            yield Complaint(
                first.site,
                "the ranks do not reduce their gradients by the same hook: what they send does not"
                " fit together, a crash or wrong numbers",
                "register the same hook on all ranks",
            )


def _names(call: RankCall, rank: int) -> set[str]:
    """The hook that a rank registers here."""
    hook = call.arg(1, "hook")
    if not call.ranks & (1 << rank) or hook is None:
        return set()
    return {thing.name for thing in hook.things_on(rank)}
