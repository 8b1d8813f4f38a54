"""What ddpify's own helpers return, so that migrated code is understood by what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpify.facts import library
from ddpify.facts.events import Call
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Thing, Value, computed, flat_deps, one

if TYPE_CHECKING:
    from ddpify.facts.machine import Machine

RUNTIME = "ddpify.runtime"


def call_helper(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    """ddpify's own helpers, by what they return."""
    first = call.args[0] if call.args else NOTHING
    if tail in ("get_rank", "get_local_rank", "is_main_process"):
        return one(m.make(Kind.RANK, f, call.site, tail))
    if tail == "get_world_size":
        return one(m.make(Kind.WORLD, f, call.site, tail))
    if tail == "wrap_model":
        return library.wrap(m, f, first, call.site, library.DDP)
    if tail == "unwrap":
        return library.unwrapped(first)
    if tail in ("distributed_sampler", "evaluation_sampler"):
        thing = m.make(Kind.SAMPLER, f, call.site, f"{RUNTIME}.{tail}")
        return one(thing)
    if tail in ("reduce_sum", "reduce_mean"):
        reduced = [computed(a).reduced() for a in call.args]
        if len(reduced) == 1:
            return reduced[0]
        return one(Thing(Kind.TUPLE, call.site, items=tuple(reduced)))
    if tail == "broadcast":
        kept = frozenset(
            d for d in flat_deps(first) if d.kind not in (Kind.CLOCK, Kind.RANDOM, Kind.RANK)
        )
        return Value(first.things, kept)
    if tail == "per_rank_batch_size":
        thing = m.make(Kind.UNKNOWN, f, call.site, f"{RUNTIME}.per_rank_batch_size")
        return one(thing, flat_deps(first))
    if tail == "without_module_prefix":
        return first
    return one(m.make(Kind.UNKNOWN, f, call.site, f"{RUNTIME}.{tail}"))
