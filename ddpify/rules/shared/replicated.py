"""What might keep the parameters of a model alike on all ranks, other than averaged gradients."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.wrapped import parameters_of

# What is given a model and leaves it as it is.
_LEAVES: Final = ("torch.nn.", "torch.optim.", "torch.compile", "torch.save", "builtins.")
_SUMS: Final = frozenset({"all_reduce", "reduce", "barrier"})


def handed_on(run: Run, models: Set[RankThing]) -> bool:
    """Whether a library is given such a model, to do what is not read: ``fully_shard(model)``."""
    for call in run.calls:
        made = call.result.things if call.result is not None else ()
        own = call.target is not None or any(thing.kind == "instance" for thing in made)
        if own or call.name.startswith(_LEAVES):
            continue
        if any(thing in models for value in call.given for thing in value.things):
            return True
    return False


def parameters_sent(run: Run, step: RankCall) -> bool:
    """Whether ranks may send each other parameters in the rounds in which they step."""
    for call in run.calls:
        if collective(call) is None or not set(call.loops) & set(step.loops):
            continue
        values = (value for value in call.given if not is_gradient(value))
        if call.method not in _SUMS or any(map(parameters_of, values)):
            return True
    return False
