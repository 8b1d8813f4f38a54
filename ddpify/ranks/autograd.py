"""``apply`` of a project's autograd function: its ``forward`` runs, without gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ddpify.ranks import functions
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.traits import NO_GRAD

_BASES: Final = ("torch.autograd.Function", "torch.autograd.function.Function")


def is_apply(info: ClassDefinition, name: str) -> bool:
    """Whether ``info.name`` is what calls the forward of an autograd function."""
    own = name == "apply" and info.method("apply") is None
    return own and info.method("forward") is not None and info.inherits(*_BASES)


def applied(m: RankMachine, f: RankFrame, cls: RankThing, one: RankCall) -> RankValue:
    """What comes out hangs on all that was given, and is each rank's own if the forward's is."""
    info: ClassDefinition = cls.info
    forward = info.method("forward")
    assert forward is not None
    context = (
        RankThing("parameter", "ctx", one.site) if info.method("setup_context") is None else None
    )
    bound = RankThing("function", forward.qualname, info=forward, receiver=context)
    bound.traits = NO_GRAD
    one.target = forward
    entered = functions.enter(m, f, bound, one.args, one.kwargs, one)
    one.result = replace(result(one), origins=entered.all_origins)
    if entered.items is not None:
        parts = tuple(replace(one.result, origins=part.origins) for part in entered.items)
        one.result = replace(one.result, items=parts)
    return one.result
