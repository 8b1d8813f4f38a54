"""Copies of models: ``ema = copy.deepcopy(model)`` is another model, whoever trains the first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpify.facts.events import Call
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import whole
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Detail, Kind, Thing, Value, one
from ddpify.python import words

DEEPCOPY = words.DEEPCOPY


@dataclass(frozen=True, eq=False)
class CopyOf(Detail):
    """The model that a model was copied from, with its layers' names and its buffers."""

    model: Thing


def deepcopy(m: Machine, f: Frame, call: Call) -> Value:
    """Another model, where one is copied as a whole; anything else is what it was.

    ``nn.DataParallel`` is still there in the copy of a wrapper, which is to be gone.
    """
    given = call.args[0]
    if m.parallel or not all(_is_model(thing) for thing in given.things):
        return given
    return join(*(_copied(m, f, thing, call) for thing in given.things)) if given.things else given


def original(model: Thing) -> Thing:
    """The model that the first of all copies was made from."""
    copy = model.detail(CopyOf)
    return original(copy.model) if copy is not None else model


def _is_model(thing: Thing) -> bool:
    return thing.kind in (Kind.MODEL, Kind.WRAPPED) and thing.part_of is None


def _copied(m: Machine, f: Frame, thing: Thing, call: Call) -> Value:
    first = whole(thing)
    made = m.make(Kind.MODEL, f, call.site, first.name)
    if made is first or made.detail(CopyOf) is not None:
        return one(made)  # read again: what was set in it stays
    made.ref, made.items, made.inner, made.keys = first.ref, first.items, first.inner, first.keys
    made.attrs = _parts(first, made)
    made.describe(CopyOf(first))
    return one(made)


def _parts(first: Thing, made: Thing) -> dict[str, Value]:
    """What a model keeps; of its layers copies, which are parts of the copy."""
    return {name: value.but(things=_own(value, first, made)) for name, value in first.attrs.items()}


def _own(value: Value, first: Thing, made: Thing) -> tuple[Thing, ...]:
    return tuple(_part(t, made) if t.part_of is first else t for t in value.things)


def _part(thing: Thing, owner: Thing) -> Thing:
    part = replace(thing, part_of=owner)
    part.attrs = _parts(thing, part)
    return part
