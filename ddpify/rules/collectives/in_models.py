"""Parameters and gradients of a model that are in flight, and what is done with the model."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.inflight import Models, key_of
from ddpify.ranks.model import RankCall, RankThing, RankValue

_FORWARD: Final = frozenset({"__call__", "forward", "state_dict"})
_CLIPS: Final = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")


def uses(call: RankCall, value: RankValue, models: Models) -> bool:
    """Whether a call reads or changes the parameters, or the gradients, of one of the models:
    ``optimizer.step()``, ``model.zero_grad()``, ``model(x)``."""
    own = call.receiver.things if call.receiver is not None else ()
    given = {thing for one in call.args[:1] for thing in one.sources()}
    if ".grad" not in key_of(value):
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
