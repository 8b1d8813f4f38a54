"""Batches that every rank makes, in the program as it will be: each takes its own share of them.

The shares are batches of a loader that stands where they are taken, and its loop goes over it, so
that all that holds of loaders holds of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpify.facts.batch_fields import SIZE
from ddpify.facts.details import Divided
from ddpify.facts.joining import join
from ddpify.facts.model import Division
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Measure, Value, one
from ddpify.source import Site


def divide(m: Machine, f: Frame, division: Division) -> None:
    """Before a statement where a batch is to be divided: its names hold this rank's share."""
    values = [_read(f, name) for name in division.names]
    own = shares(m, f, division.statement, values, division.axis)
    for name, value in zip(division.names, own, strict=True):
        owner, _, field = name.rpartition(".")
        held = (f.lookup(owner) or NOTHING) if owner else value
        for thing in held.things if owner else ():
            thing.attrs |= {field: value, SIZE: Value((), value.all_deps(), Measure.COUNT)}
        # A model that is given the object computes from the samples in it.
        f.bind(owner or name, replace(held, deps=held.deps | value.deps, measure=value.measure))


def _read(f: Frame, name: str) -> Value:
    """The tensor that has this name, or is in this field of a batch: ``batch.text``."""
    owner, _, field = name.rpartition(".")
    if not owner:
        return f.lookup(name) or NOTHING
    held = [thing.attrs.get(field, NOTHING) for thing in (f.lookup(owner) or NOTHING).things]
    return join(*held)


def shares(
    m: Machine, f: Frame, site: Site, values: Iterable[Value], axis: int
) -> tuple[Value, ...]:
    """The shares of a batch's tensors, as a loader's batch would be unpacked."""
    loader = m.make(Kind.LOADER, f, site, "own_share")
    loader.describe(Divided())
    batch = m.make(Kind.BATCH, f, site, "own_share")
    batch.inner = one(loader)
    loop = m.where(f).loop
    if loop is not None and loader not in loop.over.things:
        loop.over = join(loop.over, one(loader)).but(measure=loop.over.measure)
    return tuple(
        Value((), value.all_deps() | {batch}, Measure.SAMPLES, rows=not axis, axis=axis)
        for value in values
    )


def divided(m: Machine) -> frozenset[Site]:
    """Where this reading takes shares of batches."""
    return frozenset(t.born for t in m.made(Kind.LOADER) if t.detail(Divided))
