"""What a wrapper calls of the module inside: ``wrapper.eval()`` runs ``module.train(False)``."""

from __future__ import annotations

from ddpify.ranks import functions
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import constant


def modes(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """Enter the ``train`` that the project writes for a wrapped model."""
    if one.method not in ("train", "eval") or one.receiver is None:
        return
    given = one.arg(0, "mode") or constant(True)
    mode = given if one.method == "train" else constant(False)
    held = [thing.attrs["module"] for thing in one.receiver.things if "module" in thing.attrs]
    for thing in (thing for value in held for thing in value.things):
        info = thing.cls.method("train") if thing.cls is not None else None
        if info is not None:
            bound = RankThing("function", info.qualname, info=info, receiver=thing)
            functions.enter(m, f, bound, (mode,), {}, one)


def is_unsynced(forward: RankCall, wrapper: RankThing) -> bool:
    """Whether a forward surely runs under the wrapper's ``no_sync()``: its backward is alone.

    Or where each rank's backward finds all others, whoever has one.
    """
    entered = (value.things[0].call for value in forward.contexts if len(value.things) == 1)
    return any(wrapper in _freed(call) for call in entered if call is not None)


def _freed(entered: RankCall) -> tuple[RankThing, ...]:
    """The models whose backwards need no others in the block of a ``with``."""
    model = entered.receiver if entered.method == "no_sync" else None
    ours = entered.target if entered.target is not None and entered.target.module.ours else None
    if ours is not None and ours.name == "backward_on_all":
        model = entered.arg(0, "model")
    return model.things if model is not None else ()
