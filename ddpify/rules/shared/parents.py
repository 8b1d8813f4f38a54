"""What the one process does that starts the others, before and after it does so."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.events import Store
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run

SPAWN: Final = "torch.multiprocessing.spawn"
# Other calls that start processes: what they run, and where it is among the arguments.
_STARTS: Final = {
    "torch.multiprocessing.start_processes": (0, "fn"),
    "torch.multiprocessing.Process": (1, "target"),
    "multiprocessing.Process": (1, "target"),
}


def in_parent(run: Run, call: RankCall | Store) -> bool:
    """Whether a call happens in the one process that starts the others."""
    spawns = [one for one in run.named(SPAWN)]
    if any(spawn.node is one.node for spawn in spawns for one in call.stack):
        return False
    begun = run.once(_begun)
    return bool(spawns or begun) and not any(one.target in begun for one in call.stack)


def _begun(run: Run) -> frozenset[FunctionDefinition]:
    """The functions that open the session in processes that are started: the first process may
    run them as well."""
    way = run.session.stack if run.session is not None else ()
    entered = {one.target for one in way if one.target is not None}
    given = (call.arg(*_STARTS[call.name]) for call in run.named(*_STARTS))
    return frozenset(entered & {info for value in given for info in _functions(value)})


def _functions(value: RankValue | None) -> set[FunctionDefinition]:
    things = value.things if value is not None else ()
    return {thing.info for thing in things if thing.kind == "function"}
