"""What ddpify's own helpers return, so that migrated code is understood by what it does."""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts import counts, coupling, entry_sums, growth, own_shares, wrapping
from ddpify.facts.details import SharesBatches, loader_arguments, made_by
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_deps, held, join
from ddpify.facts.protocol import Machine
from ddpify.facts.routes import routed
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, OF_ONE_RANK, Kind, Thing, Value, constant, one
from ddpify.names import INSTALLED, OF_LOADERS
from ddpify.python.words import DDP
from ddpify.source import Site

MADE = {
    "get_rank": Kind.RANK,
    "get_local_rank": Kind.RANK,
    "is_main_process": Kind.RANK,
    "get_world_size": Kind.WORLD,
    "distributed_sampler": Kind.SAMPLER,
    "evaluation_sampler": Kind.SAMPLER,
    "evaluation_share": Kind.SAMPLER,
    "order_share": Kind.SAMPLER,
}
# A rank's part of what they are given.
SHARES = frozenset({"per_rank_accumulation", "per_rank_batch_size"})
# What gives back what it is given.
SAME = frozenset(
    """average_statistics without_module_prefix split_batches share_loading new_pass even_batches
    whole_tensor""".split()
)


def call_helper(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    """The result of a helper, by its name."""
    first = call.args[0] if call.args else NOTHING
    if tail == "wrap_model":
        return wrapping.wrap(m, f, first, call.site, DDP)
    if tail == "unwrap":
        return wrapping.unwrapped(m, first)
    if tail == "own_share":
        return _own_share(m, f, call)
    if tail == "whole_loader":
        return whole_loader(m, f, first, call.site)
    if tail in OF_LOADERS:
        for thing in first.of(Kind.LOADER):
            thing.describe(SharesBatches())
        return first
    if tail in SAME:
        return first
    if tail == "through_wrapper":
        return _routed(m, f, first, call)
    combined = NOTHING if tail == "batch_weight" else _combined(f, tail, first, call)
    if combined is not None:
        return combined
    made = m.make(MADE.get(tail, Kind.UNKNOWN), f, call.site, f"{INSTALLED}.{tail}")
    made_by(made, call)
    return one(made, flat_deps(first) if tail in SHARES else ())


def _routed(m: Machine, f: Frame, model: Value, call: Call) -> Value:
    """A method of a wrapped model that goes through the wrapper."""
    name = call.args[1].const if len(call.args) > 1 and call.args[1].known else None
    found = [routed(m, f, t, name, call.site) for t in model.things if isinstance(name, str)]
    return join(*(value for value in found if value is not None))


def whole_loader(m: Machine, f: Frame, loader: Value, site: Site) -> Value:
    """A loader over the same data set, which gives every rank all samples."""
    made = m.make(Kind.LOADER, f, site, f"{INSTALLED}.whole_loader")
    for thing in loader.of(Kind.LOADER):
        made.describe(replace(loader_arguments(thing), sampler=None))
    return one(made)


def _combined(f: Frame, tail: str, first: Value, call: Call) -> Value | None:
    """What the ranks put together, or rank 0 tells the others."""
    if tail in ("reduce_sum", "reduce_mean", "reduce_entries", "global_meter"):
        return _reduced(call)
    if tail == "global_copy":
        return computed(first).reduced()
    if tail == "reduce_meter":
        return _reduce_meters(call)
    if tail in ("gather_samples", "gather_batches"):
        return _gathered(call)
    if tail in ("per_rank_count", "global_mean") and call.args:
        return counts.shared(f, first, call.arg_sites[0], tail == "global_mean")
    if tail == "whole_batch":
        return coupling.gathered(first, f.no_grad)
    return _of_rank_0(first, call) if tail == "broadcast" else None


def _of_rank_0(value: Value, call: Call) -> Value:
    """The same on every rank: no longer of one process, nor of one rank's samples."""
    for thing in value.of(Kind.TUPLE):
        items = tuple(_of_rank_0(item, call) for item in thing.items or ())
        return one(Thing(Kind.TUPLE, call.site, items=items))
    lost = (*OF_ONE_RANK, Kind.FORWARD, Kind.GRAPH)  # no gradient comes along
    kept = frozenset(d for d in flat_deps(value) if d.kind not in lost)
    things = tuple(t for t in value.things if t.kind is not Kind.BATCH)
    return Value(things, kept).reduced()


def _reduced(call: Call) -> Value:
    reduced = tuple(entry_sums.reduced(a) or computed(a).reduced() for a in call.args)
    return reduced[0] if len(reduced) == 1 else one(Thing(Kind.TUPLE, call.site, items=reduced))


def _own_share(m: Machine, f: Frame, call: Call) -> Value:
    dim = call.kwargs.get("dim", constant(0))
    axis = dim.const if isinstance(dim.const, int) else 1
    if m.where(f).loop is None and len(call.args) == 1:  # columns of the data of all batches
        return call.args[0]
    own = own_shares.shares(m, f, call.site, call.args, axis)
    return own[0] if len(own) == 1 else one(Thing(Kind.TUPLE, call.site, items=own))


def _gathered(call: Call) -> Value:
    lists = tuple(growth.gathered(a, call.site) for a in call.args)
    return lists[0] if len(lists) == 1 else one(Thing(Kind.TUPLE, call.site, items=lists))


def _reduce_meters(call: Call) -> Value:
    for meter in (thing for value in call.args for thing in held(value, Kind.INSTANCE)):
        for name in meter.attrs.keys() & {"sum", "count", "avg"}:
            meter.attrs[name] = meter.attrs[name].reduced()
    return NOTHING
