"""Functions with a gradient of their own: classes that derive from ``torch.autograd.Function``.

What one gives is read in its ``forward``; where its ``backward``, too, makes of each sample's
gradient one of that sample, it is a function of the samples as others are. ::

    class Hash(torch.autograd.Function):
        def forward(ctx, x): return x.sign()
        def backward(ctx, gradient): return gradient
"""

from __future__ import annotations

from ddpify.facts.events import Call
from ddpify.facts.joining import computed, join
from ddpify.facts.measures import ENTRIES
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.values import Kind, Measure, Thing, Value, one

BASES = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})


def applied(m: Machine, f: Frame, info: ClassInfo, call: Call) -> Value | None:
    """``Hash.apply(x)``; None where the class is no such function, or is not read."""
    forward, backward = (info.method(name) for name in ("forward", "backward"))
    if not set(info.external_bases()) <= BASES or forward is None or backward is None:
        return None
    context = Thing(Kind.INSTANCE, call.site, "ctx")
    result = m.enter(f, forward, (one(context), *call.args), call.kwargs, call.site)
    if result.measure not in ENTRIES or result.things:
        return computed(result, *call.args)
    kept = Thing(Kind.ITERATOR, call.site, inner=join(result, *call.args))
    context.attrs["saved_tensors"] = one(kept)
    given = m.enter(f, backward, (one(context), result), {}, call.site)
    parts = [part for thing in given.of(Kind.TUPLE) for part in thing.items or ()] or [given]
    alike = all(part.measure in (result.measure, Measure.UNIFORM) for part in parts)
    return result if alike else computed(result, *call.args)
