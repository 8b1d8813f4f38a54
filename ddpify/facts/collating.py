"""What a loader has its samples put together by, where that has hold of models and the like. ::

    DataLoader(data, collate_fn=lambda rows: padded(rows, model.max_len))
    self.loader = DataLoader(data, collate_fn=self.collate)

It is read as what it is, a function that each batch calls; what it gives is asked elsewhere.
"""

from __future__ import annotations

from ddpify.facts.batch_objects import samples
from ddpify.facts.details import call_that_made
from ddpify.facts.holding import held_in
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

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
    if call is not None and collate is not None and any(t.kind in HOLDS for t in held_in(collate)):
        m.apply(f, collate, (samples(call.site),), site)
