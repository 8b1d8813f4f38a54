"""Where all ranks have to take part, so that nobody puts that place under a rank condition."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.facts import torchtext
from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call, Where
from ddpify.facts.model import Facts
from ddpify.facts.values import NOTHING
from ddpify.names import COLLECTIVES
from ddpify.source import Site

# Questions at the terminal: rank 0 asks, and tells the others (DDP507).
ASKS = ("builtins.input", "getpass.getpass")


def needs_all_ranks(facts: Facts, statement: Site) -> bool:
    """Whether a statement runs, itself or in what it calls, something that all ranks must enter."""
    return any(
        site.within(statement) for where, own in _collectives(facts) for site in (own, *where.stack)
    )


def questions(facts: Facts) -> list[Call]:
    """The questions at the terminal that all ranks come by: not in what rank 0 alone will call."""
    asked = (call for call in facts.named(*ASKS) if not call.where.one_rank())
    return [call for call in asked if call.where.function not in facts.helpers]


def _collectives(facts: Facts) -> Iterator[tuple[Where, Site]]:
    """The circumstances and the place of each, those that the fixes will put there included."""
    for call in facts.named(*(f"ddpify.runtime.{name}" for name in COLLECTIVES)):
        yield call.where, call.site
    yield from ((call.where, call.site) for call in questions(facts))
    yield from ((where, share.site) for share in facts.shares for where in share.wheres)
    yield from ((call.where, call.site) for call in facts.firsts)
    yield from _lists_of_streams(facts)
    yield from (
        (loop.backward.where, one.site) for one in facts.agreements for loop in facts.training
    )
    for forward in facts.training_forwards:
        yield forward.call.where, forward.call.site
    for loop in facts.training:
        yield loop.backward.where, loop.backward.site
    for end in facts.ends:
        if end.communicates:
            yield end.where, end.loop.site
    for effect in facts.effects:
        if effect.kind is EffectKind.CHECKPOINT:
            yield effect.call.where, effect.call.site
    for call, parts in facts.sinks:
        if call.where.stack and any(part.how for part in parts):
            yield call.where, call.where.stack[-1]  # reduced before it, not inside


def _lists_of_streams(facts: Facts) -> Iterator[tuple[Where, Site]]:
    """Loaders over what one rank after the other makes a list of."""
    for call in (call for loader in facts.loaders for call in loader.calls):
        if any(torchtext.is_stream(thing) for thing in (call.arg(0, "dataset") or NOTHING).things):
            yield call.where, call.site
