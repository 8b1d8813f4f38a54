"""Functions that make batches in which samples depend on each other. ::

def collate(samples):
    x = torch.stack(samples)
    return (x - x.mean(0)) / x.std(0)      # of the batch: a rank makes one of 1/N of them
"""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.coupling import certain
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call, Forward
from ddpify.facts.joining import with_parts
from ddpify.facts.protocol import Machine
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site


def collating(m: Machine, trained: Iterable[Forward]) -> tuple[Site, ...]:
    """Where such functions of loaders that are trained on compare samples."""
    outputs: dict[Thing, Thing] = {}
    for forward in trained:
        given = (*forward.call.args, *forward.call.kwargs.values())
        for loader in (t for v in given for t in v.loaders() if t.kind is Kind.LOADER):
            outputs.setdefault(loader, forward.output)
    made = ((call_that_made(loader), output) for loader, output in outputs.items())
    found = {site for call, output in made if call is not None for site in _in(m, call, output)}
    return tuple(sorted(found))


def _in(m: Machine, call: Call, output: Thing) -> list[Site]:
    """Where the ``collate_fn`` of a loader compares the samples that it is given."""
    collate = call.arg(6, "collate_fn")
    if collate is None or call.star or m.exhausted:
        return []
    # What is of a model's output is looked at as what is trained: so is what a model is given.
    of_each = Value((), frozenset({output}), Measure.ENTRY)
    samples = Value((Thing(Kind.ITERATOR, call.site, inner=of_each),), measure=Measure.SAMPLES)
    with m.aside():
        result = m.apply(call.where.frame, collate, (samples.but(rows=True),), call.site)
        return [thing.born for thing in certain(with_parts(result))]
