"""An optimizer of each rank's own part of the parameters, which are never sent to the others.

mine = [p for i, p in enumerate(params) if i % world == rank]
inner = torch.optim.Adam(mine)
inner.step()                            # all other parameters stay as they are
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.origins import IDENTITY
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.optimizers import optimizers
from ddpify.rules.shared.replicated import handed_on, parameters_sent
from ddpify.rules.shared.wrapped import parameters_of, wraps

_OTHERWISE = ("add_param_group", "_set_params_and_buffers_to_ignore_for_model")


def steps_of_a_part(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(optimizer, step): of models whose gradients all ranks average, each steps its own part."""
    averaged = {model for one in averagings(run) for model in one.models}
    for made in run.calls if not any(run.methods(*_OTHERWISE)) else ():
        if made.name != f"torch.optim.{made.method}" or not _is_of_a_part(made):
            continue
        models = parameters_of(made.args[0])
        inside = (any(w.covers(model) for w in wraps(run)) for model in models)
        if not models or not (models <= averaged or all(inside)):
            continue
        if not all(map(_is_of_a_part, optimizers(run, models.__contains__))):
            continue
        step = _step(run, made)
        if step is not None and not handed_on(run, models) and not parameters_sent(run, step):
            yield made, step


def _is_of_a_part(made: RankCall) -> bool:
    """Whether an optimizer is given parameters that the number of the rank picks."""
    given = made.args[0] if made.args else None
    if given is None or any(item.keys is not None for item in given.items or ()):
        return False  # groups: the rank may be in another entry, such as the rate
    return any(one.kind in IDENTITY for one in given.all_origins)


def _step(run: Run, made: RankCall) -> RankCall | None:
    things = set(made.result.things) if made.result is not None else set()
    steps = (call for call in run.methods("step") if call.receiver is not None and call.loops)
    return next((c for c in steps if c.receiver and things & set(c.receiver.things)), None)
