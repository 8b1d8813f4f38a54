"""What a wrapper calls of the module inside: ``wrapper.eval()`` runs ``module.train(False)``."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks import assigning, functions
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import constant, of, symbol

_MANY = 60


def modes(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """Enter the ``train`` that the project writes for a wrapped model; keep that modules evaluate:
    what their methods do ``if self.training`` they do not do until somebody trains them again."""
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
    training = mode if mode.constant is False else symbol(f"training@{one.site}")
    for thing in _modules(one.receiver, set()):
        assigning.set_attribute(m, of(thing), "training", training, one.site)


def _modules(value: RankValue, seen: set[RankThing]) -> Iterator[RankThing]:
    """The models of the project among these and in them."""
    for thing in value.things:
        if thing in seen or len(seen) > _MANY:
            continue
        seen.add(thing)
        if thing.cls is not None and thing.cls.inherits("torch.nn.Module"):
            yield thing
        for held in thing.attrs.values():
            for one in (held, *(held.items or ())):
                yield from _modules(one, seen)


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
