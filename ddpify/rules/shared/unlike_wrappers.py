"""Wrappers of one model whose settings, or hooks, are others on other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RANK0, RANK1, RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import differs, truth
from ddpify.rules.shared.complaints import Complaint

_UNUSED: Final = "find_unused_parameters"  # the wrapper sends a map of what was used, too
_OFF: Final = RankValue((False, False))
_HOOK: Final = "register_comm_hook"


def unlike(run: Run) -> Iterator[Complaint]:
    """What the wrappers of a run do not agree on."""
    for call in run.named(words.DDP):
        yield from _flags(call, call)
    alone = [[c for c in run.named(words.DDP) if c.ranks == ranks] for ranks in (RANK0, RANK1)]
    if len(alone[0]) == len(alone[1]) == 1 and _model(alone[0][0]) == _model(alone[1][0]):
        yield from _flags(alone[0][0], alone[1][0])
    yield from _hooks(run)


def _flags(one: RankCall, other: RankCall) -> Iterator[Complaint]:
    """The flag of one call on rank 0, and of the same or of its counterpart on rank 1."""
    if any(call.asked.star or call.star or "process_group" in call.kwargs for call in (one, other)):
        return
    first, second = (call.kwargs.get(_UNUSED, _OFF) for call in (one, other))
    both = RankValue((first.atoms[0], second.atoms[1]), (), frozenset(), second.origins)
    if _differ(both, one is not other):
        yield Complaint(
            other.site,
            f"`{_UNUSED}` of this wrapper is another one on each rank: a hang or a crash",
            f"give all ranks the same `{_UNUSED}`",
        )


def _model(call: RankCall) -> tuple[RankThing, ...]:
    module = call.arg(0, "module")
    return module.things if module is not None else ()


def _differ(flag: RankValue, apart: bool) -> bool:
    """Whether the flags are not the same: ``debug and rank == 0`` is off on one rank for sure, and
    on on the other where it is asked for."""
    known = [truth(atom) for atom in flag.atoms]
    if None not in known:
        return known[0] is not known[1]
    return known != [None, None] and differs(flag) and (apart or flag.by_rank)


def _hooks(run: Run) -> Iterator[Complaint]:
    """A communication hook that is not on all ranks, or another one on each."""
    given: dict[RankThing, list[RankCall]] = {}
    for call in run.methods(_HOOK):
        for thing in call.receiver.things if call.receiver is not None else ():
            if thing.name in words.WRAPPERS:
                given.setdefault(thing, []).append(call)
    for calls in given.values():
        sides = [{n for c in calls for n in _names(c, rank)} for rank in (RANK0, RANK1)]
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
    if not call.ranks & rank or hook is None:
        return set()
    held = {thing.name for thing in hook.things if hook.ranks_of(thing) & rank}
    return held or {f"hook of {call.site}"}
