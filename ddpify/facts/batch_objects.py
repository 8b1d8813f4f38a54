"""Batches that are objects: a named tuple or a data class that the project's ``collate_fn`` makes.

    def collate(samples):
        return Batch(torch.stack([one.image for one in samples]), ...)

What stands in a field is read of that function, for a list of samples. A field that is filled up to
the longest of a rank's own samples is not of each sample alone.

What a loader has its samples put together by, where that has hold of models and the like. ::

    DataLoader(data, collate_fn=lambda rows: padded(rows, model.max_len))
    self.loader = DataLoader(data, collate_fn=self.collate)

It is read as what it is, a function that each batch calls; of what it gives is asked here along
which axis the samples lie, as in what ``pad_sequence`` fills up without ``batch_first``.
"""

from __future__ import annotations

import ast

from ddpify.facts.details import Collated, call_that_made, part_of
from ddpify.facts.events import Call
from ddpify.facts.holding import held_in
from ddpify.facts.padding import FILLS, pads
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site

# What finds the longest of several samples, or makes room for it.
LONGEST = FILLS | frozenset(
    """max amax maximum sort sorted argsort zeros ones full empty new_zeros new_ones new_full
    new_empty zeros_like""".split()
)


def samples(site: Site) -> Value:
    """What a ``collate_fn`` is given."""
    made = Thing(Kind.ITERATOR, site, inner=Value((), measure=Measure.ENTRY))
    return Value((made,), measure=Measure.SAMPLES, rows=True)


def field(m: Machine, f: Frame, batch: Thing, name: str) -> Value | None:
    """``batch.image``: a row for each sample; None where that is not known."""
    loaders = batch.stands_for if batch.kind is Kind.BATCH else ()
    if not loaders or not all(_is_of_each(m, f, loader, name) for loader in loaders):
        return None
    batch.attrs[name] = part_of(batch)
    return batch.attrs[name]


def _is_of_each(m: Machine, f: Frame, loader: Thing, name: str) -> bool:
    call = call_that_made(loader)
    collate = call.arg(6, "collate_fn") if call is not None and not call.star else None
    if call is None or collate is None:
        return False
    with m.aside():
        made = m.apply(f, collate, (samples(call.site),), call.site)
        calls = [event for event in m.events if isinstance(event, Call)]
    parts = [thing.attrs.get(name) for thing in made.things if thing.kind is Kind.INSTANCE]
    whole = bool(parts) and len(parts) == len(made.things) and not _fills(collate, calls)
    return whole and all(part is not None and _has_a_row_each(part) for part in parts)


def _fills(collate: Value, calls: list[Call]) -> bool:
    """Whether a function, or one that it calls, may fill samples up: ``ids + [0] * missing``."""
    if any(call.name.rpartition(".")[2] in LONGEST for call in calls):
        return True
    refs = [*(thing.ref for thing in collate.things), *(call.target for call in calls)]
    nodes = [n for ref in refs if isinstance(ref, FunctionInfo) for n in ast.walk(ref.node)]
    products = [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    return not nodes or any(isinstance(o, ast.List) for n in products for o in (n.left, n.right))


def _has_a_row_each(part: Value) -> bool:
    return part.measure is Measure.SAMPLES and has_rows(part) and not (part.things or part.axis)


PAD_SEQUENCE = "torch.nn.utils.rnn.pad_sequence"
HOLDS = frozenset(
    {
        Kind.LOADER,
        Kind.MODEL,
        Kind.OPTIMIZER,
        Kind.PARAMETERS,
        Kind.SAMPLER,
        Kind.SCALER,
        Kind.SCHEDULER,
        Kind.STATE,
        Kind.WRAPPED,
    }
)


def read(m: Machine, f: Frame, loader: Thing, site: Site) -> None:
    """Read the call of a loader's ``collate_fn`` for a batch."""
    call = call_that_made(loader)
    collate = call.arg(6, "collate_fn") if call is not None and not call.star else None
    if call is None or collate is None:
        return
    if any(t.kind in HOLDS for t in held_in(collate)):
        m.apply(f, collate, (samples(call.site),), site)
    if loader.detail(Collated) is None and pads(loader):
        with m.aside():
            made = m.apply(f, collate, (samples(call.site),), site)
        loader.describe(Collated(_axes(made)))


def _axes(made: Value) -> tuple[int, ...]:
    whole = len(made.things) == 1 and made.things[0].kind is Kind.TUPLE
    return tuple(_axis(part) for part in (made.things[0].items or () if whole else ()))


def _axis(part: Value) -> int:
    """1 of ``pad_sequence(rows)``, which puts time first unless it is told otherwise."""
    for thing in part.things:
        call = call_that_made(thing) if thing.name == PAD_SEQUENCE else None
        first = call.arg(1, "batch_first") if call is not None else None
        if call is not None and not call.star and (first is None or first.const is False):
            return 1
    return 0
