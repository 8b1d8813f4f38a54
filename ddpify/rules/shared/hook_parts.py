"""Which hook of Lightning led to a call, and which values are of this rank's batches only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.hooks import BATCHES, EVALUATION, TRAINING
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.shared.own_gathers import gathers_itself

# What gives the same on all ranks, or waits for them to make it so.
_AGREED: Final = frozenset(
    "compute all_gather all_reduce gather reduce broadcast all_gather_object sync_dist".split()
)


def evaluating(call: RankCall) -> FunctionDefinition | None:
    """The validation or test hook that led to a call."""
    return _hook(call, EVALUATION)


def training(call: RankCall) -> FunctionDefinition | None:
    """The hook of the training loop that led to a call."""
    return _hook(call, TRAINING)


def _hook(call: RankCall, names: Iterable[str]) -> FunctionDefinition | None:
    functions = [*(outer.function for outer in call.stack), call.function]
    return next((f for f in functions if f and f.owner and f.name in names), None)


def batch_names(run: Run) -> frozenset[str]:
    """The parameters of the program's hooks that are batches, or what was made of them."""
    found: set[str] = set()
    for call in run.calls:
        hook = call.function
        if hook is not None and hook.owner is not None and hook.name in BATCHES:
            of_callback = len(hook.parameters) > BATCHES[hook.name] + 3
            first = 3 if of_callback else 1
            found |= {*hook.parameters[first : first + BATCHES[hook.name]]}
    return frozenset(found)


def is_part(run: Run, value: RankValue) -> bool:
    """Whether a value is made of this rank's batches, and by nothing that gathers."""
    names = run.once(batch_names)
    sources = list(value.sources())
    given = any(t.kind == "parameter" and t.name in names for t in sources)
    return given and not any(is_agreed(run, thing) for thing in sources)


def is_agreed(run: Run, thing: RankThing) -> bool:
    """Whether what a thing is part of was made the same on all ranks, by our helpers or others."""
    ours = thing.call is not None and thing.call.module.ours
    agreed = ours or thing.synced or thing.name.rpartition(".")[2] in _AGREED
    return agreed or gathers_itself(run, thing)
