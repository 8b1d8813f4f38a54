"""Parameters and gradients of a model that are in flight, and what is done with the model."""

from __future__ import annotations

import re
from typing import Final

from ddpify.ranks.inflight import key_of
from ddpify.ranks.model import RankCall, RankThing, RankValue

_PARTS: Final = frozenset({"parameters", "named_parameters"})
_ONE: Final = re.compile(r"element@[^\[\]~]*?(?P<grad>\.grad)?(\.data)?")
_FORWARD: Final = frozenset({"__call__", "forward", "state_dict"})
_CLIPS: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")
Models = frozenset[RankThing]


def models_of(value: RankValue) -> Models:
    """The models one of whose parameters, or of whose gradients, a tensor is itself."""
    if value.things or not _ONE.fullmatch(key_of(value)):
        return frozenset()
    calls = (thing.call for thing in value.sources() if thing.call is not None)
    held = (call.receiver for call in calls if call.method in _PARTS)
    return frozenset(thing for one in held if one is not None for thing in one.things)


def uses(call: RankCall, value: RankValue, models: Models) -> bool:
    """Whether a call reads or changes the parameters, or the gradients, of one of the models:
    ``optimizer.step()``, ``model.zero_grad()``, ``model(x)``."""
    found = _ONE.fullmatch(key_of(value))
    own = call.receiver.things if call.receiver is not None else ()
    given = {thing for one in call.args[:1] for thing in one.sources()}
    if found is None or found["grad"] is None:
        steps = call.method == "step" and _is_of(own, models)
        return steps or (call.method in _FORWARD and not models.isdisjoint(own))
    if call.name in _CLIPS:
        return not models.isdisjoint(given)
    clears = call.method == "zero_grad" and not models.isdisjoint(own)
    return clears or (call.method in ("step", "zero_grad") and _is_of(own, models))


def _is_of(optimizers: tuple[RankThing, ...], models: Models) -> bool:
    """Whether it is an optimizer of one of the models' parameters."""
    made = [thing.call for thing in optimizers if thing.call is not None]
    given = (value for call in made if call.name.startswith("torch.optim.") for value in call.args)
    return any(not models.isdisjoint(value.sources()) for value in given)
