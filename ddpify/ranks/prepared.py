"""What Accelerate and Fabric hand back of what they are given: loaders that are dealt."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.frozen import is_frozen
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.other_libraries import ENGINE
from ddpify.ranks.process_groups import meet
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import of, symbol

_ACCELERATE: Final = "prepare prepare_model prepare_optimizer prepare_data_loader".split()
_FABRIC: Final = "setup setup_module setup_optimizers setup_dataloaders".split()
CALLS: Final = frozenset(
    [f"accelerate.Accelerator.{name}" for name in _ACCELERATE]
    + [f"lightning.fabric.Fabric.{name}" for name in _FABRIC]
)

_WRAPS: Final = frozenset(f"accelerate.Accelerator.{name}" for name in ("prepare", "prepare_model"))
SETS_UP: Final = frozenset(
    {"lightning.fabric.Fabric.setup", "lightning.fabric.Fabric.setup_module"}
)
_OTHERS: Final = re.compile(r"fsdp|deepspeed|megatron", re.IGNORECASE)
MAKES: Final = ("accelerate.Accelerator", "lightning.fabric.Fabric")
_FOLDERS: Final = ("project_dir", "logging_dir", "project_config", "loggers")
UNWRAPS: Final = (
    "accelerate.Accelerator.unwrap_model",
    "accelerate.utils.extract_model_from_parallel",
)


def made(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``Accelerator(project_dir=now())``: it is the same on all ranks, its folders are not."""
    value = result(one)
    for name in _FOLDERS:
        if name in one.kwargs:
            value.things[0].attrs[name] = one.kwargs[name]
    return replace(value, origins=frozenset())


def prepared(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``prepare(model, loader)``: a model is wrapped, which is a collective; a loader is dealt."""
    given = one.args or tuple(one.kwargs.values())[:1]
    if not given:
        return None
    things = [thing for value in given for thing in value.things]
    if one.name in words.COLLECTIVE_CALLS or any(map(is_model, things)):
        meet(m, f, one)
    own = one.kwargs.get("use_distributed_sampler")
    if (own is None or own.constant is True) and not one.alone:
        for thing in things:
            thing.deals = thing.deals or thing.name == words.LOADER
    given = tuple(_wrapped(m, f, one, value) for value in given)
    if len(given) == 1:
        return given[0]
    return RankValue(symbol(f"{one.method}@{one.site}").atoms, items=given)


def unwrapped(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``accelerator.unwrap_model(model)``: the model inside, or what was never wrapped."""
    model = one.arg(0, "model")
    if model is None or all(thing.name != words.DDP for thing in model.things):
        return model
    held = (t.attrs["module"].things if "module" in t.attrs else (t,) for t in model.things)
    return replace(model, things=tuple(dict.fromkeys(thing for part in held for thing in part)))


def _wrapped(m: RankMachine, f: RankFrame, one: RankCall, value: RankValue) -> RankValue:
    """A model that Accelerate hands back: DistributedDataParallel is around it.

    Not around a frozen one, nor in a file that may choose other engines, whose wrappers have the
    model's attributes.
    """
    if one.name not in _WRAPS or not value.things or not all(map(is_model, value.things)):
        return value
    kept = one.kwargs.get("evaluation_mode")
    if (kept is not None and kept.constant is not False) or is_frozen(m.run, value):
        return value
    if may_shard(f.module):
        return value
    wrapper = RankThing("result", words.DDP, one.site, one, attrs={"module": value})
    for thing in value.things:
        thing.wrapper = wrapper
    return of(wrapper, value)


def may_shard(module: Module) -> bool:
    """Whether the code of a file, not its comments, names another engine of Accelerate's."""
    return any(_OTHERS.search(name) for name in _names(module.tree))


def _names(tree: ast.AST) -> Iterator[str]:
    """Names, attributes, keywords, imports, and texts of one word."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module", "value"):
            name = getattr(node, field, None)
            if isinstance(name, str) and " " not in name:
                yield name


def is_model(thing: RankThing) -> bool:
    """Whether an object is a module of torch or of the project."""
    made = thing.kind == "result" and thing.name.startswith("torch.nn.")
    return made or (thing.cls is not None and thing.cls.inherits("torch.nn.Module"))


def engine(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``deepspeed.initialize(model=…)``: the engine, the optimizer, the loader, the scheduler."""
    made = of(RankThing("result", ENGINE, one.site, one), *one.given)
    others = [symbol(f"{name}@{one.site}") for name in ("optimizer", "loader", "scheduler")]
    return RankValue(symbol(f"initialize@{one.site}").atoms, items=(made, *others))
