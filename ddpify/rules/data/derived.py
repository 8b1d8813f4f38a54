"""Loaders of a class of the project that makes itself: what it gives to DataLoader stays inside.

Their batches are shared out once they are made, ``feed = share_batches(make("feed", options))``, so
that their length and their batch size mean what they meant to everyone who asks.
"""

from __future__ import annotations

import ast

from ddpify.facts.details import SharesBatches, call_that_made, loader_arguments
from ddpify.facts.library_classes import handed_on, makes_its_own
from ddpify.facts.model import Facts, Loader
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.data.apart import is_evaluated
from ddpify.rules.data.orders import taken_apart
from ddpify.rules.edits import edit
from ddpify.settings import Settings
from ddpify.source import Site

# Where a class says these, it may go by other batches than those of its `batch_sampler`.
_OTHER_BATCHES = frozenset({"__iter__", "_get_iterator", "_index_sampler", "batch_sampler"})


def is_derived(loader: Loader) -> bool:
    """Whether a sampler and a batch size given to the call may not be what its class goes by."""
    return any(makes_its_own(thing) for thing in loader.things)


def shares_batches(loader: Thing) -> bool:
    """Whether it gives each rank its part of every batch."""
    return loader.detail(SharesBatches) is not None


def share(facts: Facts, loader: Loader, settings: Settings) -> tuple[tuple[Edit, ...], str]:
    """``share_batches(...)`` around the calls that give such a loader, or why there is none."""
    why = next(filter(None, map(_other_batches, loader.things)), "")
    if settings.batch_size != "global":
        why = "a batch that is made whole is divided: leave out --batch-size per-rank"
    again = {site for made in facts.again.values() for site in made}
    if not why and (is_evaluated(loader) or not again.isdisjoint(t.born for t in loader.things)):
        why = "the same loader is evaluated, too"
    if not why and any(taken_apart(facts, c, loader) for c in facts.named("builtins.iter")):
        why = "a pass over it is begun by `iter`, perhaps on one rank alone"
    if not why and any(_asks(facts, thing) for thing in loader.things):
        why = "its `batch_sampler` is asked for"
    trained = {thing for loop in facts.training for thing in loop.loaders}
    mine = [thing for thing in loader.things if thing in trained]
    places = [_place(facts, thing, trained) for thing in mine] if not why else []
    if why or None in places:
        return (), _by_hand(loader, why or "no call gives loaders that train, and nothing else")
    found = dict.fromkeys(place for place in places if place is not None)
    return tuple(edit(facts, How.REPLACE, site, "share_batches({})") for site in found), ""


def _by_hand(loader: Loader, why: str) -> str:
    thing = next(thing for thing in loader.things if makes_its_own(thing))
    site = handed_on(thing.ref) if isinstance(thing.ref, ClassInfo) else None
    place = f" ({site.path}:{site.span.line})" if site is not None else ""
    return (
        f"`{thing.name}` makes its loader itself{place}, and {why}: give what it hands to"
        " DataLoader a distributed sampler, and this rank's part of the batch size, by hand"
    )


def _other_batches(loader: Thing) -> str:
    size = loader_arguments(loader).batch_size
    if size is not None and size.known and size.const is None:
        return "goes without batches"
    for info in loader.ref.mro() if isinstance(loader.ref, ClassInfo) else ():
        for node in ast.walk(info.node):
            said = getattr(node, "name", getattr(node, "attr", ""))
            if said in _OTHER_BATCHES:
                return f"has a `{said}` of its own"
    return ""


def _asks(facts: Facts, loader: Thing) -> bool:
    asked = (a for a in facts.accesses if a.attribute == "batch_sampler")
    return any(loader in access.base.things for access in asked)


def _place(facts: Facts, loader: Thing, trained: set[Thing]) -> Site | None:
    """The innermost call on a loader's way that gives loaders that train, and nothing else."""
    made = call_that_made(loader)
    for site in reversed((*made.where.stack, made.site) if made is not None else ()):
        given = {t for call in facts.calls if call.site == site for t in call.result.things}
        if loader in given and all(t.kind is Kind.LOADER and t in trained for t in given):
            return site
    return None
