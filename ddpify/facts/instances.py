"""``isinstance(criterion, nn.L1Loss)``: whether an object is of a class, where that is known.

Of models it is not asked: once they are wrapped, the answer is the wrapper's (DDP303).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing, Value, constant

OBJECTS = (Kind.CRITERION, Kind.INSTANCE)
LOSSES = "torch.nn."
KIN = frozenset({"torch.nn.NLLLoss", "torch.nn.NLLLoss2d", "torch.nn.Module"})  # bases of others


def is_instance(value: Value, classes: Value) -> Value | None:
    """True or False; None where it depends, or is not known."""
    wanted = list(_classes(classes))
    if not value.things or not wanted or any(thing is None for thing in wanted):
        return None
    answers = {_any(thing, wanted) for thing in value.things}
    answer = answers.pop() if len(answers) == 1 else None
    return constant(answer).but(setting=value.setting) if answer is not None else None


def _classes(value: Value) -> Iterator[Thing | None]:
    """The classes of the second argument, those in a tuple, too; None for what is none."""
    if not value.things:
        yield None
    for thing in value.things:
        if thing.kind is Kind.TUPLE and thing.items is not None:
            for item in thing.items:
                yield from _classes(item)
        else:
            yield thing if thing.kind in (Kind.CLASS, Kind.EXTERNAL) else None


def _any(thing: Thing, classes: list[Thing | None]) -> bool | None:
    answers = {_is_of(thing, one) for one in classes if one is not None}
    return True if True in answers else None if None in answers else False


def _is_of(thing: Thing, wanted: Thing) -> bool | None:
    if thing.kind not in OBJECTS:
        return None
    if isinstance(thing.ref, ClassInfo):
        return _own(thing.ref, wanted)
    if thing.ref is not None or not thing.name.startswith(LOSSES):
        return None
    if isinstance(wanted.ref, ClassInfo):
        return False  # an object of torch's own class
    if thing.name == wanted.name:
        return True
    return False if _are_losses(thing.name, wanted.name) else None


def _own(info: ClassInfo, wanted: Thing) -> bool | None:
    """Of an object of the project's own class."""
    if isinstance(wanted.ref, ClassInfo):
        return True if wanted.ref in info.mro() else None if _is_open(info) else False
    return True if wanted.name in info.external_bases() else None


def _is_open(info: ClassInfo) -> bool:
    """Whether a base is not known, which may be anything."""
    return any(not base.startswith(("torch.", "builtins.")) for base in info.external_bases())


def _are_losses(*names: str) -> bool:
    """Two different losses of torch, neither the other's base."""
    plain = (name.startswith(LOSSES) and name.endswith("Loss") for name in names)
    return all(plain) and KIN.isdisjoint(names)
