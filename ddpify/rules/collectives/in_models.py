"""Parameters and gradients of a model that are in flight, and what is done with the model."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.inflight import Models, key_of
from ddpify.ranks.model import RankCall, RankValue
from ddpify.rules.shared.clips import CLIPS
from ddpify.rules.shared.optimizers import trained_by
from ddpify.rules.shared.wrapped import modules_of

_WITH_WEIGHTS: Final = ("step", "__call__", "forward", "state_dict")
_WITH_GRADIENTS: Final = ("step", "zero_grad")


def uses(call: RankCall, value: RankValue, models: Models) -> bool:
    """Whether a call reads or changes the parameters, or the gradients, of one of the models:
    ``optimizer.step()``, ``model.zero_grad()``, ``model(x)``."""
    gradients = ".grad" in key_of(value)
    if gradients and call.method in CLIPS and call.args:
        return not models.isdisjoint(modules_of(call.args[0]))
    if call.receiver is None or call.method not in (
        _WITH_GRADIENTS if gradients else _WITH_WEIGHTS
    ):
        return False
    return not models.isdisjoint({*call.receiver.things, *trained_by(call.receiver)})
