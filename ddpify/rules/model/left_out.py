"""Parameters that an optimizer trains, and that a program which averages gradients itself leaves
out: ``average(model.encoder)`` where the optimizer has ``model.parameters()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import DATA, IDENTITY, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import is_gradient
from ddpify.rules.shared.fields import fields_of, layers
from ddpify.rules.shared.outputs import checkpoints
from ddpify.rules.shared.parameters import has_parameters
from ddpify.rules.shared.wrapped import backwards, live, parameters_of, wraps
from ddpify.site import Site

_REDUCES: Final = frozenset(f"{words.DIST}{op}" for op in ("all_reduce", "reduce_scatter_tensor"))
_HOOKS: Final = ("register_hook", "register_post_accumulate_grad_hook", "register_comm_hook")


def left_out(run: Run) -> Iterator[tuple[RankCall, str, Site]]:
    """The optimizers, what of theirs is not averaged, and where the rest is averaged."""
    sums = _sums(run)
    if not sums or wraps(run) or any(run.methods(*_HOOKS)):
        return
    averaged = {thing for _, owners in sums for thing in owners}
    for call in run.calls:
        if not call.name.startswith("torch.optim.") or "lr_scheduler" in call.name or not call.args:
            continue
        for owner in parameters_of(call.args[0]) if _is_own(run, call.args[0]) else ():
            left = _left(run, owner, averaged)
            if left and not _is_private(run, owner, averaged):
                yield call, left, _asked(*sums[0])


def _sums(run: Run) -> list[tuple[RankCall, set[RankThing]]]:
    """The collectives over gradients, and whose they are; none if that is not known of one."""
    found = []
    for call in run.calls:
        if not call.name.startswith(words.DIST) or not call.args:
            continue
        owners = parameters_of(call.args[0])
        if ".grad" in call.module.text(call.node) or is_gradient(call.args[0]):
            if call.name not in _REDUCES or not owners or not call.everywhere:
                return []
            found.append((call, owners))
        elif owners and call.method not in ("broadcast", "all_gather"):
            return []  # it averages the parameters themselves
    return found


def _left(run: Run, owner: RankThing, averaged: set[RankThing]) -> str:
    """What of a model is not averaged: one of its layers, or the whole; "" if nothing surely is."""
    parts = {t.name.rpartition(".")[2] for t in averaged if t.receiver is owner}
    if owner in averaged:
        return ""
    if not parts:
        own = has_parameters(owner) or _is_layer(run, owner, averaged)
        return owner.name.rpartition(".")[2] if own else ""
    forward = owner.cls.method("forward") if owner.cls is not None else None
    if owner.cls is None or forward is None:
        return ""
    used = {one.name for one in fields_of(forward)}
    return min((used & layers(run, owner.cls)) - parts, default="")


def _is_private(run: Run, owner: RankThing, averaged: set[RankThing]) -> bool:
    """Whether each rank keeps it in a file of its own, without what is averaged: a head for each
    speaker, say, that is no other rank's."""
    for write in checkpoints(run):
        held = {thing for value in write.call.args[:1] for thing in value.sources()}
        apart = write.path is not None and write.path.by_rank
        if apart and owner in held and held.isdisjoint(averaged):
            return True
    return False


def _is_layer(run: Run, part: RankThing, averaged: set[RankThing]) -> bool:
    """Whether it is a layer of a model of which other layers alone are averaged: ``net.head``."""
    whole = part.receiver if part.kind == "attribute" else None
    if whole is None or whole.cls is None or whole in averaged:
        return False
    others = any(thing.receiver is whole for thing in averaged)
    return others and part.name.rpartition(".")[2] in layers(run, whole.cls)


def _asked(call: RankCall, owners: set[RankThing]) -> Site:
    """Where it is said what is averaged: ``average(model.encoder)``."""
    asked = (one for one in call.way if one.target is not None)
    given = (one for one in asked if any(not owners.isdisjoint(_whose(v)) for v in one.given))
    return next(given, call).site


def _whose(value: RankValue) -> set[RankThing]:
    """The models that a value is, or whose parameters it has."""
    return {*value.things, *parameters_of(value)}


def _is_own(run: Run, given: RankValue) -> bool:
    """Whether the losses through these parameters are of what each rank has for itself."""
    parts = parameters_of(given)
    wholes = {thing.receiver for thing in parts if thing.kind == "attribute"}
    owners = parts | {one for one in wholes if one is not None}  # a loss goes through the model
    losses = [one.receiver for one in backwards(run) if one.receiver is not None]
    through = (loss for loss in losses if not owners.isdisjoint(live(loss)))
    return any(
        one.kind in (DATA, RANDOM, *IDENTITY) for loss in through for one in loss.all_origins
    )
