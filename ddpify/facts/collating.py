"""What a loader has its samples put together by, where that has hold of models and the like. ::

    DataLoader(data, collate_fn=lambda rows: padded(rows, model.max_len))
    self.loader = DataLoader(data, collate_fn=self.collate)

It is read as what it is, a function that each batch calls; of what it gives is asked here along
which axis the samples lie, as in what ``pad_sequence`` fills up without ``batch_first``.
"""

from __future__ import annotations

from ddpify.facts.batch_objects import samples
from ddpify.facts.details import Collated, call_that_made
from ddpify.facts.holding import held_in
from ddpify.facts.padding import pads
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing, Value
from ddpify.source import Site

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
