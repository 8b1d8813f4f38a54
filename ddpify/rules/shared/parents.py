"""What the one process does that starts the others, before and after it does so."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run

SPAWN: Final = "torch.multiprocessing.spawn"
# Other calls that start processes: what they run, and where it is among the arguments.
_ALONE: Final = ("torch.multiprocessing.Process", "multiprocessing.Process")
_STARTS: Final = {
    "torch.multiprocessing.start_processes": (0, "fn"),
    **dict.fromkeys(_ALONE, (1, "target")),
}


def in_parent(run: Run, call: RankCall | Store) -> bool:
    """Whether a call happens in the one process that starts the others."""
    spawns = [one for one in run.named(SPAWN)]
    if any(spawn.node is one.node for spawn in spawns for one in call.stack):
        return False
    begun = run.once(_begun)
    if not (spawns or begun or run.once(_is_one_rank_s)):
        return False
    return not any(_is_begun(one, thing) for one in call.stack for thing in begun)


def _is_begun(call: RankCall, given: RankThing) -> bool:
    """Whether a call runs what is given to the other processes: of an object of another class, the
    method of both is this process's own."""
    if call.target is not given.info:
        return False
    owner = given.receiver.cls if given.receiver is not None else None
    own = {thing.cls for thing in call.receiver.things} if call.receiver is not None else set()
    return owner is None or not own or None in own or owner in own


def _is_one_rank_s(run: Run) -> bool:
    """Whether this process starts the others, which go another way, and joins them by a number that
    is written there: ``init_process_group("nccl", rank=0, …)``."""
    numbers = (call.arg(4, "rank") for call in run.openings)
    known = any(type(one.constant) is int for one in numbers if one is not None)
    return known and any(run.named(*_STARTS))


def _begun(run: Run) -> tuple[RankThing, ...]:
    """The functions that open the session in processes that are started: the first process may
    run them as well."""
    way = run.session.stack if run.session is not None else ()
    entered = {one.target for one in way if one.target is not None}
    given = (call.arg(*_STARTS[call.name]) for call in run.named(*_STARTS))
    held = (thing for value in given if value is not None for thing in value.things)
    return tuple(one for one in held if one.kind == "function" and one.info in entered)


def is_on_its_own(run: Run, call: RankCall) -> bool:
    """Whether a call is made in a process that ``Process`` started: when that ends, by an error or
    not, nobody ends the others."""
    entered = {one.function for one in call.way if one.function is not None}
    given = (one.arg(1, "target") for one in run.named(*_ALONE))
    begun = {thing.info for value in given if value is not None for thing in value.things}
    own = (one for one in entered if one.name == "run" and one.owner is not None)
    return not begun.isdisjoint(entered) or any(o.owner and o.owner.inherits(*_ALONE) for o in own)
