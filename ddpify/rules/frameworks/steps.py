"""The losses that ``training_step`` returns: what they are over the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.frameworks.lightnings import MODULE
from ddpify.rules.shared.losses import made_by, one_by_one, reduction, sums_entries

KEY: Final = "loss"  # of a dictionary that is returned instead


def losses(run: Run) -> Iterator[tuple[FunctionDefinition, RankValue]]:
    """What a step returns, or the loss of the dictionary that it returns."""
    for step, value in run.stepped:
        found = [value] if value.keys is None else [v for key, v in value.keys if key == KEY]
        yield from ((step, loss) for loss in found)


def summed_steps(run: Run) -> list[tuple[FunctionDefinition, RankCall]]:
    """The steps whose loss is a plain sum over the batch, with the call that sums."""
    return run.once(_summed_steps)


def _summed_steps(run: Run) -> list[tuple[FunctionDefinition, RankCall]]:
    made = ((step, loss, made_by(loss)) for step, loss in losses(run))
    return [
        (step, call)
        for step, loss, call in made
        if call is not None and not one_by_one(loss) and _is_sum(run, call, step)
    ]


def _is_sum(run: Run, made: RankCall, step: FunctionDefinition) -> bool:
    if reduction(made) == "sum":
        return True
    calls = {call for call in run.calls if within(call, step) and _computes(call)}
    return bool(calls) and sums_entries(made, calls)


def within(call: RankCall, step: FunctionDefinition) -> bool:
    """Whether a call is made in a step, or in what that calls."""
    return step in (*(outer.function for outer in call.stack), call.function)


def _computes(call: RankCall) -> bool:
    """``self(x)`` and ``self.net(x)``, of which it may not be known what it is."""
    if not call.grad or reduction(call) is not None:
        return False
    owner, _, name = call.name.rpartition(".")
    return name in ("__call__", "forward") or (owner == MODULE and not name.startswith("log"))
