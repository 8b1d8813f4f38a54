"""torch's optimizers, and whether their steps are as long as the gradient is large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import modules_of

# With all others of torch.optim, twice the gradient moves the parameters as far (RAdam's first
# steps apart): measured in tests/facts_of_torch.
GROWING: Final = frozenset({"SGD", "ASGD"})


def optimizers(run: Run, covers: Callable[[RankThing], bool]) -> list[RankCall]:
    """Where torch's optimizers are made of the parameters of such models."""
    made = (call for call in run.calls if call.name == f"torch.optim.{call.method}")
    given = ((call, call.arg(0, "params")) for call in made)
    return [call for call, value in given if value and any(map(covers, modules_of(value)))]


def steps_alike(run: Run, covers: Callable[[RankThing], bool]) -> bool:
    """Whether such models are surely stepped as far by any multiple of the gradient, but for what
    clips or decays."""
    made = optimizers(run, covers)
    return bool(made) and GROWING.isdisjoint(call.method for call in made)


def trained_by(optimizer: RankValue) -> set[RankThing]:
    """The models whose parameters an optimizer of torch was given."""
    made = [thing.call for thing in optimizer.things if thing.call is not None]
    given = [call.args[0] for call in made if call.name.startswith("torch.optim.") and call.args]
    return {model for value in given for model in modules_of(value)}
