"""Lightning's Trainer calls the hooks of what it is given: so they are read in that order."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from ddpify.ranks import functions, naming
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.model import RANK0, RankCall, RankGuard, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import RANK, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.recording import record
from ddpify.ranks.results import result
from ddpify.ranks.run import Fed
from ddpify.ranks.traits import PLAIN, Traits
from ddpify.ranks.values import of
from ddpify.ranks.words import LOOPS
from ddpify.ranks.words import TRAINER as TRAINER

_ALONE: Final = "prepare_data"  # rank 0 of each node, the others wait
_WAIT: Final = "lightning.pytorch.strategies.Strategy.barrier"
_BEFORE: Final = "setup configure_model configure_optimizers".split()
_FIT: Final = (
    "on_fit_start train_dataloader val_dataloader on_sanity_check_start on_sanity_check_end"
    " on_train_start on_train_epoch_start on_train_batch_start training_step on_before_backward"
    " on_after_backward on_before_optimizer_step on_train_batch_end".split()
)
_VALIDATE: Final = (
    "on_validation_start on_validation_epoch_start on_validation_batch_start validation_step"
    " on_validation_batch_end validation_epoch_end on_validation_epoch_end"
    " on_validation_end".split()
)
_TEST: Final = (
    "test_dataloader on_test_start on_test_epoch_start on_test_batch_start test_step"
    " on_test_batch_end test_epoch_end on_test_epoch_end on_test_end".split()
)
_AFTER: Final = "on_train_epoch_end on_save_checkpoint on_train_end on_fit_end teardown".split()
STEP: Final = "training_step"
# Hooks that are given a batch: the first of their parameters that is of it, and those that follow.
BATCHES: Final = {
    **dict.fromkeys(("training_step", "validation_step", "test_step"), 1),
    **{f"on_{way}_batch_start": 1 for way in ("train", "validation", "test")},
    **{f"on_{way}_batch_end": 2 for way in ("train", "validation", "test")},
}
_KNOWN: Final = {
    "lightning.pytorch.LightningModule": ("lightning_module", "model"),
    "lightning.pytorch.LightningDataModule": ("datamodule",),
}
CALLBACKS: Final = (
    "lightning.pytorch.Callback",
    "lightning.Callback",
    "lightning.pytorch.callbacks.Callback",
    "lightning.pytorch.callbacks.callback.Callback",
)
_HOOKS: Final = {
    "fit": (*_BEFORE, *_FIT, *_VALIDATE, *_AFTER),
    "validate": (*_BEFORE, "val_dataloader", *_VALIDATE),
    "test": (*_BEFORE, *_TEST),
}
# The end of the names of hooks that make loaders; loaders that these methods are given instead.
LOADS: Final = "_dataloader"
_GIVEN: Final = {
    "fit": ("train_dataloaders", "val_dataloaders"),
    "validate": ("dataloaders",),
    "test": ("dataloaders",),
}
# Hooks that see the batches or the sums of an evaluation.
EVALUATION: Final = frozenset(name for name in (*_VALIDATE, *_TEST) if "dataloader" not in name)
TRAINING: Final = frozenset(
    name for name in (*_FIT, *_AFTER) if "train" in name and "dataloader" not in name
)


def trained(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """``trainer.fit(model, datamodule=…)`` and its kin."""
    given = [one.arg(0, "model"), one.kwargs.get("datamodule"), *one.args[1:]]
    things = [t for value in given if value is not None for t in value.things if t.cls is not None]
    if given[0] is None:
        things += _fitted(one)
    _introduce(one, things)
    if one.method == "fit" and not any(t.cls and t.cls.method(STEP) for t in things):
        m.run.blind.append(one)
    for position, name in enumerate(_GIVEN[one.method], 1):
        value = one.arg(position, name)
        if value is not None and value.constant is None and not is_module(value):
            m.run.fed.append(Fed(one, name, value))
    before = m.order
    for thing in things:
        _hook(m, f, one, thing, _ALONE)
    if m.order != before:
        record(m, f, _WAIT, Given(one.node))
    callbacks = _callbacks(one)
    for name in _HOOKS[one.method]:
        for thing in things:
            _hook(m, f, one, thing, name)
        for thing in callbacks:
            _hook(m, f, one, thing, name, (one.receiver, of(things[0]) if things else None))


def is_module(value: RankValue) -> bool:
    """Whether it is a LightningModule, or a data module, which may stand where loaders do."""
    return any(t.cls is not None and t.cls.inherits(*_KNOWN) for t in value.things)


def trains(call: RankCall) -> bool:
    """Whether a module is given to a Trainer, which may be made in code that is not read."""
    return call.method in LOOPS and call.target is None and any(map(is_module, call.given))


def with_trainer(
    m: RankMachine,
    f: RankFrame,
    node: ast.Call,
    given: tuple[RankValue, ...],
    options: dict[str, RankValue],
    ways: tuple[str, ...] = ("fit", "test"),
) -> RankValue:
    """Hand modules to a Trainer that is made elsewhere: of a command line, a configuration."""
    trainer = result(record(m, f, TRAINER, Given(node, kwargs=options)))
    for way in ways:
        trained(m, f, record(m, f, f"{TRAINER}.{way}", Given(node, trainer, given)))
    return trainer


def is_hook(info: FunctionDefinition) -> bool:
    """Whether a Trainer calls a function: a hook of a module or of a callback."""
    named = info.name == _ALONE or any(info.name in names for names in _HOOKS.values())
    return named and info.owner is not None and info.owner.inherits(*_KNOWN, *CALLBACKS)


def _introduce(one: RankCall, things: list[RankThing]) -> None:
    """``trainer.datamodule``, ``self.trainer`` and their kin: who knows whom from here on."""
    trainer = one.receiver
    made = trainer.made_by(TRAINER) if trainer is not None else None
    for thing in things:
        if trainer is None or made is None or thing.cls is None:
            continue
        thing.attrs["trainer"] = trainer
        for base, names in _KNOWN.items():
            if thing.cls.inherits(base):
                made.attrs |= dict.fromkeys(names, of(thing))


def _fitted(one: RankCall) -> list[RankThing]:
    """``trainer.test(datamodule=rows)``: the module that was fitted before."""
    made = one.receiver.made_by(TRAINER) if one.receiver is not None else None
    known = made.attrs.get("lightning_module") if made is not None else None
    return [thing for thing in known.things if thing.cls is not None] if known is not None else []


def _callbacks(one: RankCall) -> list[RankThing]:
    """The project's callbacks that the Trainer was given."""
    made = one.receiver.made_by(TRAINER) if one.receiver is not None else None
    given = made.call.kwargs.get("callbacks") if made is not None and made.call else None
    values = (given, *(given.items or ())) if given is not None else ()
    return [thing for value in values for thing in value.things if thing.cls is not None]


