"""What Accelerate and Fabric hand back of what they are given: loaders that are dealt."""

from __future__ import annotations

from typing import Final

from ddpify.ranks import words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.other_libraries import ENGINE
from ddpify.ranks.process_groups import meet
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import of, symbol

_ACCELERATE: Final = "prepare prepare_model prepare_optimizer prepare_data_loader".split()
_FABRIC: Final = "setup setup_module setup_optimizers setup_dataloaders".split()
CALLS: Final = frozenset(
    [f"accelerate.Accelerator.{name}" for name in _ACCELERATE]
    + [f"lightning.fabric.Fabric.{name}" for name in _FABRIC]
)


def prepared(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``prepare(model, loader)``: a model is wrapped, which is a collective; a loader is dealt."""
    given = one.args or tuple(one.kwargs.values())[:1]
    if not given:
        return None
    things = [thing for value in given for thing in value.things]
    if one.name in words.COLLECTIVE_CALLS or any(map(_is_model, things)):
        meet(m, f, one)
    own = one.kwargs.get("use_distributed_sampler")
    if own is None or own.constant is True:
        for thing in things:
            thing.deals = thing.deals or thing.name == words.LOADER
    if len(given) == 1:
        return given[0]
    return RankValue(symbol(f"{one.method}@{one.site}").atoms, items=given)


def _is_model(thing: RankThing) -> bool:
    made = thing.kind == "result" and thing.name.startswith("torch.nn.")
    return made or (thing.cls is not None and thing.cls.inherits("torch.nn.Module"))


def engine(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``deepspeed.initialize(model=…)``: the engine, the optimizer, the loader, the scheduler."""
    made = of(RankThing("result", ENGINE, one.site, one), *one.given)
    others = [symbol(f"{name}@{one.site}") for name in ("optimizer", "loader", "scheduler")]
    return RankValue(symbol(f"initialize@{one.site}").atoms, items=(made, *others))