def _hook(
    m: RankMachine,
    f: RankFrame,
    one: RankCall,
    thing: RankThing,
    name: str,
    first: tuple[RankValue | None, ...] = (),
) -> None:
    info: FunctionDefinition | None = thing.cls.method(name) if thing.cls is not None else None
    if info is None:
        return
    bound = RankThing("function", info.qualname, info=info, receiver=thing)
    bound.traits = _decorated(m, info, name)
    if name in EVALUATION:
        bound.traits = replace(bound.traits, no_grad=True)
    names = info.parameters[1:]
    kept = (m.live, m.here)
    if name == _ALONE:
        why = Origin(RANK, "prepare_data, which Lightning calls on one process", one.site)
        test = RankValue((True, False), origins=frozenset({why}))
        m.live &= RANK0
        m.here = m.here.under(RankGuard(test, one.node, f.module, True, RANK0))
    known = dict(zip(names, first, strict=False))
    given = tuple(known.get(n) or functions.parameter_value(m, info, n) for n in names)
    value = functions.enter(m, f, bound, given, {}, one)
    if name.endswith(LOADS):
        m.run.fed.append(Fed(one, name, value, info))
    if name == STEP:
        m.run.stepped.append((info, value))
    m.live, m.here = kept


def _decorated(m: RankMachine, info: FunctionDefinition, name: str) -> Traits:
    """What decorators make of a hook: ``@rank_zero_only``."""
    found = naming.class_attribute(m, info.owner, name) if info.owner is not None else None
    made = found.things if found is not None else ()
    return next((one.traits for one in made if one.kind == "function"), PLAIN)
